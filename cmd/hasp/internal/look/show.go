// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"fmt"
	"io"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/cmd/hasp/internal/child"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newShow() *cobra.Command {
	store := &base.StoreFlag{}
	output := base.Outputs()
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show everything about one key",
		Long: `hasp show says who holds a key, how, since when and why, who waits for it in
which order, how to look at it in its store without hasp, and how to break it.`,
		Args: base.Exactly(1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, store, output.JSON(), args[0])
		},
	}
	cmd.ValidArgsFunction = store.CompleteKeys
	output.AddOutput(cmd, "lines, or an object")
	store.Add(cmd)
	return cmd
}

func show(cmd *cobra.Command, store *base.StoreFlag, asJSON bool, key string) error {
	if err := base.CheckKey(key); err != nil {
		return err
	}
	l, err := store.Open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := base.Asking()
	defer cancel()
	info, err := l.Inspect(ctx, key)
	if err != nil {
		return err
	}
	if !asJSON {
		describe(base.Stdout, l, store, info)
		return nil
	}
	k := people.ToKeyJSON(info)
	for _, s := range info.LookCommands {
		k.ByHand = append(k.ByHand, l.URL.ByHand(0, s))
	}
	for _, s := range info.FreeCommands {
		k.Free = append(k.Free, l.URL.ByHand(0, s))
	}
	return plain.WriteJSON(base.Stdout, k)
}

// describe writes everything about a key, a line for each fact.
func describe(w io.Writer, l *base.Locks, store *base.StoreFlag, i hasp.Info) {
	fact := func(name, format string, args ...any) {
		fmt.Fprintln(w, plain.Line(fmt.Sprintf("%-8s  "+format, append([]any{name}, args...)...)))
	}
	fact("key", "%s", base.Quote(i.Key))
	fact("store", "%s", l.URL)
	switch {
	case len(i.Holders) > 1 || i.Holder.Mode == hasp.Shared:
		fact("state", "shared by %d", i.Leases)
		for n, l := range i.Holders {
			person(fact, fmt.Sprintf("  %d.", n+1), l.Holder)
			describeLease(func(name, format string, args ...any) { fact("", name+" "+format, args...) }, l)
		}
	case i.Held:
		fact("state", "held")
		person(fact, "holder", i.Holder)
		describeLease(fact, i.Holders[0])
	default:
		fact("state", "free")
	}
	if i.Waiters > 0 {
		fact("waiting", "%d, first come, first served", i.Waiters)
	}
	for n, h := range i.Queue {
		person(fact, fmt.Sprintf("  %d.", n+1), h)
		if s := base.Share(h, false); s != "" {
			fact("", "wants it %s", s)
		}
	}
	if i.Held && !i.Holder.Foreign {
		fact("to break", "%s", store.Again("break", i.Key, "--owner", i.Holder.Owner))
		if i.Leases+len(i.Queue) > 1 {
			fact("", "(or another owner, to take it from that one)")
		}
	}
	byHand := func(name string, statements []string) {
		for _, s := range statements {
			fact(name, "%s", l.URL.ByHand(0, s))
			name = ""
		}
	}
	byHand("by hand", i.LookCommands)
	byHand("to free", i.FreeCommands)
	if len(i.FreeCommands) > 0 {
		fact("", "(only when its holder is known to be gone; it does nothing once the value has changed)")
	}
	for _, remark := range l.URL.Remarks() {
		if len(i.LookCommands) > 0 {
			fact("", "(%s)", remark)
		}
	}
}

// describeLease writes what the store says of a lease.
func describeLease(fact func(name, format string, args ...any), l driver.Holding) {
	if l.Holder.Limit > 0 {
		fact("slot", "%d of %d", l.Holder.Slot, l.Holder.Limit)
	}
	if l.Fence > 0 {
		fact("fence", "%d", l.Fence)
	}
	switch {
	case l.Left < 0:
		fact("left", "it never ends by itself")
	case l.Left > 0: // else it is not known
		fact("left", "%s unless it is renewed", people.Short(l.Left))
	}
}

// person writes a holder or a waiter of a key.
func person(fact func(name, format string, args ...any), name string, h hasp.Holder) {
	l := h.Describe()
	fact(name, "%s", people.Name(h))
	if fate := people.Fate(h); fate != "" {
		fact("", "%s", fate)
		if names := child.AtWork()[h.Owner]; len(names) > 0 {
			fact("", "%s", stillAtWork(names))
		}
	}
	if h.Owner != "" {
		fact("", "owner %s", driver.Printable(h.Owner))
	}
	if !l.Since.IsZero() {
		fact("", "since %s (%s)", l.Since.Local().Format("2006-01-02 15:04:05 MST"), people.Ago(l.Since, time.Now()))
	}
	if l.Reason != "" {
		fact("", "reason %q", l.Reason)
	}
}
