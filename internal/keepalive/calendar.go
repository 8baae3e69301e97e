// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package keepalive

import (
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
	number := e.next >> pageBits
	c.pages[number] = append(c.pages[number], m)
	e.index = len(c.pages[number])
	c.n++
}

// remove takes out the member that was added with an entry, and returns it.
func (c *calendar) remove(e *Entry) Member {
	number := e.next >> pageBits
	page := c.pages[number]
	m, last := page[e.index-1], len(page)-1
	page[e.index-1] = page[last]
	page[last].entry().index = e.index
	page[last] = nil
	if c.pages[number] = page[:last]; last == 0 {
		delete(c.pages, number)
	}
	e.index = 0
	c.n--
	return m
}

// take takes out all on the pages up to that time, the most urgent pages first.
func (c *calendar) take(upTo time.Duration) (taken []Member) {
	var numbers []time.Duration
	last := upTo >> pageBits
	if last-c.from < time.Duration(len(c.pages)) {
		for number := c.from; number <= last; number++ {
			numbers = append(numbers, number)
		}
	} else { // after a pause, or for ever
		for number := range c.pages {
			if number <= last {
				numbers = append(numbers, number)
			}
		}
		slices.Sort(numbers)
	}
	for _, number := range numbers {
		taken = append(taken, c.pages[number]...)
		delete(c.pages, number)
	}
	for _, m := range taken {
		m.entry().index = 0
	}
	c.n -= len(taken)
	return taken
}

// first is when the first look is due, or most if none is before.
func (c *calendar) first(most time.Duration) time.Duration {
	for number := c.from; number <= most>>pageBits; number++ {
		for _, m := range c.pages[number] {
			most = min(most, m.entry().next)
		}
	}
	return most
}
