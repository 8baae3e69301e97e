// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/people"
)

// query is what a viewer wants to see of the list.
type query struct {
	Text  string // in the key, the holder, the owner or the reason; empty: anything
	State string // all, waited, foreign, endless
	Sort  string // key, held, waiters, left
	Page  int    // from 1
	Size  int
}

const (
	defaultSize = 50
	mostSize    = 200
)

var (
	states = []string{"all", "waited", "foreign", "endless"}
	sorts  = []string{"key", "held", "waiters", "left"}
)

func parseQuery(v url.Values) (query, error) {
	q := query{Text: v.Get("q"), State: cmp.Or(v.Get("state"), states[0]), Sort: cmp.Or(v.Get("sort"), sorts[0]), Page: 1, Size: defaultSize}
	if !slices.Contains(states, q.State) {
		return q, errors.New("state is one of " + strings.Join(states, ", "))
	}
	if !slices.Contains(sorts, q.Sort) {
		return q, errors.New("sort is one of " + strings.Join(sorts, ", "))
	}
	if utf8.RuneCountInString(q.Text) > driver.MaxKey {
		return q, fmt.Errorf("q has more than %d characters", driver.MaxKey)
	}
	var err error
	if q.Page, err = number(v, "page", 1, 1_000_000); err != nil {
		return q, err
	}
	q.Size, err = number(v, "size", defaultSize, mostSize)
	return q, err
}

func number(v url.Values, name string, unset, most int) (int, error) {
	text := v.Get(name)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%s is a number from 1 to %d", name, most)
	}
	return n, nil
}

// link returns the query of another page.
func (q query) link(page int) string {
	v := url.Values{}
	for name, value := range map[string][2]string{"q": {q.Text}, "state": {q.State, states[0]}, "sort": {q.Sort, sorts[0]},
		"page": {strconv.Itoa(page), "1"}, "size": {strconv.Itoa(q.Size), strconv.Itoa(defaultSize)}} {
		if value[0] != value[1] {
			v.Set(name, value[0])
		}
	}
	return "?" + v.Encode()
}

// views are the orders in which a snapshot is shown; many look at the same.
type views struct {
	mu  sync.Mutex
	all map[query][]*entry
}

// mostViews bounds how many orders are kept beside a snapshot.
const mostViews = 32

// view returns the entries that q wants, of all pages, in its order.
func (s *snapshot) view(q query) []*entry {
	q.Page, q.Size = 0, 0
	if q == (query{State: states[0], Sort: sorts[0]}) {
		return s.entries
	}
	s.views.mu.Lock()
	defer s.views.mu.Unlock() // a request for the same view waits for it
	if v, ok := s.views.all[q]; ok {
		return v
	}
	var v []*entry
	for _, e := range s.entries {
		if q.wants(e) {
			v = append(v, e)
		}
	}
	slices.SortStableFunc(v, orders[q.Sort]) // of equals, by key
	if s.views.all == nil {
		s.views.all = map[query][]*entry{}
	}
	if len(s.views.all) < mostViews {
		s.views.all[q] = v
	}
	return v
}

var orders = map[string]func(a, b *entry) int{
	"key":     func(a, b *entry) int { return strings.Compare(a.Key, b.Key) },
	"held":    func(a, b *entry) int { return last(since(a.Holder), since(b.Holder)) }, // longest first
	"waiters": func(a, b *entry) int { return cmp.Compare(b.Waiters, a.Waiters) },
	"left":    func(a, b *entry) int { return last(a.until, b.until) }, // soonest first
}

// last puts what is not known behind all that is.
func last(a, b time.Time) int {
	if a.IsZero() != b.IsZero() {
		if a.IsZero() {
			return 1
		}
		return -1
	}
	return a.Compare(b)
}

func since(h hasp.Holder) time.Time { return h.Describe().Since }

func (q query) wants(e *entry) bool {
	of := true
	switch q.State {
	case "waited":
		of = e.Waiters > 0
	case "foreign":
		of = e.Holder.Foreign
	case "endless":
		of = e.Held && e.Left < 0
	}
	if !of || q.Text == "" {
		return of
	}
	if strings.Contains(e.Key, q.Text) || strings.Contains(driver.Printable(e.Key), q.Text) || e.Holder.Owner == q.Text {
		return true
	}
	text := strings.ToLower(q.Text)
	l := e.Holder.Describe()
	return strings.Contains(strings.ToLower(people.Name(e.Holder)), text) || strings.Contains(strings.ToLower(driver.Printable(l.Reason)), text)
}

// page returns the entries of one page, and how many pages there are: at least one.
func (q query) page(all []*entry) (entries []*entry, pages int) {
	pages = max(1, (len(all)+q.Size-1)/q.Size)
	from := min((q.Page-1)*q.Size, len(all))
	return all[from:min(from+q.Size, len(all))], pages
}

