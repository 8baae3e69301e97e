// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package look

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/base"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
	"github.com/hasplock/hasp/internal/plain"
	"github.com/spf13/cobra"
)

func newLs() *cobra.Command {
	store := &base.StoreFlag{}
	output := base.Outputs()
	cmd := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List the keys that are held or waited for",
		Long: `hasp ls lists the keys that are held or waited for, all of them or those that start with
PREFIX: how they are held, by whom and how many others, for how long, what is left
of its TTL if it is not renewed, its fence, how many wait, and its reason.
hasp top shows the same list live, and breaks.`,
		Example: `  hasp ls
  hasp ls orders/ -o json | jq .holder.host`,
		Args: base.AtMost(1, "PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return list(cmd, store, output.JSON(), strings.Join(args, ""))
		},
	}
	output.AddOutput(cmd, "a table, or objects, one a line")
	store.Add(cmd)
	return cmd
}

func list(cmd *cobra.Command, store *base.StoreFlag, asJSON bool, prefix string) error {
	l, err := store.Open(cmd, nil)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := base.Listening()
	defer cancel()
	infos, err := l.All(ctx, prefix)
	if err != nil {
		return base.Trouble(l.URL, err)
	}
	switch {
	case asJSON:
		for _, info := range infos {
			if err := plain.WriteJSON(base.Stdout, people.ToKeyJSON(info)); err != nil {
				return err
			}
		}
	case len(infos) == 0 && prefix != "":
		base.Note("no key that starts with %s is held or waited for in %s", base.Quote(prefix), l.URL)
	case len(infos) == 0:
		base.Note("no key is held or waited for in %s", l.URL)
	default:
		return table(base.Stdout, infos)
	}
	return nil
}

// maxReason is how much of a reason the table shows.
const maxReason = 60

func table(w io.Writer, infos []hasp.Info) error {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tMODE\tHOLDER\tHELD\tLEFT\tFENCE\tWAITERS\tREASON")
	for _, i := range infos {
		holder, held, left, fence, reason := "-", "-", "-", "-", ""
		if i.Held {
			l := i.Holder.Describe()
			holder, held, left, reason = i.Holder.String(), people.HeldFor(l.Since, time.Now()), people.Left(i.Left, 0), l.Reason
			if i.Leases > 1 {
				holder += fmt.Sprintf(" and %d more", i.Leases-1)
			}
		}
		if i.Fence > 0 {
			fence = strconv.FormatUint(i.Fence, 10)
		}
		if r := []rune(reason); len(r) > maxReason {
			reason = string(r[:maxReason]) + "…"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", plain.Line(driver.Printable(i.Key)), people.ModeOf(i), plain.Line(holder), held, left, fence, i.Waiters, plain.Line(driver.Printable(reason)))
	}
	_ = t.Flush() // a buffer takes everything
	_, err := w.Write(b.Bytes())
	return err
}
