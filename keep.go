// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
)

// A key that is kept (LockOptions.Keep) is a turn without a caller yet: a hold in state
// kept, which is renewed like any other, and is looked at before the store is asked. It
// belongs to the cohort of the calls that may have it. Its state changes under its mu
// only, so that it is either taken or given back, and each once.

const (
	minRow    = 16      // fences that the store is asked for where a key may be kept
	maxRow    = 1024    // at most, once that many were used
	maxLevel  = 6       // 2^n grants of the store are not kept after a grant that was kept in vain
	maxHabits = 1 << 14 // keys of a client that are remembered
)

// keeper is what a cohort knows of the key that it may keep. cohorts.mu guards it.
type keeper struct {
	kept   *hold  // what the next call may take; it may have been given back since
	latest *hold  // the turn under way, or the last: it hears of waiters
	hears  func() // called when another client waits; nil until the store was asked to tell
	told   func() // called when another client waits; made with the first hold that is kept
	reused int    // turns on the store's grant, after the first
	waited int    // callers that waited for a turn when the store was asked
	shy    bool   // this grant is not kept
	habit  habit
}

// habit is what is remembered of a key from one grant of the store to the next.
type habit struct {
	row   int // how many fences to ask for
	level int // how often in succession it was kept in vain, at most maxLevel
	skip  int // how many grants are not kept
}

// keeps says whether the options are for it.
func (co *cohort) keeps() bool { return co.id.opts.Keep > 0 }

// row is how many fences to ask for, so that there are some for later calls.
func (k *keeper) row() int {
	if k.habit.skip > 0 {
		return 0
	}
	return max(k.habit.row, minRow)
}

// begins notes a grant of the store, which no other goroutine has yet.
func (k *keeper) begins(h *hold) {
	h.turn.extra = max(h.turn.spare-int32(k.waited), 0)
	k.kept, k.latest, k.hears, k.reused, k.shy = nil, h, nil, 0, k.habit.skip > 0
	if k.shy {
		k.habit.skip--
	}
}

// inVain notes that the key had to be given back for another client: where no call
// here used it meanwhile, that cost the other client a round trip.
func (k *keeper) inVain() {
	if k.reused > 0 {
		return
	}
	k.habit.level = min(k.habit.level+1, maxLevel)
	k.habit.skip = 1 << k.habit.level
}

// ends notes that the store's grant is over.
func (co *cohort) ends() {
	cs := co.all
	cs.mu.Lock()
	defer cs.mu.Unlock()
	co.kept, co.latest = nil, nil
	co.habit.row = min(2*co.reused, maxRow)
	if cs.keepers[co.id.key] == co {
		delete(cs.keepers, co.id.key)
		cs.keeping.Add(-1)
	}
	switch {
	case co.habit == habit{}:
		delete(cs.habits, co.id.key)
	case cs.habits == nil || len(cs.habits) >= maxHabits:
		cs.habits = map[string]habit{co.id.key: co.habit}
	default:
		cs.habits[co.id.key] = co.habit
	}
}

// again notes a turn after the first.
func (k *keeper) again() {
	k.reused++
	k.habit.level = 0
}

// offers has a hold that no other goroutine knows yet wait for its caller. cs.mu is held.
func (co *cohort) offers(h *hold) {
	if co.told == nil {
		co.told = co.revoke
	}
	h.life.Keep()
	h.turn.kept, h.signals.wishEnd = true, co.told
}

// keep notes what was offered. cs.mu is held.
func (co *cohort) keep(h *hold) {
	cs := co.all
	co.kept = h
	if cs.keepers[co.id.key] == co {
		return
	}
	if cs.keepers == nil {
		cs.keepers = map[string]*cohort{}
	}
	if cs.keepers[co.id.key] == nil {
		cs.keeping.Add(1)
	}
	cs.keepers[co.id.key] = co // another had it: the store has taken the key from that one
}

// ask asks the store to tell of new waiters, once for each of its grants and beside the renewals: a
// hold is not kept while its renewal is under way. Without an answer the next renewal asks.
func (co *cohort) ask(h *hold) {
	h.mu.Lock()
	h.signals.heard = co.hears
	r := h.req
	h.mu.Unlock()
	r.Wanted, r.Keeps = co.hears, true
	h.c.calls.EnterLate()
	go func() {
		defer h.c.calls.Leave()
		switch res, err := h.c.renewOnce(h.c.calls.Open, r); {
		case err != nil:
		case errors.Is(res.Err, ErrNotHeld):
			h.lose(res.Err)
		case res.Wanted:
			co.hear()
		}
	}()
}

// hear is called when another client waits.
func (co *cohort) hear() {
	co.all.mu.Lock()
	var tell func()
	if h := co.latest; h != nil { // under all.mu: a turn that passes has it, or its follower
		tell = h.noteWanted()
	}
	co.all.mu.Unlock()
	if tell != nil {
		tell()
	}
}

// revoke gives the key back, if it is kept: another client waits for it.
func (co *cohort) revoke() {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	if h := co.kept; h != nil && h.yield() {
		co.inVain()
	}
}

