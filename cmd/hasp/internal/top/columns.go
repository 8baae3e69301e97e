// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/people"
)

// column is one of the list's.
type column struct {
	title   string
	width   int // 0: it shares what the others leave
	right   bool
	drop    int // the smallest goes first where there is no room
	text    func(m *Model, i *entry, now time.Time) string
	compare func(a, b *entry) int // nil: the list cannot be sorted by it
}

// columns are those of the list, in order. How long others wait is known of the keys
// on the screen only, so that the list is not sorted by it.
var columns = []column{
	{title: "KEY", drop: 9, text: func(_ *Model, i *entry, _ time.Time) string { return i.shown },
		compare: func(a, b *entry) int { return 0 }},
	{title: "MODE", width: 8, drop: 1, text: mode},
	{title: "HOLDER", drop: 6, text: func(_ *Model, i *entry, _ time.Time) string { return cmp.Or(i.holder, "-") }, compare: func(a, b *entry) int {
		if (a.holder == "") != (b.holder == "") { // a key without a holder comes last
			return cmp.Compare(b.holder, a.holder)
		}
		return cmp.Compare(a.holder, b.holder)
	}},
	{title: "HELD", width: 6, right: true, drop: 4, text: held, compare: func(a, b *entry) int { return cmp.Compare(sinceOf(a), sinceOf(b)) }},
	{title: "LEFT", width: 6, right: true, drop: 2, text: left, compare: func(a, b *entry) int { return cmp.Compare(leftOf(a), leftOf(b)) }},
	{title: "WAIT", width: 5, right: true, drop: 5, text: func(_ *Model, i *entry, _ time.Time) string { return strconv.Itoa(i.Waiters) },
		compare: func(a, b *entry) int { return cmp.Compare(b.Waiters, a.Waiters) }},
	{title: "LONGEST", width: 7, right: true, drop: 3, text: longest},
}

func mode(_ *Model, i *entry, _ time.Time) string {
	switch {
	case !i.Held:
		return "-"
	case i.Holder.Limit > 0:
		return fmt.Sprintf("%d of %d", i.Holds, i.Holder.Limit)
	case i.Holder.Mode == hasp.Shared:
		return "shared"
	}
	return "excl"
}

func held(_ *Model, i *entry, now time.Time) string {
	if i.since.IsZero() {
		return "-"
	}
	if i.since.Sub(now) > time.Second { // of a clock that is ahead of ours
		return "ahead"
	}
	return people.Short(now.Sub(i.since))
}

// sinceOf sorts the longest first, and what is not known last.
func sinceOf(i *entry) int64 {
	if i.since.IsZero() {
		return math.MaxInt64
	}
	return i.since.UnixNano()
}

func left(m *Model, i *entry, now time.Time) string {
	if !i.Held {
		return "-"
	}
	return leftText(i.Left, now.Sub(m.at))
}

// leftText is what is left of a lease of which the store said so a while ago.
func leftText(left, ago time.Duration) string {
	switch {
	case left < 0:
		return "never"
	case left == 0:
		return "?"
	}
	return people.Short(left - ago)
}

// leftOf sorts the least first, and what is not known or never ends last.
func leftOf(i *entry) time.Duration {
	switch {
	case !i.Held || i.Left == 0:
		return math.MaxInt64
	case i.Left < 0:
		return math.MaxInt64 - 1
	}
	return i.Left
}

func longest(m *Model, i *entry, now time.Time) string {
	if i.Waiters == 0 {
		return "-"
	}
	look, ok := m.looks[i.Key]
	switch {
	case !ok:
		return ".."
	case look.Trouble != "":
		return "?"
	}
	var first time.Time
	for _, h := range look.Info.Queue {
		if since := h.Describe().Since; first.IsZero() || !since.IsZero() && since.Before(first) {
			first = since
		}
	}
	if first.IsZero() {
		return "?"
	}
	return people.Short(now.Sub(first))
}

// leastText is how many columns the key and the holder get before others go.
const leastText = 24

// fitting are the columns that have room, and how wide each is.
func fitting(width int) (fit []int, widths []int) {
	for i := range columns {
		fit = append(fit, i)
	}
	for {
		used, wide := len(cursor)+len(fit)-1, 0
		for _, i := range fit {
			used += columns[i].width
			if columns[i].width == 0 {
				wide++
			}
		}
		rest := width - used
		if least := leastText * wide / 2; rest >= least || len(fit) == 1 {
			for _, i := range fit {
				switch {
				case columns[i].width > 0:
					widths = append(widths, columns[i].width)
				case wide == 1:
					widths = append(widths, rest)
				case i == 0:
					widths = append(widths, rest-rest*9/20)
				default:
					widths = append(widths, rest*9/20)
				}
			}
			return fit, widths
		}
		at := 0
		for n, i := range fit {
			if columns[i].drop < columns[fit[at]].drop {
				at = n
			}
		}
		fit = append(fit[:at], fit[at+1:]...)
	}
}
