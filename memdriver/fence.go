// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Fences count microseconds: by the clock, so that a new Store goes on above
// those of an older one.

const (
	// overtake is how much later than a newer proposal for another key a
	// proposal may arrive and still be granted, at least.
	overtake = int64(20 * time.Second / time.Microsecond)
	// leap is how far above a key's newest fence a proposal may be, whatever the
	// clock says.
	leap = 1 << 20
	// remembers is for how long what is known of forgotten keys is, once the clock has
	// passed it. On a real node that takes memory.
	remembers = uint64(12 * time.Hour / time.Microsecond)
)

// floors bounds the fences of keys that are no longer remembered: a new fence of
// such a key must be above old, and above minted.
//
// Every fence granted for a proposal is at most cur, and at most old after two
// turns. A turn comes every 20 seconds, so that a proposal that was overtaken by
// one for another key is not refused because of it; and no key is forgotten
// before its fence is at most old.
type floors struct {
	minted        uint64 // the largest that the store chose itself
	old, mid, cur uint64
	at            uint64 // when the last turn was, 0: never
	until         uint64 // when all of it but minted is forgotten
}

// turn is called before anything is compared with old, and before a key is
// forgotten. A clock that was stepped only makes turns more frequent.
func (f *floors) turn(now uint64) {
	passed := int64(now - f.at)
	switch {
	case now >= f.until:
		f.rise(now)
	case passed >= 2*overtake:
		f.rise(f.cur)
	case passed >= overtake || passed < 0:
		f.old, f.mid = f.mid, f.cur
	default:
		return
	}
	f.at = now
	f.keep(now)
}

func (f *floors) keep(now uint64) { f.until = max(now, f.cur) + remembers }

// rise makes a fence the least that the next one of any key must be above.
func (f *floors) rise(to uint64) {
	f.cur = max(f.cur, to)
	f.old, f.mid = f.cur, f.cur
}

// above is the fence of others that a new holder's must exceed: those that share
// a key need no order among themselves.
func (e *entry) above(mode driver.Mode) uint64 {
	if mode == driver.Shared {
		return e.wrote
	}
	return e.newest
}

// floor is what a proposed fence of the key must be above.
func (s *Store) floor(e *entry, mode driver.Mode) uint64 {
	return max(e.above(mode), s.fences.old, s.fences.minted)
}

// mint returns the last of the next n fences for a key, which are above all.
func (s *Store) mint(e *entry, mode driver.Mode, now time.Time, n int) uint64 {
	clock := micros(now)
	s.fences.turn(clock)
	fence := max(s.floor(e, driver.Exclusive)+1, clock) + uint64(n-1)
	e.granted(fence, mode)
	s.fences.minted = fence
	return fence
}

// propose takes the fence that r proposes for a new grant, and as many below it as
// r asks for and no owner had. It returns how many there are in all, 0 when the
// proposal cannot be granted.
func (s *Store) propose(e *entry, r *voting.VoteRequest, now time.Time) (fences int) {
	s.fences.turn(micros(now))
	floor := s.floor(e, r.Mode)
	if s.tooFar(e, r, now) || r.Proposal <= floor {
		return 0
	}
	fences = max(1, int(min(int64(r.Fences), int64(r.Proposal-max(floor, e.newest)))))
	s.take(e, r, now)
	return fences
}

// tooFar reports whether a proposal is further ahead than a client with a good
// clock would make it.
func (s *Store) tooFar(e *entry, r *voting.VoteRequest, now time.Time) bool {
	skew := uint64(voting.MaxFenceSkew / time.Microsecond)
	return r.Proposal > max(micros(now)+skew, s.floor(e, r.Mode)+leap)
}

// take remembers a proposed fence that is granted.
func (s *Store) take(e *entry, r *voting.VoteRequest, now time.Time) {
	e.granted(r.Proposal, r.Mode)
	s.fences.cur = max(s.fences.cur, r.Proposal)
	s.fences.keep(micros(now))
}

func (e *entry) granted(fence uint64, mode driver.Mode) {
	e.newest = max(e.newest, fence)
	if mode == driver.Exclusive {
		e.wrote = max(e.wrote, fence)
	}
}

// remembered reports whether the newest fence of a free key is still needed: for a
// while after the key was held, counted from the moment that the fence encodes when
// that is later.
func (s *Store) remembered(e *entry, now time.Time) bool {
	span := uint64(max(memory, s.options.MaxTTL) / time.Microsecond)
	return micros(now) < max(micros(e.free), e.newest)+span
}

// micros is a moment as a fence, at least 1.
func micros(t time.Time) uint64 { return uint64(min(max(t.UnixMicro(), 1), math.MaxInt64/2)) }
