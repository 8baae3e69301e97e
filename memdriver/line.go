// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// entry is all there is about a key that is held or waited for, or was a short
// while ago.
type entry struct {
	key    string
	holder *place    // nil: free, and then nobody waits, unless the store is held back
	line   []*place  // live places in order of arrival
	free   time.Time // of a free key: since when
	// abandoned: the last holder let its lease expire.
	abandoned bool
	newest    uint64 // the largest fence granted, 0: none
}

// place is one owner's: a place in line, and then the holder's.
type place struct {
	id    ownerKey
	since time.Time // of arrival, then of the grant
	until time.Time // when the place, or the lease, is over
	claim time.Duration

	fence     uint64
	claimed   bool // false: handed over, and the owner has not been seen since
	abandoned bool // of the holder: the one before it did not release
	lapsed    bool // let one handoff go by
	patience  time.Time
}

func (p *place) clone() *place {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// extend moves the end of a lease or a place, never to an earlier moment.
func (p *place) extend(until time.Time) {
	if until.After(p.until) {
		p.until = until
	}
}

func (p *place) holderInfo() driver.Holder {
	return driver.Holder{Owner: p.id.owner, Label: p.id.label, Since: p.since}
}

func (p *place) granted(now time.Time, fences int) driver.Result {
	return driver.Result{Granted: true, Fence: p.fence, Fences: fences, TTL: p.until.Sub(now), Abandoned: p.abandoned}
}

// settled returns the entry of a key after everything that is over by now has
// taken its effect.
func (s *Store) settled(key string, now time.Time) *entry {
	e := s.keys[key]
	if e == nil {
		e = &entry{key: key}
		s.keys[key] = e
	}
	e.line = slices.DeleteFunc(e.line, func(p *place) bool { return !p.until.After(now) })
	var lapsed *place
	if h := e.holder; h != nil && !h.until.After(now) {
		e.vacate(h.until)
		e.abandoned = h.claimed || h.abandoned
		if !h.claimed && !h.lapsed && h.patience.After(now) {
			lapsed = h
		}
	}
	s.handOn(e, now)
	if lapsed != nil {
		// A claim that lapsed keeps its place once: the next in line has the
		// key instead, and this one is the first after it.
		lapsed.lapsed, lapsed.until = true, lapsed.patience
		e.line = slices.Insert(e.line, 0, lapsed)
		s.handOn(e, now)
	}
	return e
}

// handOn makes the first in line the holder of a key that is free, for as long
// as a claim may take, and tells it.
func (s *Store) handOn(e *entry, now time.Time) {
	if e.holder != nil || len(e.line) == 0 || !s.voting() {
		return
	}
	p := e.line[0]
	e.leave(0)
	p.patience = p.until
	p.since, p.until = now, now.Add(p.claim) // its fence comes with the claim
	e.install(p)
	s.hint(p.id)
}

// vacate takes the key from its holder.
func (e *entry) vacate(at time.Time) { e.holder, e.free = nil, at }

func (e *entry) install(p *place) {
	p.abandoned, e.abandoned = e.abandoned, false
	e.holder = p
}

// forget drops an entry that says nothing any more.
func (s *Store) forget(e *entry, now time.Time) {
	if e.holder == nil && len(e.line) == 0 && !s.remembered(e, now) {
		s.fences.turn(micros(now))
		delete(s.keys, e.key)
	}
}

// sweep forgets what is over on keys that nobody asks for any more. It looks
// at everything each time that the amount has doubled, so that it costs
// little for each request.
func (s *Store) sweep(now time.Time) {
	if len(s.keys)+len(s.tombs) < s.sweepAt {
		return
	}
	for id, until := range s.tombs {
		if !until.After(now) {
			delete(s.tombs, id)
		}
	}
	for key := range s.keys {
		s.forget(s.settled(key, now), now)
	}
	s.sweepAt = 2*(len(s.keys)+len(s.tombs)) + 64
}

// buried says whether an owner was released a short while ago.
func (s *Store) buried(id ownerKey, now time.Time) bool {
	until, ok := s.tombs[id]
	return ok && until.After(now)
}

// join puts r at the end of the line, or takes its sign of life.
func (e *entry) join(r driver.Request, now time.Time) {
	i := e.index(idOf(r))
	if i < 0 {
		i = len(e.line)
		e.line = append(e.line, &place{id: idOf(r), since: now, claim: min(r.Patience/2, claimLimit)})
	}
	e.line[i].extend(now.Add(r.Patience))
}

func (e *entry) leave(i int) { e.line = slices.Delete(e.line, i, i+1) }

func (e *entry) index(id ownerKey) int {
	return slices.IndexFunc(e.line, func(p *place) bool { return p.id == id })
}

// refuse describes what is in the way of r.
func (s *Store) refuse(e *entry, r driver.Request, now time.Time) driver.Result {
	res := driver.Result{Why: driver.Held}
	if r.Fence != 0 {
		res.Fence = s.floor(e)
	}
	if res.Ahead = e.index(idOf(r)); res.Ahead < 0 {
		res.Ahead = len(e.line)
	}
	if e.holder != nil {
		res.Holder = e.holder.holderInfo()
		res.Left = e.holder.until.Sub(now)
		res.RetryIn = e.retryIn(res.Ahead, now)
	}
	return res
}

// retryIn is when the place with so many before it may have the key without
// a hint.
func (e *entry) retryIn(ahead int, now time.Time) time.Duration {
	if ahead > 0 || e.holder == nil {
		return 0
	}
	return e.holder.until.Sub(now)
}
