// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package top is hasp top: what it knows, what a key does to it, and what of it a
// terminal shows.
package top

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/plain"
)

// page is what the whole of the terminal shows.
type page uint8

const (
	list    page = iota
	one          // a key, with its queue
	help         // the keys to press
	confirm      // an owner is about to lose a key
)

// field is where typed text goes.
type field uint8

const (
	none field = iota
	filter
	reason
)

// Model is what hasp top knows. The zero value shows an empty list.
type Model struct {
	Store    string        // its name, safe to print
	Prefix   string        // of the keys that are asked for
	ReadOnly bool          // nothing can be broken
	Every    time.Duration // how often the store is asked

	all     Prepared  // the latest list
	rows    []*entry  // those that are shown, in order
	at      time.Time // of the list; zero before the first
	trouble string    // why the latest list failed
	since   time.Time // the first of such failures
	round   int       // of lists
	looks   map[string]Look
	most    map[string]time.Duration // by owner, the most that was seen to be left of its lease

	page     page
	back     page // from help
	field    field
	sort     int // of orders
	reversed bool
	filter   string

	chosen string // the key that the cursor is on
	pos    int    // where in rows that is
	first  int    // of rows, the one at the top
	person int    // of a key's holders and queue, that under the cursor
	scroll int    // of that page

	target   *Target // that the user is asked about
	breaking *Target // that is being broken
	status   string  // what became of the latest act
}

// entry is a key, with what it is sorted and shown by.
type entry struct {
	hasp.Info
	shown, holder, reason string
	since                 time.Time
}

// Look is what an Inspect found out.
type Look struct {
	Info    hasp.Info
	Trouble string // why it failed
	round   int
}

// Target is an owner to take a key from.
type Target struct {
	Key    string
	Owner  string
	Who    string // as it was shown
	Plan   string // what a break would do; empty while that is not known
	Reason string
}

// Prepared is a list as a Model takes it in.
type Prepared []entry

// Prepare does what takes its time with a long list, beside the model: it is sorted by key.
func Prepare(infos []hasp.Info) Prepared {
	all := make([]entry, len(infos))
	for i, info := range infos {
		all[i] = entry{Info: info, shown: Shown(info.Key)}
		if info.Held {
			l := info.Holder.Describe()
			all[i].holder, all[i].reason, all[i].since = holderOf(info), Shown(l.Reason), l.Since
		}
	}
	return all
}

// SetList takes in a list.
func (m *Model) SetList(all Prepared, now time.Time) {
	m.all = all
	m.at, m.trouble = now, ""
	most := make(map[string]time.Duration, len(all))
	for i := range all {
		most[all[i].Holder.Owner] = max(m.most[all[i].Holder.Owner], all[i].Left)
	}
	m.most = most
	m.round++
	m.arrange()
}

// SetTrouble notes why there is no list.
func (m *Model) SetTrouble(why string, now time.Time) {
	if m.trouble == "" {
		m.since = now
	}
	m.trouble = why
}

// SetLooks takes in what the Inspects of some keys found out.
func (m *Model) SetLooks(looks map[string]Look) {
	next := map[string]Look{}
	for key, l := range m.looks { // what is older than the list before is of no use
		if l.round >= m.round-1 {
			next[key] = l
		}
	}
	for key, l := range looks {
		l.round = m.round
		next[key] = l
	}
	m.looks = next
	m.person = max(0, min(m.person, len(m.people())-1))
}

// Wanted are the keys that are on the screen, and of which more is to be known than the
// list says: the waiters, for how long they wait, and the holders beside the first.
func (m *Model) Wanted(width, height int) (keys []string) {
	want := func(key string) {
		if l, ok := m.looks[key]; !ok || l.round < m.round {
			keys = append(keys, key)
		}
	}
	switch m.page {
	case one:
		want(m.chosen)
	case list:
		for _, e := range m.visible(layout(height).rows) {
			if e.Waiters > 0 || e.Leases > 1 {
				want(e.Key)
			}
		}
	}
	return keys
}

// visible are the rows on the screen, which has room for n.
func (m *Model) visible(n int) []*entry {
	m.first = max(0, min(m.first, m.pos, len(m.rows)-n))
	m.first = max(m.first, m.pos-n+1)
	return m.rows[m.first:min(len(m.rows), m.first+n)]
}

// arrange filters and sorts. The cursor stays on its key, or where it was when that is gone.
func (m *Model) arrange() {
	m.rows = m.rows[:0]
	fits := matcher(m.filter)
	for i := range m.all {
		e := &m.all[i]
		if m.filter == "" || fits(e.shown) || e.holder != "" && fits(e.holder) {
			m.rows = append(m.rows, e)
		}
	}
	compare := columns[orders[m.sort]].compare
	slices.SortFunc(m.rows, func(a, b *entry) int {
		order := compare(a, b)
		if order == 0 {
			order = cmp.Compare(a.Key, b.Key)
		}
		if m.reversed {
			return -order
		}
		return order
	})
	if at := slices.IndexFunc(m.rows, func(e *entry) bool { return e.Key == m.chosen }); at >= 0 {
		m.pos = at
	} else if m.page != one {
		m.move(m.pos)
	}
}

// move puts the cursor on a row.
func (m *Model) move(to int) {
	m.pos, m.chosen = max(0, min(to, len(m.rows)-1)), ""
	if len(m.rows) > 0 {
		m.chosen = m.rows[m.pos].Key
	}
}

// people are the holders of the chosen key, and then its waiters.
func (m *Model) people() []hasp.Holder {
	info := m.looks[m.chosen].Info
	var all []hasp.Holder
	for _, l := range info.Holders {
		all = append(all, l.Holder)
	}
	return append(all, info.Queue...)
}

// Shown is a key, or another text of the store, as it is shown.
func Shown(text string) string { return plain.Line(driver.Printable(text)) }

// holderOf names the holder of a key, in a line.
func holderOf(i hasp.Info) string {
	s := plain.Line(i.Holder.String())
	if i.Leases > 1 {
		s += fmt.Sprintf(" +%d", i.Leases-1)
	}
	return s
}

// matcher says whether a text fits a filter: with * or ? as a whole, which stand for any
// characters and for one; else it has the filter in it.
func matcher(filter string) func(text string) bool {
	filter = strings.ToLower(filter)
	if !strings.ContainsAny(filter, "*?") {
		return func(text string) bool { return strings.Contains(strings.ToLower(text), filter) }
	}
	pattern := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(filter))
	whole := regexp.MustCompile("(?s)^" + pattern + "$")
	return func(text string) bool { return whole.MatchString(strings.ToLower(text)) }
}