// row is a key as the list shows it: all texts are ready to be shown.
type row struct {
	ID      string `json:"id"` // the key as it stands in a path
	Key     string `json:"key"`
	Mode    string `json:"mode"`
	Holder  string `json:"holder"`
	Since   int64  `json:"since"` // in ms since 1970; 0: not known
	Until   int64  `json:"until"` // the same; -1: never; 0: not known
	Fence   string `json:"fence"` // JavaScript has no integers of 64 bits
	Waiters int    `json:"waiters"`
	Reason  string `json:"reason"`
	Mark    string `json:"mark"`  // what else there is to say: foreign, its process has ended, never ends, long wait
	Needs   bool   `json:"needs"` // a person
}

func toRow(e *entry) row {
	r := row{ID: encodeKey(e.Key), Key: driver.Printable(e.Key), Waiters: e.Waiters, Mode: "–", Holder: "nobody", Fence: fence(e.Fence)}
	if r.Mark, r.Needs = e.needs, e.needs != ""; !e.Held {
		return r
	}
	l := e.Holder.Describe()
	r.Mode, r.Holder, r.Since, r.Reason = people.ModeOf(e.Info), people.Name(e.Holder), millis(l.Since), driver.Printable(l.Reason)
	if e.Leases > 1 {
		r.Holder += fmt.Sprintf(" and %d more", e.Leases-1)
	}
	if r.Until = millis(e.until); e.Left < 0 {
		r.Until = -1
	}
	if e.Holder.Foreign {
		r.Mark = strings.TrimSuffix("foreign, "+e.needs, ", ")
	}
	return r
}

func markOf(h hasp.Holder) string {
	switch {
	case h.Foreign:
		return "foreign"
	case people.Kept(h):
		return "kept on purpose"
	case people.Ended(h):
		return "its process has ended"
	}
	return ""
}

func fence(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// millis returns a time in ms since 1970; 0 for none, and for a time that a label cannot mean.
func millis(t time.Time) int64 {
	if t.IsZero() || t.Year() < 1970 || t.Year() > 9999 {
		return 0
	}
	return t.UnixMilli()
}

// person is a holder or a waiter of a key, as the page of the key shows it.
type person struct {
	Owner  string `json:"owner"` // empty when it cannot be broken
	Who    string `json:"who"`
	How    string `json:"how"`
	Since  int64  `json:"since"` // as in row
	Until  int64  `json:"until"`
	Fence  string `json:"fence"`
	Reason string `json:"reason"`
	Mark   string `json:"mark"`
}

func toPerson(h hasp.Holder) person {
	l := h.Describe()
	how := h.Mode.String()
	if h.Limit > 0 {
		how = fmt.Sprintf("one of %d", h.Limit)
	}
	owner := h.Owner
	if h.Foreign || !driver.ValidOwner(owner) {
		owner = ""
	}
	return person{Owner: owner, Who: people.Name(h), How: how, Since: millis(l.Since), Reason: driver.Printable(l.Reason), Mark: markOf(h)}
}

// lockView is all about one key, as its page shows it.
type lockView struct {
	ID      string   `json:"id"`
	Key     string   `json:"key"`
	State   string   `json:"state"`
	Holders []person `json:"holders"`
	Waiters int      `json:"waiters"`
	Queue   []person `json:"queue"` // the first mostQueue
	ByHand  []string `json:"by_hand"`
	Free    []string `json:"free_by_hand"`
}

func toLockView(e *entry) lockView {
	v := lockView{ID: encodeKey(e.Key), Key: driver.Printable(e.Key), State: "free", Holders: []person{}, Queue: []person{}, Waiters: e.Waiters, ByHand: []string{}, Free: []string{}}
	for i, l := range e.Holders {
		p := toPerson(l.Holder)
		if l.Holder.Limit > 0 {
			p.How = fmt.Sprintf("slot %d of %d", l.Holder.Slot, l.Holder.Limit)
		}
		p.Fence = fence(l.Fence)
		if p.Until = millis(e.untils[i]); l.Left < 0 {
			p.Until = -1
		}
		v.Holders = append(v.Holders, p)
	}
	switch {
	case e.Leases > 1:
		v.State = fmt.Sprintf("held by %d", e.Leases)
	case e.Held:
		v.State = "held"
	}
	for _, h := range e.Queue[:min(len(e.Queue), mostQueue)] {
		v.Queue = append(v.Queue, toPerson(h))
	}
	for _, s := range e.LookCommands {
		v.ByHand = append(v.ByHand, driver.Printable(s))
	}
	for _, s := range e.FreeCommands {
		v.Free = append(v.Free, driver.Printable(s))
	}
	return v
}