// take returns the lease of a key that is kept, if it still may be granted at now. It is
// used, or part of what is worth nothing yet. cs.mu is held.
func (co *cohort) take(use bool, now clock.Instant) *Lease {
	if co.kept == nil {
		return nil
	}
	lease := co.kept.take(use, now)
	if lease != nil {
		co.kept = nil
		co.again()
	}
	return lease
}

// keeps says whether this client has the key, and may keep it.
func (cs *cohorts) keeps(key string) bool {
	if cs.keeping.Load() == 0 {
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.keepers[key] != nil
}

// kept returns a lease of what this client keeps of the key; nil: ask the store. What is
// kept for others than l is given back first.
func (l *lock) kept(ctx context.Context, wait, part bool) *Lease {
	cs := &l.c.cohorts
	if cs.keeping.Load() == 0 {
		return nil
	}
	now := l.c.now()
	cs.mu.Lock()
	co := cs.keepers[l.key]
	if co == nil {
		cs.mu.Unlock()
		return nil
	}
	mine := co.id.opts == l.opts.LockOptions
	if mine {
		if lease := co.take(!part, now); lease != nil {
			cs.mu.Unlock()
			if l.opts.MaxHold > 0 {
				l.c.renewer.Again(lease.h, now) // it may end earlier than was planned
			}
			lease.h.tells(ctx)
			lease.acquired(now, false)
			return lease
		}
	}
	h := co.kept
	cs.mu.Unlock()
	if h == nil || mine && wait { // held; or it takes its turn when it is given back
		return nil
	}
	select {
	case <-h.back():
	case <-ctx.Done():
	case <-l.c.calls.Open.Done():
	}
	return nil
}

// tryLock is attempt.tryLock for a key that may be kept: it leads while it asks, if no other
// call does, so that its lease can be kept.
func (cs *cohorts) tryLock(a *attempt) (lease *Lease, err error) {
	co := cs.lead(cohortID{a.req.Key, a.opts.LockOptions})
	if co == nil {
		return a.alone(a.tryLock)
	}
	a.behind = co
	defer func() {
		if lease == nil && !co.promote(&a.waiter) {
			a.cleanUp(a.c)
		}
	}()
	return a.tryLock()
}

// take is cohort.take of this hold.
func (h *hold) take(use bool, now clock.Instant) *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.life.Take(now, use) {
		h.letGo()
		return nil
	}
	h.turn.kept = false
	return h.lease(Exclusive)
}

// yield is letGo for callers that do not hold h.mu.
func (h *hold) yield() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.letGo()
}

// letGo gives a kept hold back, in the background; false when it is not kept any more, or
// Close does it. h.mu is held, and locks that the store's answer needs may be.
func (h *hold) letGo() bool {
	if h.life.State() != lifetime.Kept || !h.c.calls.Enter() {
		return false
	}
	h.life.Released()
	h.signals.done = make(chan struct{})
	go h.giveBack()
	return true
}

// back gives a kept hold back, and returns what is closed once that is done, or at
// once when it was not kept any more.
func (h *hold) back() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.letGo()
	if h.signals.done != nil {
		return h.signals.done
	}
	none := make(chan struct{}) // it was taken or lost, or Close gives it back
	close(none)
	return none
}

func (h *hold) giveBack() {
	defer h.c.calls.Leave()
	defer h.signals.end()
	h.c.renewer.Remove(h)
	h.mu.Lock()
	behind := h.turn.leave()
	h.mu.Unlock()
	defer behind.over()
	err := h.release(h.c.calls.Base, nil, driver.Finished) // its event says what went wrong
	if h.c.calls.Open.Err() != nil {                       // so does Close
		h.c.cohorts.mu.Lock()
		h.c.cohorts.left = append(h.c.cohorts.left, err)
		h.c.cohorts.mu.Unlock()
	}
}

// keeperTime is what a keeper needs beside the store: see attempt.keeper.
const keeperTime = 5 * time.Millisecond

// askKeeper joins, which tells the keeper, and waits until it has given the key back, for keeper at most. Whatever goes wrong
// is as if it was not asked: neither a lease nor an error.
func (a *attempt) askKeeper() (lease *Lease, err error) {
	why := a.wait.Why()
	defer func() {
		if err != nil && a.ended() == nil {
			a.wait.Blame(why)
			err = nil
		}
	}()
	timer := time.NewTimer(a.keeper())
	defer timer.Stop()
	if err := a.subscribe(timer.C); a.sub.hints == nil {
		return nil, err
	}
	a.wait.Join()
	a.briefly = true
	lease, err = a.ask()
	for joined := a.c.now(); lease == nil && err == nil; lease, err = a.ask() {
		timer.Reset(a.keeper() - a.c.now().Sub(joined))
		select {
		case h := <-a.sub.hints:
			a.wait.Hinted(h)
		case <-timer.C:
			return nil, nil
		case <-a.ctx.Done():
			return nil, a.ended()
		case <-a.c.calls.Open.Done():
			return nil, a.ended()
		}
		if lease = a.enter(); lease != nil {
			break
		}
	}
	if lease != nil {
		a.leaveQueue(a.c)
	}
	return lease, err
}

// keeper is how long a keeper may need: for the message to it, its release, and the message of that. With thousands of keys at
// once all requests take longer, ours and the keeper's.
func (a *attempt) keeper() time.Duration { return min(3*a.wait.Slowest()+keeperTime, tryLimit) }
