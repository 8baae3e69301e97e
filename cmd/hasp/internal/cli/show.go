// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newShow() *cobra.Command {
	store := &storeFlag{}
	output := &choice{"text", []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show everything about one key",
		Long: `hasp show says who holds a key, how, since when and why, who waits for it in
which order, how to look at it in its store without hasp, and how to break it.`,
		Args: exactly(1, "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, store, output.word == "json", args[0])
		},
	}
	cmd.ValidArgsFunction = store.completeKeys
	cmd.Flags().VarP(output, "output", "o", "lines, or an object")
	complete(cmd, "output", output.among)
	store.add(cmd)
	return cmd
}

func show(cmd *cobra.Command, store *storeFlag, asJSON bool, key string) error {
	if err := checkKey(key); err != nil {
		return err
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
	if !asJSON {
		describe(stdout, l, store, info)
		return nil
	}
	k := infoJSON(info)
	for _, s := range info.ByHand {
		k.ByHand = append(k.ByHand, l.url.ByHand(0, s))
	}
	for _, s := range info.Free {
		k.Free = append(k.Free, l.url.ByHand(0, s))
	}
	return plain.WriteJSON(stdout, k)
}

// describe writes everything about a key, a line for each fact.
func describe(w io.Writer, l *locks, store *storeFlag, i hasp.Info) {
	fact := func(name, format string, args ...any) {
		fmt.Fprintln(w, plain.Line(fmt.Sprintf("%-8s  "+format, append([]any{name}, args...)...)))
	}
	fact("key", "%s", quote(i.Key))
	fact("store", "%s", l.url)
	switch {
	case len(i.Holders) > 1 || i.Holder.Mode == hasp.Shared:
		fact("state", "shared by %d", i.Holds)
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
		if s := share(h, false); s != "" {
			fact("", "wants it %s", s)
		}
	}
	byHand := func(name string, statements []string) {
		for _, s := range statements {
			fact(name, "%s", l.url.ByHand(0, s))
			name = ""
		}
	}
	byHand("by hand", i.ByHand)
	byHand("to free", i.Free)
	if len(i.Free) > 0 {
		fact("", "(only when its holder is known to be gone; it does nothing once the value has changed)")
	}
	for _, remark := range l.url.Remarks() {
		if len(i.ByHand) > 0 {
			fact("", "(%s)", remark)
		}
	}
	if i.Held && !i.Holder.Foreign {
		fact("to break", "%s", store.again("break", i.Key, "--owner", i.Holder.Owner))
	}
	if i.Holds+len(i.Queue) > 1 {
		fact("", "(or another owner, to take it from that one)")
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
		fact("left", "%s unless it is renewed", short(l.Left))
	}
}

// person writes a holder or a waiter of a key.
func person(fact func(name, format string, args ...any), name string, h hasp.Holder) {
	l := h.Describe()
	fact(name, "%s", who(h))
	if ended(h) {
		fact("", "this process of this host has ended")
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

// isText says whether JSON carries a text as it is.
func isText(s string) bool { return utf8.ValidString(s) }

// completeKeys completes a key out of those that are held or waited for. Others
// wrote them, and the shells' completion puts them into the command line as they
// are, and evaluates that at the next TAB: only what is plain text to any shell is
// offered.
func (f *storeFlag) completeKeys(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	l, err := open(f.text, cmd.Flags().Changed("store"), hasp.Options{}) // without a word: it completes a line
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer l.Close()
	ctx, cancel := asking()
	defer cancel()
	var keys []string
	for info, err := range l.Operator().List(ctx, begun) {
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if shell.Bare(info.Key) {
			keys = append(keys, info.Key)
		}
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}
