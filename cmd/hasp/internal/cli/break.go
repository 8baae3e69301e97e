// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/audit"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newBreak() *cobra.Command {
	store, record := &storeFlag{}, &auditFlag{}
	var owner, reason string
	var yes bool
	cmd := &cobra.Command{
		Use:   "break KEY --owner OWNER",
		Short: "Take a key away from its holder",
		Long: `hasp break takes a key away from exactly the OWNER that hasp show names, or removes
it from the queue: never from whoever got the key since. The owner's lease is
lost; a hasp run that holds it ends its command within a third of its TTL, and at
once after its first renewal on Redis, etcd and ZooKeeper. The key goes to the next
waiter, which learns that it was not released (HASP_ABANDONED). Others who share the
key keep it.

It shows what it is about to do and asks you to type the key. In scripts, give
--yes instead. Keys of foreign holders, which do not use hasp, are never broken.

With --audit, or HASP_AUDIT, it records who broke what, when and why, before and after;
what cannot be recorded is not broken.`,
		Args: exactly(1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !driver.ValidOwner(owner) {
				return usage("--owner takes the %d characters that this shows: %s", driver.OwnerLen, store.again("show", args[0]))
			}
			log, err := record.open()
			if err != nil {
				return err
			}
			return breakKey(cmd, store, log, args[0], owner, reason, yes)
		},
	}
	cmd.ValidArgsFunction = store.completeKeys
	cmd.Flags().StringVar(&owner, "owner", "", "whom to take it from: the `OWNER` that hasp show names")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` that says why, for the audit record")
	record.add(cmd, "record who broke what")
	store.add(cmd)
	return cmd
}

func breakKey(cmd *cobra.Command, store *storeFlag, log *audit.Log, key, owner, reason string, yes bool) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if !yes && !child.IsTerminal(os.Stdin) {
		return usage("standard input is no terminal, so the key cannot be typed: give --yes to break %s without a question", quote(key))
	}
	l, err := store.open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := asking()
	defer cancel()
	info, err := l.inspect(ctx, key)
	if err != nil {
		return err
	}
	v, ok := withOwner(info, owner)
	if !ok {
		return notThatOwner(info, key, owner)
	}
	note("%s", plan(info, key, v))
	if !yes {
		if err := confirm(key); err != nil {
			return err
		}
	}
	ctx, cancelBreak := asking() // the question may have taken its time
	defer cancelBreak()
	if end := l.takeAway(ctx, log, "hasp break", key, v, reason); end != nil {
		return end
	}
	note("broke %s: taken from %s", quote(key), who(v.Holder))
	return nil
}

// victim is an owner to take a key from.
type victim struct {
	hasp.Holder
	fence uint64
	waits bool // it has a place in the queue, not the key
}

// withOwner returns the holder or waiter with this owner.
func withOwner(i hasp.Info, owner string) (v victim, ok bool) {
	for _, l := range i.Holders {
		if l.Holder.Owner == owner {
			return victim{l.Holder, l.Fence, false}, true
		}
	}
	for _, h := range i.Queue {
		if h.Owner == owner {
			return victim{h, 0, true}, true
		}
	}
	return v, false
}

// plan says what a break does.
func plan(i hasp.Info, key string, v victim) string {
	if v.waits {
		return fmt.Sprintf("this removes %s from the queue for %s; it may queue again", who(v.Holder), quote(key))
	}
	s := fmt.Sprintf("this takes %s from %s", quote(key), who(v.Holder))
	l := v.Describe()
	if !l.Since.IsZero() {
		s += ", who has held it " + people.For(l.Since, time.Now())
	}
	if l.Reason != "" {
		s += fmt.Sprintf(", reason %q", l.Reason)
	}
	s += ". Its lease is lost, but it may work on until it notices"
	switch others := len(i.Holders) - 1; {
	case others > 0:
		s += fmt.Sprintf("; %s it", count(others, "other keeps", "others keep"))
	case len(i.Queue) > 0:
		s += fmt.Sprintf("; the key goes to %s", who(i.Queue[0]))
	}
	return s
}

// confirm asks for the key to be typed. A key that cannot be typed is typed as
// it is shown.
func confirm(key string) error {
	shown := driver.Printable(key)
	fmt.Fprintf(os.Stderr, "To do it, type the key (%s): ", plain.Line(shown))
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	typed := strings.TrimRight(line, "\r\n")
	if typed == key || typed == shown || typed == plain.Line(shown) {
		return nil
	}
	if err != nil {
		fmt.Fprintln(os.Stderr)
	}
	return usage("that is not the key: nothing was done")
}

func notThatOwner(i hasp.Info, key, owner string) *exit {
	e := &exit{code: exitBusy, verdict: "busy"}
	switch {
	case i.Held:
		e.message = fmt.Sprintf("nothing was done: %s no longer has %s, which is %s", owner, quote(key), obstacle(i.Holder, i.Left, 0))
		if i.Holder.Foreign {
			e.message += ". hasp never breaks the lease of another program; hasp show says how to look at it, and to free it, by hand"
		}
	default:
		e.message = fmt.Sprintf("nothing was done: %s no longer has %s, and nobody else has it", owner, quote(key))
	}
	return e
}
