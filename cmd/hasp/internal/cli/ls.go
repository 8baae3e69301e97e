// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newLs() *cobra.Command {
	store := &storeFlag{}
	output := &choice{"text", []string{"text", "json"}}
	cmd := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the keys that are held or waited for",
		Long: `hasp ls lists the keys that are held or waited for, all of them or those that start with
PREFIX: how they are held, by whom and how many others, since when, what is left
of its TTL if it is not renewed, its fence, how many wait, and its reason.
hasp top shows the same list live, and breaks.`,
		Example: `  hasp ls
  hasp ls orders/ -o json | jq .holder.host`,
		Args: atMost(1, "PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			return list(cmd, store, output.word == "json", prefix)
		},
	}
	cmd.Flags().VarP(output, "output", "o", "a table, or objects, one a line")
	complete(cmd, "output", output.among)
	store.add(cmd)
	return cmd
}

func list(cmd *cobra.Command, store *storeFlag, asJSON bool, prefix string) error {
	l, err := store.open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := listening()
	defer cancel()
	infos, err := l.all(ctx, prefix)
	if err != nil {
		return trouble(l.url, err)
	}
	switch {
	case asJSON:
		for _, info := range infos {
			if err := plain.WriteJSON(stdout, infoJSON(info)); err != nil {
				return err
			}
		}
	case len(infos) == 0 && prefix != "":
		note("no key that starts with %s is held or waited for in %s", quote(prefix), l.url)
	case len(infos) == 0:
		note("no key is held or waited for in %s", l.url)
	default:
		return table(stdout, infos)
	}
	return nil
}

// all returns the keys that start with prefix, sorted. A store of which nothing is heard
// for askLimit is silent, unless it may have to search for longer.
func (l *locks) all(ctx context.Context, prefix string) ([]hasp.Info, error) {
	if !l.store.Searches {
		within, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		silence := time.AfterFunc(askLimit, func() { cancel(os.ErrDeadlineExceeded) })
		defer silence.Stop()
		infos, err := l.collect(within, prefix, func() { silence.Reset(askLimit) })
		if err != nil && errors.Is(context.Cause(within), os.ErrDeadlineExceeded) {
			err = &hasp.Error{Op: "list", Engine: l.Traits().Engine, Class: hasp.ClassUnreachable, Err: fmt.Errorf("no answer within %v", askLimit)}
		}
		return infos, err
	}
	return l.collect(ctx, prefix, func() {})
}

// collect returns the keys that start with prefix, sorted; heard is called for each.
func (l *locks) collect(ctx context.Context, prefix string, heard func()) ([]hasp.Info, error) {
	seen := map[string]hasp.Info{}
	for info, err := range l.Operator().List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		heard()
		seen[info.Key] = info // the store may name one twice
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b hasp.Info) int { return cmp.Compare(a.Key, b.Key) }), nil
}

// maxReason is how much of a reason the table shows.
const maxReason = 60

func table(w io.Writer, infos []hasp.Info) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tMODE\tHOLDER\tSINCE\tTTL\tFENCE\tWAITERS\tREASON")
	for _, i := range infos {
		mode, holder, since, fence, reason := "-", "-", "-", "-", ""
		if i.Held {
			l := i.Holder.Describe()
			mode, holder, reason = modeName(i.Holder.Mode), i.Holder.String(), l.Reason
			if i.Holder.Limit > 0 {
				mode = fmt.Sprintf("%d of %d", i.Holds, i.Holder.Limit)
			}
			if i.Holds > 1 {
				holder += fmt.Sprintf(" and %d more", i.Holds-1)
			}
			if !l.Since.IsZero() {
				since = people.Ago(l.Since, time.Now())
			}
		}
		if i.Fence > 0 {
			fence = strconv.FormatUint(i.Fence, 10)
		}
		if r := []rune(reason); len(r) > maxReason {
			reason = string(r[:maxReason]) + "…"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", plain.Line(driver.Printable(i.Key)), mode, plain.Line(holder), since, leftOf(i), fence, i.Waiters, plain.Line(driver.Printable(reason)))
	}
	_ = t.Flush() // a buffer takes everything
	_, err := w.Write(b.Bytes())
	return err
}

// leftOf says how long the store keeps a key without a renewal.
func leftOf(i hasp.Info) string {
	switch {
	case !i.Held:
		return "-"
	case i.Left < 0:
		return "never ends"
	case i.Left == 0: // not known
		return "?"
	}
	return short(i.Left)
}
