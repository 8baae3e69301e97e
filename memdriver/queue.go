// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// entry is everything known of a key that is held or waited for, or was a short
// while ago.
type entry struct {
	key     string
	holders []*place  // in the order of their grants: one, or any number that share the key
	queue   []*place  // live places in order of arrival, the first of which cannot have the key now
	free    time.Time // of a free key: since when
	// abandoned: a holder did not release the key, and none that could repair came since.
	abandoned bool
	newest    uint64 // the largest fence granted, 0: none
	wrote     uint64 // the largest that was granted Exclusive
}

// place is one owner's: a place in the queue, and then a holder's.
type place struct {
	id    driver.ID
	mode  driver.Mode
	limit int       // 0: none
	since time.Time // of arrival, then of the grant
	until time.Time // when the place, or the lease, is over
	claim time.Duration

	fence     uint64
	slot      int
	claimed   bool // false: handed over, and not claimed yet
	enters    bool // as driver.TryRequest.Enters
	declined  bool // it said that it did not enter
	abandoned bool // of a holder: one before it did not finish
	persisted bool // of a holder: its lease does not end by itself, whatever until says
	skipped   bool // one handoff was not claimed: the next such costs the place
	late      bool // and it may have entered then
	patience  time.Time
	wanted    func() // of a holder: as RenewRequest.Wanted
	keeps     bool   // and as Keeps
}

func newPlace(c driver.Claim, now time.Time) *place {
	p := &place{id: c.ID(), mode: c.Mode, since: now}
	if c.Mode == driver.Shared {
		p.limit = c.Limit
	}
	return p
}

// clones returns places that change by themselves.
func clones(places []*place) []*place {
	places = slices.Clone(places)
	for i, p := range places {
		c := *p
		places[i] = &c
	}
	return places
}

// extend moves the end of a lease or a place, never to an earlier moment.
func (p *place) extend(until time.Time) {
	if until.After(p.until) {
		p.until = until
	}
}

func (p *place) holderInfo() driver.Holder {
	return driver.Holder{Owner: p.id.Owner, Label: p.id.Label, Since: p.since, Mode: p.mode, Limit: p.limit, Slot: p.slot}
}

func (p *place) granted(now time.Time, fences int) driver.Result {
	return driver.Result{Granted: true, Fence: p.fence, Fences: fences, TTL: p.until.Sub(now), Slot: p.slot, Abandoned: p.abandoned}
}

// settled returns the entry of a key, with everything that has expired by now
// applied.
func (s *Store) settled(key string, now time.Time) *entry {
	e := s.keys[key]
	if e == nil {
		e = &entry{key: key}
		s.keys[key] = e
	}
	e.queue = slices.DeleteFunc(e.queue, func(p *place) bool { return !p.until.After(now) })
	unclaimed := e.expire(now)
	s.handOn(e, now)
	if len(unclaimed) > 0 {
		// An owner that does not claim the key keeps its place once: the next in the
		// queue has the key instead, and this one is the first after it.
		e.queue = slices.Insert(e.queue, 0, unclaimed...)
		s.handOn(e, now)
	}
	return e
}

// expire ends the leases that have expired. It returns the places of the owners
// that did not claim the key and may wait again.
func (e *entry) expire(now time.Time) (unclaimed []*place) {
	var last time.Time
	e.holders = slices.DeleteFunc(e.holders, func(h *place) bool {
		if h.persisted || h.until.After(now) {
			return false
		}
		if h.until.After(last) {
			last = h.until
		}
		e.abandoned = e.abandoned || h.leaves(driver.EndUnfinished)
		if !h.claimed && !h.skipped && h.patience.After(now) {
			unclaimed = append(unclaimed, &place{id: h.id, mode: h.mode, limit: h.limit, since: h.since, until: h.patience, claim: h.claim,
				late: h.enters, skipped: true})
		}
		return true
	})
	if !last.IsZero() {
		e.free = last
	}
	return unclaimed
}

// handOn hands the key to the first in the queue, and to those after it that can
// share it, for as long as a claim may take, and gives them hints. A store that no client reaches keeps the key: a
// hint would not reach its waiter, which could not claim the key.
func (s *Store) handOn(e *entry, now time.Time) {
	for len(e.queue) > 0 && s.voting() && !s.unreachable && admits(e.holders, e.queue[0].mode, e.queue[0].limit) {
		p := e.queue[0]
		e.leave(0)
		p.patience = p.until
		p.since, p.until = now, now.Add(p.claim) // its fence comes with the claim, unless it may enter
		if p.enters {
			p.fence = s.mint(e, driver.Exclusive, now, 1)
		}
		e.install(p)
		var h driver.Hint
		if p.enters {
			h.Handover = driver.Handover{Fence: p.fence, At: s.at(now), TTL: p.claim, Abandoned: p.abandoned}
		}
		s.hint(p.id, h)
		s.look(e.key, p.until, now)
	}
}

