// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package keepalive

import (
	"maps"
	"slices"
	"time"
)

// A page of the calendar is for 2 to the power of pageBits nanoseconds, 34 ms: all that is due at a look fills a few pages, and
// a page is short enough to be searched.
const pageBits = 25

// forever is after every look.
const forever = time.Duration(1<<63 - 1)

// calendar has members by when to look at them, each on the page of its time. A lease among many moves
// twice for each renewal: to another page that costs the same however many there are.
type calendar struct {
	pages map[time.Duration][]Member // by their number, the time in pages
	from  time.Duration              // no page is before this one
	n     int                        // members
}

// begin has the pages begin at now: what is due before is on the first one. Nothing is before it any more.
func (c *calendar) begin(now time.Duration) { c.from = now >> pageBits }

// add adds a member that is not in, to be looked at then.
func (c *calendar) add(m Member, next time.Duration) {
	if c.pages == nil {
		c.pages = map[time.Duration][]Member{}
	}
	e := m.entry()
	e.next = max(next, c.from<<pageBits)
	page := append(c.pages[e.next>>pageBits], m)
	c.pages[e.next>>pageBits], e.index = page, len(page)
	c.n++
}

// remove takes out the member that was added with an entry, and returns it.
func (c *calendar) remove(e *Entry) Member {
	page := c.pages[e.next>>pageBits]
	last := len(page) - 1
	m := page[e.index-1]
	page[e.index-1] = page[last]
	page[last].entry().index = e.index
	page[last] = nil
	c.keep(e.next>>pageBits, page[:last])
	e.index = 0
	c.n--
	return m
}

// keep has only these left on a page.
func (c *calendar) keep(page time.Duration, rest []Member) {
	if len(rest) == 0 {
		delete(c.pages, page)
	} else {
		c.pages[page] = rest
	}
}

// take takes out the members to look at up to then, the earliest pages first.
func (c *calendar) take(upTo time.Duration) (taken []Member) {
	var pages []time.Duration
	if upTo == forever {
		pages = slices.Sorted(maps.Keys(c.pages))
	}
	for page := c.from; upTo < forever && page <= upTo>>pageBits; page++ {
		pages = append(pages, page)
	}
	for _, page := range pages {
		all := c.pages[page]
		rest := all[:0]
		for _, m := range all {
			if e := m.entry(); e.next > upTo {
				rest = append(rest, m)
				e.index = len(rest)
			} else {
				taken = append(taken, m)
				e.index = 0
			}
		}
		clear(all[len(rest):])
		c.keep(page, rest)
	}
	c.n -= len(taken)
	return taken
}

// first is when the first look is due, or most if none is before.
func (c *calendar) first(most time.Duration) time.Duration {
	for page := c.from; page <= most>>pageBits; page++ {
		for _, m := range c.pages[page] {
			most = min(most, m.entry().next)
		}
	}
	return most
}

// all returns the members, in no order.
func (c *calendar) all() (all []Member) {
	for _, page := range c.pages {
		all = append(all, page...)
	}
	return all
}
