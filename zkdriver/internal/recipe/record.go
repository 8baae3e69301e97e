// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"strings"
	"time"
)

// State is what a session has of an owner.
type State uint8

// The states. Whatever a node is, it may be given up, deleted by another, or replaced: then the state is Nothing again.
const (
	Nothing State = iota
	Made          // a node may have been made, and is not known to be more
	Place         // a waiter's, which stays although a Try was refused
	Handed        // a place whose turn has come, as its owner was told: it may work already, and has neither asked since nor renewed
	Held          // a lease that was granted here
	Late          // given up, or released: a request of which the answer was lost may still make a node, so it is to be looked for once more
)

// Leased reports whether an owner may work.
func (s State) Leased() bool { return s == Held || s == Handed }

// End is how far a node is from its end.
type End uint8

// The ends.
const (
	Stays   End = iota
	Leaving     // this session is deleting or replacing it for a request: that it goes is no news
	Ending      // it was not renewed, and is being given up
)

// Record is what a session has of one owner: a node, or perhaps one, until a time at which that is given up unless its owner asks again.
// The zero value has nothing.
type Record struct {
	Known
	End     End
	Until   time.Time
	Doubted bool // a create had no answer: it may be carried out still, beside the node that is known
}

// Live reports whether the store may have something of it.
func (r *Record) Live() bool { return r.Name != "" || r.Unsure }

// Begin notes that a node may be made. It is given up at a time, unless it lasts longer already.
func (r *Record) Begin(until time.Time) {
	if !r.Live() {
		r.Until = until
	}
	if !r.Live() || r.State == Late {
		r.State = Made
	}
	r.Unsure = true
	r.Prolong(until)
}

// Prolong puts off when it is given up, and reports whether it did.
func (r *Record) Prolong(until time.Time) bool {
	later := until.After(r.Until)
	if later {
		r.Until = until
	}
	return later
}

// Find notes the node, with its data.
func (r *Record) Find(n Node, data Content) {
	if r.State == Late {
		r.State = Made
	}
	r.Name, r.Kind, r.Fence, r.TTL = strings.Clone(n.Name), n.Kind, data.Fence, data.TTL
	r.Unsure, r.End = false, Stays
}

// Unname notes that the node may have its name or another: the answer to a request that changes it was lost.
func (r *Record) Unname() {
	if r.Live() {
		r.Name, r.Unsure, r.Doubted = "", true, true
	}
}

// Keep makes the node a place in the queue until a time.
func (r *Record) Keep(until time.Time) {
	if r.State == Made {
		r.State = Place
	}
	r.Until = until
}

// Hand makes a place whose turn has come a lease for as long as the place lasts.
func (r *Record) Hand() { r.State = Handed }

// Grant makes the node a lease until a time, and reports whether this is the first that is known of it. stood: the node was there
// before, so that it may have been a lease of another client.
func (r *Record) Grant(until time.Time, stood bool) (first bool) {
	if !r.Live() {
		return false
	}
	first = r.State != Held && !stood
	if first || r.State == Place || r.State == Handed {
		r.Until = until // a place may have had more time
	}
	r.Prolong(until)
	r.State = Held
	return first
}

// Release notes that the owner was released, and reports whether that is all: where a node may come still, it is to be looked for
// once more at a time.
func (r *Record) Release(again time.Time) (done bool) {
	if !r.Live() || r.Name != "" && !r.Doubted {
		return true
	}
	r.Name, r.Unsure = "", true
	r.State, r.End, r.Until = Late, Stays, again
	return false
}

// Due reports whether it is to be given up now; else left is how long that has time, 0: for ever.
func (r *Record) Due(now time.Time) (due bool, left time.Duration) {
	if !r.Live() || r.End == Ending {
		return false, 0
	}
	left = max(r.Until.Sub(now), 0)
	return left == 0, left
}

// GiveUp notes that what was to be found of it was deleted, and reports whether that is all, as Release does, and whether it ends a lease.
func (r *Record) GiveUp(again time.Time) (done, held bool) {
	held = r.State.Leased()
	return r.State == Late || r.Release(again), held
}

// Sign is a sign of life from the owner of a lease, or (place) of a place. It puts off when that is given up; ok is false when
// it is the other of these, or is being given up.
func (r *Record) Sign(place bool, until time.Time) (ok bool) {
	if r.End == Ending || r.State.Leased() == place {
		return false
	}
	r.Prolong(until)
	return true
}

// Renewed notes that a lease was renewed until a time, and a TTL that was written to its node, 0: none.
func (r *Record) Renewed(name string, until time.Time, ttl time.Duration) {
	if r.Name == name && r.End != Ending {
		r.Prolong(until)
		r.State = Held
		r.TTL = max(r.TTL, ttl)
	}
}