// look sets the alarm of a key for the end of a claim time, when the store hands an
// unclaimed key on. The first in the queue gets a hint then, too: it does not know yet
// when the lease of the owner that claimed the key expires.
func (s *Store) look(key string, at, now time.Time) {
	a := s.alarms[key]
	switch {
	case a == nil:
		s.alarms[key] = &alarm{at, time.AfterFunc(at.Sub(now), func() { s.looked(key) })}
	case at.Before(a.at):
		a.at = at
		a.timer.Reset(at.Sub(now))
	}
}

// alarm is when a key is looked at again.
type alarm struct {
	at    time.Time
	timer *time.Timer
}

func (s *Store) looked(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alarms, key)
	now := s.now()
	e := s.settled(key, now)
	defer s.forget(e, now)
	if len(e.queue) == 0 {
		return
	}
	s.hint(e.queue[0].id, driver.Hint{})
	for _, h := range e.holders {
		if !h.claimed {
			s.look(key, h.until, now)
		}
	}
}

// vacate ends the lease of one holder.
func (e *entry) vacate(h *place, at time.Time, end driver.End) {
	e.abandoned = e.abandoned || h.leaves(end)
	e.holders = slices.DeleteFunc(e.holders, func(p *place) bool { return p == h })
	if len(e.holders) == 0 {
		e.free = at
	}
}

func (e *entry) install(p *place) {
	p.slot = slot(e.holders, p.limit)
	if p.abandoned = e.abandoned; !p.reads() {
		e.abandoned = false
	}
	e.holders = append(e.holders, p)
}

// forget drops an entry that has no information left.
func (s *Store) forget(e *entry, now time.Time) {
	if len(e.holders) == 0 && len(e.queue) == 0 && !s.remembered(e, now) {
		s.fences.turn(micros(now))
		delete(s.keys, e.key)
	}
}

// sweep drops what has expired on keys that are no longer asked for. It looks
// at everything each time that the amount has doubled, so that it costs little for
// each request.
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

// buried reports whether an owner was released a short while ago.
func (s *Store) buried(id driver.ID, now time.Time) bool {
	return s.tombs[id].After(now)
}

// join puts r at the end of the queue, or prolongs the place that it has.
func (s *Store) join(e *entry, r *driver.TryRequest, now time.Time) {
	i := e.index(r.ID())
	if i < 0 {
		i = len(e.queue)
		p := newPlace(r.Claim, now)
		p.claim = min(r.Patience/2, claimLimit)
		e.queue = append(e.queue, p)
		for _, h := range e.holders {
			if h.wanted != nil {
				s.told = append(s.told, h.wanted)
			}
		}
	}
	e.queue[i].extend(now.Add(r.Patience))
	e.queue[i].enters = r.Enters
}

// mayHaveEntered returns the owner's lease that it was handed and did not claim, also after the end of that lease, if the
// owner may have entered.
func (s *Store) mayHaveEntered(id driver.ID) *place {
	e := s.keys[id.Key]
	if e == nil {
		return nil
	}
	if h := e.holding(id); h != nil && h.enters && !h.claimed {
		return h
	}
	return nil
}

// at is a moment as Result.At has it.
func (s *Store) at(now time.Time) time.Duration { return now.Sub(s.epoch) }

func (e *entry) leave(i int) { e.queue = slices.Delete(e.queue, i, i+1) }

func (e *entry) index(id driver.ID) int { return indexOf(e.queue, id) }

// holding returns what an owner holds the key with, or nil.
func (e *entry) holding(id driver.ID) *place {
	if i := indexOf(e.holders, id); i >= 0 {
		return e.holders[i]
	}
	return nil
}

func indexOf(places []*place, id driver.ID) int {
	return slices.IndexFunc(places, func(p *place) bool { return p.id == id })
}

// refuse describes what is in the way of r.
func (s *Store) refuse(e *entry, r *voting.VoteRequest, now time.Time) driver.Result {
	res := driver.Result{Why: driver.WhyHeld}
	switch {
	case r.Proposal != 0:
		res.Fence = s.floor(e, r.Mode)
	case r.Enters && r.Queue:
		res.At, res.Fence = s.at(now), e.newest
	}
	if res.Ahead = e.index(r.ID()); res.Ahead < 0 {
		res.Ahead = len(e.queue)
	}
	res.Keeps = slices.ContainsFunc(e.holders, func(h *place) bool { return h.keeps })
	if len(e.holders) > 0 {
		res.Holder = e.holders[0].holderInfo()
		res.Left = max(opens(e.holders, r.Mode, r.Limit).Sub(now), 0) // 0: it was persisted
		if res.Ahead == 0 {
			res.RetryIn = res.Left
		}
	}
	return res
}

// opensToTheFirst is when the first in the queue may be granted the key without a hint.
func (e *entry) opensToTheFirst() (at time.Time, waits bool) {
	if len(e.queue) == 0 || len(e.holders) == 0 {
		return at, false
	}
	return opens(e.holders, e.queue[0].mode, e.queue[0].limit), true
}

// retryIn is when the place i may be granted the key without a hint.
func (e *entry) retryIn(i int, now time.Time) time.Duration {
	if at, waits := e.opensToTheFirst(); waits && i == 0 {
		return max(at.Sub(now), 0)
	}
	return 0
}
