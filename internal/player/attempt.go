// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import "cmp"

// Attempt is one order of a client, as far as its first key goes, and when each of its events came; 0: it did not.
type Attempt struct {
	By     *Member
	N      int // of the orders of By, from 1
	Key    string
	Shared bool
	Limit  int // of holders at the same time; 0: any number
	Fence  uint64

	Asked, Queued, Granted, Failed Mono
	Renewed                        Mono // first
	Lowered, Ended, Gone           Mono
	Told                           bool // the holder was told that its lease had ended
	Away                           bool // its process was stopped while it waited
}

// order is the order of a client that an attempt is about.
type order struct {
	by *Member
	n  int
}

// Waits reports whether Lock has not returned.
func (a *Attempt) Waits() bool { return a.Granted == 0 && a.Failed == 0 }

// note notes an event of an attempt.
func (b *Book) note(m *Member, e *Event) {
	if e.What == Asked {
		m.Latest = &Attempt{By: m, N: e.N, Key: e.Key, Shared: e.Shared, Limit: m.Order.Slots, Asked: e.At, Away: m.Paused}
		b.orders[order{m, e.N}] = m.Latest
		b.Attempts = append(b.Attempts, m.Latest)
		return
	}
	a := b.orders[order{m, e.N}]
	if a == nil || a.Key != e.Key {
		return
	}
	switch e.What {
	case Waiting:
		a.Queued = e.At
	case Granted:
		a.Granted, a.Fence = e.At, e.Fence
	case Failed:
		a.Failed = e.At
	case Renewed:
		a.Renewed = cmp.Or(a.Renewed, e.At)
	case Shares:
		if e.Err == "" {
			a.Lowered = e.At
		}
	case Ended:
		a.Ended, a.Told = e.At, e.Closed != 0
	case Gone:
		a.Gone = cmp.Or(a.Gone, e.At)
	}
}
