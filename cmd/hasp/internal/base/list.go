// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/cmd/hasp/internal/shell"
	"github.com/spf13/cobra"
)

// All returns the keys that start with prefix, sorted. A store of which nothing is heard
// for AskLimit is silent, unless it may have to search for longer.
func (l *Locks) All(ctx context.Context, prefix string) ([]hasp.Info, error) {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := AskLimit
	if l.Store.Searches {
		limit = math.MaxInt64
	}
	silence := time.AfterFunc(limit, func() { cancel(context.DeadlineExceeded) })
	defer silence.Stop()
	seen := map[string]hasp.Info{}
	for info, err := range l.Operator().List(hearing{ctx, within}, prefix) {
		if err != nil {
			return nil, err
		}
		silence.Reset(limit)
		seen[info.Key] = info // the store may name one twice
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b hasp.Info) int { return cmp.Compare(a.Key, b.Key) }), nil
}

// hearing ends with within; where that was too silent, as a deadline does: the store then says what it waited for. Its values are those of
// the context before: what is made of hearing would else end as within does.
type hearing struct {
	context.Context
	within context.Context
}

func (h hearing) Done() <-chan struct{} { return h.within.Done() }
func (h hearing) Err() error {
	if err := h.within.Err(); err == nil || !errors.Is(context.Cause(h.within), context.DeadlineExceeded) {
		return err
	}
	return context.DeadlineExceeded
}

// CompleteKeys completes a key out of those that are held or waited for. Others
// wrote them, and the shells' completion puts them into the command line as they
// are, and evaluates that at the next TAB: only what is plain text to any shell is
// offered.
func (f *StoreFlag) CompleteKeys(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	l, err := Open(f.Text, cmd.Flags().Changed("store"), hasp.Options{}) // without a word: it completes a line
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer l.Close()
	ctx, cancel := Asking()
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
