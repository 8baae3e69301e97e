// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
)

// A key that is kept (LockOptions.Keep) is a turn without a caller yet: a hold in state
// kept, which is renewed like any other, and is looked at before the store is asked. It
// belongs to the cohort of the calls that may have it. Its state changes under its mu
// only, so that it is either taken or released, and each once.

const (
	minRow    = 16      // fences that the store is asked for where a key may be kept
	maxRow    = 1024    // at most, once that many were used
	maxLevel  = 6       // 2^n grants of the store are not kept after a grant that was kept in vain
	maxHabits = 1 << 14 // keys of a client that are remembered
)

// keeper is what a cohort knows of the key that it may keep. cohorts.mu guards it.
type keeper struct {
	kept     *turn  // what the next call may take; it may have been released since
	latest   *hold  // the turn under way, or the last: it hears of waiters
	onWanted func() // the store calls it when a waiter joins; nil: it was not asked to
	giveUp   func() // ends a kept turn: the wishEnd of each hold that is kept
	reused   int    // turns on the store's grant, after the first
	waited   int    // callers that waited for a turn when the store was asked
	shy      bool   // this grant is not kept
	habit    habit
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

// begins notes the first turn on a grant of the store, which no other goroutine has yet.
func (k *keeper) begins(t *turn) {
	t.extra = max(t.spare-int32(k.waited), 0)
	k.kept, k.latest, k.onWanted, k.reused, k.shy = nil, t.hold, nil, 0, k.habit.skip > 0
	if k.shy {
		k.habit.skip--
	}
}

// inVain notes that the key had to be released for another client: where no call
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

// noteReuse notes a turn after the first.
func (k *keeper) noteReuse() {
	k.reused++
	k.habit.level = 0
}

// offers has a turn that no other goroutine knows yet wait for its caller. cs.mu is held.
func (co *cohort) offers(t *turn) {
	if co.giveUp == nil {
		co.giveUp = co.releaseKept
	}
	t.life.Keep()
	t.signals.wishEnd = co.giveUp
}

// keep notes what was offered. cs.mu is held.
func (co *cohort) keep(t *turn) {
	cs := co.all
	co.kept = t
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

// askToTell asks the store to tell of new waiters, once for each of its grants and beside the renewals: a
// hold is not kept while its renewal is under way. Without an answer the next renewal asks.
func (co *cohort) askToTell(h *hold) {
	h.mu.Lock()
	h.req.Wanted, h.req.Keeps = co.onWanted, true
	r := h.req
	h.mu.Unlock()
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

// releaseKept releases the key, if it is kept: another client waits for it.
func (co *cohort) releaseKept() {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	if t := co.kept; t != nil && t.lockAndRelease() {
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
		co.noteReuse()
	}
	return lease
}

// keeping is the source of a Mutex whose key stays here after its Release (LockOptions.Keep).
func (cl lockCall) keeping() (*Lease, error) {
	cs := &cl.c.cohorts
	if lease := cs.kept(cl); lease != nil {
		return lease, nil
	}
	a := cl.attempt()
	if cl.waits {
		return a.tell(cs.takeTurn(&a))
	}
	return a.tell(cs.tryLock(&a))
}

// has says whether this client has the key, and may keep it.
func (cs *cohorts) has(key string) bool {
	if cs.keeping.Load() == 0 {
		return false
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.keepers[key] != nil
}

// releaseKey releases a key that is kept, for a lock with other options.
func (cs *cohorts) releaseKey(ctx context.Context, key string) {
	if cs.keeping.Load() == 0 {
		return
	}
	cs.mu.Lock()
	var t *turn
	if co := cs.keepers[key]; co != nil {
		t = co.kept
	}
	cs.mu.Unlock()
	cs.releaseAndWait(ctx, t)
}

// releaseAndWait releases a kept turn, and waits for that; nil: nothing is kept.
func (cs *cohorts) releaseAndWait(ctx context.Context, t *turn) {
	if t == nil {
		return
	}
	select {
	case <-t.released():
	case <-ctx.Done():
	case <-cs.c.calls.Open.Done():
	}
}

// kept returns a lease of what this client keeps of the key; nil: ask the store.
func (cs *cohorts) kept(cl lockCall) *Lease {
	if cs.keeping.Load() == 0 {
		return nil
	}
	now := cs.c.now()
	cs.mu.Lock()
	co := cs.keepers[cl.key]
	if co == nil || co.id.opts != cl.opts.LockOptions {
		cs.mu.Unlock()
		cs.releaseKey(cl.ctx, cl.key)
		return nil
	}
	lease, t := co.take(!cl.partly, now), co.kept
	cs.mu.Unlock()
	switch {
	case lease != nil:
		if cl.opts.MaxHold > 0 {
			cs.c.renewer.Reschedule(lease.h, now) // it may end earlier than was planned
		}
		lease.h.setCaller(cl.ctx)
		lease.emitAcquired(now, false)
	case !cl.waits: // a Lock takes its turn when it is released
		cs.releaseAndWait(cl.ctx, t)
	}
	return lease
}

// tryLock has a TryLock lead while it asks, if no other call does, so that its lease can be kept.
func (cs *cohorts) tryLock(a *attempt) (*Lease, error) {
	co := cs.unled(cohortID{a.key, a.opts.LockOptions})
	if co == nil {
		return a.alone()
	}
	return co.lead(a, a.tryLock)
}

// notClosed notes for Close what became of a release that no caller waits for. Its event says so, too.
func (cs *cohorts) notClosed(err error) {
	if cs.c.calls.Open.Err() != nil {
		cs.mu.Lock()
		cs.closeErrs = append(cs.closeErrs, err)
		cs.mu.Unlock()
	}
}

// notFreed returns the errors of keys that could not be released during Close, and that no caller waited for.
func (cs *cohorts) notFreed() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return errors.Join(cs.closeErrs...)
}

// Due releases a kept hold that may not stay.
func (t *turn) Due(now clock.Instant, hurry bool) (renew, over bool) {
	if t.releaseIf(func() bool { return t.life.Stale(now) }) {
		return false, false
	}
	return t.hold.Due(now, hurry)
}

// Request renews a kept hold, which no caller can reach yet.
func (t *turn) Request() (driver.RenewRequest, bool) {
	t.mu.Lock()
	if t.life.State() == lifetime.Kept {
		defer t.mu.Unlock()
		return t.renewal(), true
	}
	t.mu.Unlock()
	return t.hold.Request()
}

// Renewed releases a kept hold whose renewal failed, or was answered too late.
func (t *turn) Renewed(start clock.Instant, r driver.Renewal) {
	now := t.c.now()
	t.releaseIf(func() bool { return t.life.Over(now) })
	t.hold.Renewed(start, r)
	t.releaseIf(func() bool { return t.life.Stale(now) })
}

// releaseIf releases a hold, if it is kept, when that is due.
func (t *turn) releaseIf(due func() bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !due() {
		return false
	}
	t.startRelease()
	return true
}

// take is cohort.take of this turn.
func (t *turn) take(use bool, now clock.Instant) *Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.life.Take(now, use) {
		t.startRelease()
		return nil
	}
	return t.hold.lease(Exclusive)
}

// lockAndRelease is startRelease for callers that do not hold t.mu.
func (t *turn) lockAndRelease() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.startRelease()
}

// startRelease releases a kept hold, in the background; false when it is not kept any more, or
// Close does it. t.mu is held, and locks that the store's answer needs may be.
func (t *turn) startRelease() bool {
	if t.life.State() != lifetime.Kept || !t.c.calls.Enter() {
		return false
	}
	t.life.Released()
	t.signals.done = make(chan struct{})
	go t.tellStore()
	return true
}

// released releases a kept hold, and returns what is closed once that is done, or at
// once when it was not kept any more.
func (t *turn) released() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.startRelease()
	if t.signals.done != nil && t.life.State() == lifetime.Released {
		return t.signals.done
	}
	none := make(chan struct{}) // it was taken or lost, or Close gives it back
	close(none)
	return none
}

// tellStore ends a kept turn, in the background.
func (t *turn) tellStore() {
	defer t.c.calls.Leave()
	defer t.signals.end()
	t.c.renewer.Remove(t)
	t.mu.Lock()
	after := t.takeAfter()
	t.mu.Unlock()
	defer after.over()
	t.co.all.notClosed(t.release(t.c.calls.Base, nil, driver.EndFinished, nil))
}
