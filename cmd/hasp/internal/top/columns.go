// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

// column is one of the list's.
type column struct {
	title   string
	width   int
	share   int // of what those with a width leave, for a column without one
	right   bool
	drop    int // the smallest goes first where there is no room
	text    func(m *Model, i *entry, now time.Time) string
	style   func(m *Model, i *entry, now time.Time) Style // Warning or Alarm where it needs a person; nil: it never does
	compare func(a, b *entry) int                         // nil: the list cannot be sorted by it
}

// columns are those of the list, in order, with the names that hasp ls has. How long others wait is known of the keys
// on the screen only, so that the list is not sorted by it.
var columns = []column{
	{title: "KEY", share: 5, drop: 9, text: func(_ *Model, i *entry, _ time.Time) string { return i.shown },
		compare: func(a, b *entry) int { return 0 }},
	{title: "MODE", width: 9, drop: 1, text: func(_ *Model, i *entry, _ time.Time) string { return people.ModeOf(i.Info) }},
	{title: "HOLDER", share: 5, drop: 7, text: func(_ *Model, i *entry, _ time.Time) string { return cmp.Or(i.holder, "-") }, style: abandoned, compare: func(a, b *entry) int {
		if (a.holder == "") != (b.holder == "") { // a key without a holder comes last
			return cmp.Compare(b.holder, a.holder)
		}
		return cmp.Compare(a.holder, b.holder)
	}},
	{title: "HELD", width: 6, right: true, drop: 5, text: held, compare: func(a, b *entry) int { return cmp.Compare(sinceOf(a), sinceOf(b)) }},
	{title: "LEFT", width: 6, right: true, drop: 3, text: left, style: ending, compare: func(a, b *entry) int { return cmp.Compare(leftOf(a), leftOf(b)) }},
	{title: "WAITERS", width: 7, right: true, drop: 6, style: waiting, text: func(_ *Model, i *entry, _ time.Time) string { return strconv.Itoa(i.Waiters) },
		compare: func(a, b *entry) int { return cmp.Compare(b.Waiters, a.Waiters) }},
	{title: "LONGEST", width: 7, right: true, drop: 4, text: longest, style: waiting},
	{title: "REASON", share: 4, drop: 2, text: func(_ *Model, i *entry, _ time.Time) string { return i.reason }},
}

// needs is the style of a cell: Normal where nothing in it needs a person.
func (c *column) needs(m *Model, i *entry, now time.Time) Style {
	if c.style == nil {
		return Normal
	}
	return c.style(m, i, now)
}

// orders are the columns by which the list is sorted, in turn: first by WAITERS.
var orders = []int{5, 0, 2, 3, 4}

// abandoned: the process of a holder has ended without a release. Holders beside the first are known on the screen only.
func abandoned(m *Model, i *entry, _ time.Time) Style {
	ended := func(h driver.Holding) bool { return people.Ended(h.Holder) }
	if i.Held && (people.Ended(i.Holder) || i.Leases > 1 && slices.ContainsFunc(m.looks[i.Key].Info.Holders, ended)) {
		return Alarm
	}
	return Normal
}

// ending: when the list came, two renewals of the lease were overdue, since a holder renews with two thirds left; or it will
// never end by itself.
func ending(m *Model, i *entry, _ time.Time) Style {
	switch {
	case i.Held && i.Left < 0:
		return Warning
	case i.Held && i.Left > 0 && i.Holder.Owner != "" && i.Left < m.most[i.Holder.Owner]/3 && !people.Kept(i.Holder):
		return Alarm
	}
	return Normal
}

func waiting(m *Model, i *entry, now time.Time) Style {
	if since, _ := m.firstSince(i); people.LongWait(since, now) {
		return Warning
	}
	return Normal
}

func held(_ *Model, i *entry, now time.Time) string {
	if i.since.Sub(now) > time.Second { // there is no room for a clock that is ahead of ours
		return "ahead"
	}
	return people.HeldFor(i.since, now)
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
	return strings.TrimSuffix(people.Left(i.Left, now.Sub(m.at)), " ends")
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
	first, asked := m.firstSince(i)
	switch {
	case i.Waiters == 0:
		return "-"
	case !asked:
		return ".."
	case first.IsZero():
		return "?"
	}
	return people.Short(now.Sub(first))
}

// firstSince is since when the first of a key's waiters has waited; zero: not known. asked: the store was asked.
func (m *Model) firstSince(i *entry) (first time.Time, asked bool) {
	look, asked := m.looks[i.Key]
	if i.Waiters == 0 || look.Trouble != "" {
		return first, asked
	}
	return people.FirstSince(look.Info.Queue), asked
}

// leastText is how many columns the key, the holder and the reason get together before others go: by how many of them are left.
var leastText = [...]int{0, 11, 22, 45}

// fitting are the columns that have room, and how wide each is.
func fitting(width int) (fit []int, widths []int) {
	for i := range columns {
		fit = append(fit, i)
	}
	for {
		rest, texts, shares := width-len(cursor)-len(fit)+1, 0, 0
		for _, i := range fit {
			rest -= columns[i].width
			shares += columns[i].share
			if columns[i].share > 0 {
				texts++
			}
		}
		if rest >= leastText[texts] || len(fit) == 1 {
			spare := rest
			for _, i := range fit {
				wide := columns[i].width + rest*columns[i].share/max(shares, 1)
				widths = append(widths, wide)
				spare -= wide - columns[i].width
			}
			widths[0] += spare // what the division leaves
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
