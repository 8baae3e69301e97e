// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// A fence that is proposed (see voting.Node) must be above those of its key. The rows of a key
// remember its newest fence for a while after it was held; Floors knows enough when they have
// been swept.

const (
	// Overtake is how much later than a newer fence of another key a proposal may arrive and
	// still be granted, at least.
	Overtake = 20 * time.Second
	// leap is how far above a key's newest fence a proposal may be, whatever the wall clock
	// says.
	leap = 1 << 20
)

// Floors knows the fences of keys that are remembered no more: a proposed one of such a key must
// be above Old.
//
// Every fence is at most Newest when it is granted, and at most Old after two turns. A turn is
// due every 20 seconds, and two at once after 40, by the clock that says for how long a key's
// fence is remembered: for more than 60. So when it is forgotten it is at most Old for the owner
// that proposes next.
type Floors struct {
	Newest int64 // the largest fence in the store
	Old    int64
	Mid    int64
	At     int64 // when the last turn was, on the store's clock
}

// Turned returns what f is by now. What a mere look turned need not be written.
func (f Floors) Turned(now time.Duration) Floors {
	switch passed := now - time.Duration(f.At); {
	case passed >= 2*Overtake:
		return f.Alone(now)
	case passed >= Overtake:
		return Floors{Newest: f.Newest, Old: f.Mid, Mid: f.Newest, At: int64(now)}
	}
	return f
}

// Alone returns what f is when no key is remembered.
func (f Floors) Alone(now time.Duration) Floors {
	return Floors{Newest: f.Newest, Old: f.Newest, Mid: f.Newest, At: int64(now)}
}

// Newest is the largest fence of the key that is remembered.
func (v *View) Newest() uint64 { return uint64(max(v.Gone, v.Holder.Fence)) }

// before is the fence of others that a fence in this mode must be above: those that share a key
// need no order among themselves.
func (v *View) before(mode driver.Mode) uint64 {
	if mode == driver.Shared {
		return uint64(v.Wrote)
	}
	return v.Newest()
}

// Floor is what a proposed fence must be above.
func (v *View) Floor(mode driver.Mode, now Now) uint64 {
	return max(v.before(mode), uint64(v.Floors.Turned(now.At).Old))
}

// tooFar reports whether r proposes a fence that uses up more numbers than a client with a good
// clock would.
func (v *View) tooFar(r voting.VoteRequest, now Now) bool {
	return r.Proposal > math.MaxInt64 || r.Proposal > max(uint64(now.Wall+voting.MaxFenceSkew.Microseconds()), v.Floor(r.Mode, now)+leap)
}

// acceptable reports whether the fence that r proposes may be granted with a key that is free.
func (v *View) acceptable(r voting.VoteRequest, now Now) bool {
	switch {
	case r.Proposal == 0:
		return true
	case v.tooFar(r, now):
		return false
	case r.Restore:
		return r.Proposal >= v.before(r.Mode)
	}
	return r.Proposal > v.Floor(r.Mode, now)
}

// raises reports whether the holder asks for another fence than it has.
func (v *View) raises(r voting.VoteRequest) bool {
	return r.Proposal != 0 && r.Raise && !r.Restore && !r.Convert && r.Proposal != uint64(v.Own.Fence)
}

// raisable reports whether the holder may have the fence that it asks for.
func (v *View) raisable(r voting.VoteRequest, now Now) bool {
	return !v.raises(r) || r.Proposal > uint64(v.Own.Fence) && !v.tooFar(r, now)
}
