// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"fmt"
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Fences count microseconds of the wall clock, and rise by one where it stands
// still or goes back.
//
// Those that the store mints are above every fence given in the file, for any
// key. A proposed one must be above those of its key. The rows of a key
// remember its newest fence for a while after it was held; floors knows enough
// when they have been swept.

const (
	// overtake is how much later than a newer fence of another key a proposal
	// may arrive and still be granted, at least.
	overtake = 20 * time.Second
	// leap is how far above a key's newest fence a proposal may be, whatever
	// the wall clock says.
	leap = 1 << 20
)

// floors knows the fences of keys that nobody remembers any more: a proposed one
// of such a key must be above old.
//
// Every fence is at most newest when it is granted, and at most old after two
// turns. A turn is due every 20 seconds, and two at once after 40, by the clock
// that says for how long a key's fence is remembered: for more than 60. So when
// it is forgotten it is at most old for whoever proposes next.
type floors struct {
	newest int64 // the largest fence in the file
	old    int64
	mid    int64
	at     int64 // when the last turn was, on the clock of the store
}

// turned returns what f is by now. What a mere look turned need not be written.
func (f floors) turned(now time.Duration) floors {
	switch passed := now - time.Duration(f.at); {
	case passed >= 2*overtake:
		return f.alone(now)
	case passed >= overtake:
		return floors{newest: f.newest, old: f.mid, mid: f.newest, at: int64(now)}
	}
	return f
}

// alone returns what f is when no key is remembered.
func (f floors) alone(now time.Duration) floors {
	return floors{newest: f.newest, old: f.newest, mid: f.newest, at: int64(now)}
}

// newest is the largest fence of the key that is remembered.
func (v view) newest() uint64 { return uint64(max(v.gone, v.holder.fence)) }

// before is the fence of others that one in this mode must be above: those who share a
// key need no order among themselves.
func (v view) before(mode driver.Mode) uint64 {
	if mode == driver.Shared {
		return uint64(v.wrote)
	}
	return v.newest()
}

// floor is what a proposed fence must be above.
func (v view) floor(mode driver.Mode, now reading) uint64 {
	return max(v.before(mode), uint64(v.head.turned(now.up).old))
}

// tooFar says whether r proposes a fence that uses up more numbers than a client
// with a good clock would.
func (v view) tooFar(r driver.VoteRequest, now reading) bool {
	return r.Proposal > math.MaxInt64 || r.Proposal > max(uint64(now.wall+driver.MaxFenceSkew.Microseconds()), v.floor(r.Mode, now)+leap)
}

// acceptable says whether the fence that r proposes may be granted with a key
// that is free.
func (v view) acceptable(r driver.VoteRequest, now reading) bool {
	switch {
	case r.Proposal == 0:
		return true
	case v.tooFar(r, now):
		return false
	case r.Restore:
		return r.Proposal >= v.before(r.Mode)
	}
	return r.Proposal > v.floor(r.Mode, now)
}

// raises says whether the holder asks for another fence than it has.
func (v view) raises(r driver.VoteRequest) bool {
	return r.Proposal != 0 && r.Raise && !r.Restore && !r.Convert && r.Proposal != uint64(v.own.fence)
}

// raisable says whether the holder may have the fence that it asks for.
func (v view) raisable(r driver.VoteRequest, now reading) bool {
	return !v.raises(r) || r.Proposal > uint64(v.own.fence) && !v.tooFar(r, now)
}

// choose gives a proposed fence, or mints one.
func (t *tx) choose(v *view, r driver.VoteRequest) (fence int64, fences int, err error) {
	fences = max(r.Fences, 1)
	switch newest := max(v.newest(), v.floor(r.Mode, t.reading)); {
	case r.Proposal == 0:
		fence, err = t.mint(v, r.Key, fences)
		return fence, fences, err
	case r.Restore || r.Proposal <= newest:
		fences = 1
	default:
		fences = int(min(uint64(fences), r.Proposal-newest))
	}
	return t.take(int64(r.Proposal)), fences, nil
}

// mint returns the last of the next n fences: larger than every earlier one in
// this database whatever the clock shows, and than those of a file that was
// deleted as long as the wall clock is not behind.
//
// Microseconds reach the end of the numbers in 290,000 years: who stands there, or
// below zero, was put there by hand.
func (t *tx) mint(v *view, key string, n int) (int64, error) {
	newest := max(t.head.newest, int64(v.newest()))
	if t.head.newest < 0 || newest > math.MaxInt64-int64(n) {
		return 0, &storeError{class: driver.ClassMisconfigured,
			err: fmt.Errorf("no fence for the key %q: the file's largest is %d, and none that is larger can be given", key, newest),
			advice: "hasp_meta.fence, or that of the key, was changed by hand, or is damaged: end the programs that use the file, " +
				"delete it with its -journal, and it is made anew"}
	}
	return t.take(max(newest+1, t.wall) + int64(n-1)), nil
}

// take notes a fence that is granted.
func (t *tx) take(fence int64) int64 {
	t.head.floors = t.head.turned(t.up)
	t.head.newest = max(t.head.newest, fence)
	return fence
}
