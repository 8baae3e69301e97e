// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package lifetime

import "github.com/hasplock/hasp/internal/clock"

// State is what has become of a lease.
type State uint8

const (
	Held       State = iota // asked for, or granted, and not ended; used says whether a caller has it
	Converting              // and it counts as shared, which the store may not know yet
	Kept                    // the store granted it, and no caller has it: it waits for its turn
	Passing                 // its last lease was released, for the next turn if there is one; else Released follows at once
	Released                // its last lease was released, and the store is told
	Lost                    // it ended before that: by the clock, or by the store's answer
	Closed                  // its client was closed
	states                  // how many there are
)

// next says which states a state can become. Lost and closed are for good: a renewal that succeeds later
// does not bring a lease back, since the work under it was told to stop.
var next = [states][states]bool{
	Held:       {Converting: true, Passing: true, Released: true, Lost: true, Closed: true},
	Converting: {Held: true, Converting: true, Passing: true, Released: true, Lost: true, Closed: true},
	Kept:       {Held: true, Released: true, Lost: true, Closed: true},
	Passing:    {Released: true},
}

// stands says that the key may be relied on until the deadline.
func (s State) stands() bool { return s <= Kept }

// become changes the state, and says whether it could.
func (l *Lifetime) become(s State) bool {
	if !next[l.state][s] {
		return false
	}
	l.state = s
	return true
}

// Follow returns the lifetime of the next turn on the same grant, with a fence of its own. False: the grant is not fit
// for it, since its renewal is in trouble, or it was extended, which was for one turn.
func (l *Lifetime) Follow(now clock.Instant) (follower Lifetime, ok bool) {
	if l.state != Passing || l.longest > l.terms.TTL || l.renewing || !l.healthy(now) {
		return follower, false
	}
	follower = New(l.terms, now, Facts{Settled: l.Settled, Marked: l.Marked, Clean: l.used || l.Clean})
	follower.start, follower.valid, follower.renewAt = l.start, l.valid, l.renewAt
	follower.wanted = l.wanted
	return follower, true
}

// Keep has a follower wait for its caller.
func (l *Lifetime) Keep() { l.state, l.vacant = Kept, true }

// Vacant says that no caller has had it since it was kept.
func (l *Lifetime) Vacant() bool { return l.vacant }

// Take gives a kept lease to a caller, at once or (not use) together with other keys. False:
// it is not kept any more, or has to go back.
func (l *Lifetime) Take(now clock.Instant, use bool) bool {
	if l.state != Kept || !l.fit(now) {
		return false
	}
	l.become(Held)
	l.born, l.used, l.vacant = now, use, false
	return true
}

// Stale says that a kept lease has to go back.
func (l *Lifetime) Stale(now clock.Instant) bool {
	return l.state == Kept && (now.Sub(l.born) >= l.terms.Keep || !l.fit(now))
}

// fit says that a kept lease may still be taken: its renewal is not in trouble, and nothing waits elsewhere.
func (l *Lifetime) fit(now clock.Instant) bool { return !l.wanted && l.healthy(now) }

// Wanted says that a waiter stands in the queue.
func (l *Lifetime) Wanted() bool { return l.wanted }
