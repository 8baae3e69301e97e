// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// maxTurns bounds the turns on one grant.
const maxTurns = 64

// cohorts are the calls of Lock of a client that may take turns: "Lock
// Cohorting" (Dice, Marathe, Shavit; PPoPP 2012), with the store as the global
// lock. One of them at a time deals with the store: it leads.
type cohorts struct {
	mu      sync.Mutex
	byID    map[cohortID]*cohort
	keepers map[string]*cohort // by key, those that keep one, or did on the grant that stands
	habits  map[string]habit   // of keys without a cohort
	left    []error            // of kept keys that could not be given back during Close

	keeping atomic.Int64 // how many keepers there are
}

// cohortID is what calls must share.
type cohortID struct {
	key  string
	opts LockOptions
}

// cohort exists while it has a leader. Its fields are guarded by cohorts.mu.
type cohort struct {
	all   *cohorts
	id    cohortID
	queue []*caller
	why   error // what keeps the leader waiting, or the holder: *HeldError
	keeper
}

// caller is a call that waits for earlier calls of the same client. It is given
// its turn once; the giver does not block.
type caller struct{ given chan gift }

// gift is the lease of a turn. Without a lease it is the lead, with all that a
// leader that gave up has in the store and knows of it, or nil.
type gift struct {
	lease *Lease
	from  *waiter
}

// join returns a turn behind the others, or nil to the first call, which leads.
func (cs *cohorts) join(id cohortID) (*cohort, *caller) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	co := cs.byID[id]
	if co == nil {
		return cs.found(id), nil
	}
	t := &caller{given: make(chan gift, 1)}
	if co.kept != nil { // it was released since we looked
		if lease := co.take(false, co.kept.c.now()); lease != nil {
			t.given <- gift{lease: lease}
			return co, t
		}
	}
	co.queue = append(co.queue, t)
	return co, t
}

// lead returns a cohort to lead, or nil when there is one.
func (cs *cohorts) lead(id cohortID) *cohort {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byID[id] != nil {
		return nil
	}
	return cs.found(id)
}

// found makes a cohort. cs.mu is held.
func (cs *cohorts) found(id cohortID) *cohort {
	co := &cohort{all: cs, id: id}
	if co.keeps() {
		co.habit = cs.habits[id.key]
	}
	if cs.byID == nil {
		cs.byID = map[cohortID]*cohort{}
	}
	cs.byID[id] = co
	return co
}

// leave takes a turn back; false when it was given meanwhile.
func (co *cohort) leave(t *caller) bool {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	i := slices.Index(co.queue, t)
	if i >= 0 {
		co.queue = slices.Delete(co.queue, i, i+1)
	}
	return i >= 0
}

// promote makes the next waiter the leader, which goes on with what from has, if any. It is false
// when no waiter is left: the cohort is over.
func (co *cohort) promote(from *waiter) bool {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	if len(co.queue) == 0 {
		delete(co.all.byID, co.id)
		return false
	}
	co.give(gift{from: from})
	return true
}

// give gives the next one its turn. all.mu is held.
func (co *cohort) give(g gift) {
	t := co.queue[0]
	co.queue = co.queue[1:]
	t.given <- g
}

// fences is how many a leader asks for: one for each call that is there, and some for calls
// that come while the key is kept.
func (co *cohort) fences() int {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	n := min(1+len(co.queue), maxTurns)
	co.waited = n - 1
	if co.keeps() {
		n = max(n, co.row())
	}
	return n
}

// waitsFor notes what keeps the leader waiting, or the holder, for the errors of
// the other calls.
func (co *cohort) waitsFor(why error) {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	co.why = why
}

func (co *cohort) granted(h *hold) {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	co.why = &HeldError{Holder: Holder{Owner: h.req.Owner, Label: h.req.Label}, Left: h.life.Valid()}
	if co.keeps() {
		co.begins(h)
	}
}

// over makes the next waiter the leader, which begins anew.
func (co *cohort) over() {
	if co.keeps() {
		co.ends()
	}
	co.promote(nil)
}

// waits returns what a turn waits for.
func (co *cohort) waits(t *caller) error {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	held, ok := co.why.(*HeldError) //nolint:errorlint // as it was noted
	if co.why != nil && !ok {
		return co.why
	}
	e := HeldError{}
	if held != nil {
		e = *held
	}
	e.Ahead += max(slices.Index(co.queue, t), 0)
	return &e
}

// lock is attempt.lock for one call of many: it leads, or takes its turn. A leader
// that gets no lease, also because the observer panicked, gives up the lead.
func (cs *cohorts) lock(a *attempt) (lease *Lease, err error) {
	co, t := cs.join(cohortID{a.req.Key, a.opts.LockOptions})
	for t != nil {
		g, ended := co.await(a, t)
		if ended != nil {
			return nil, ended
		}
		a.sent = true // what the store grants counts from now, not from when we came
		if g.lease == nil {
			if g.from != nil {
				err = a.inherit(g.from)
			}
			break
		}
		if g.lease.h.checkDeadline() == nil {
			return g.lease, nil
		}
		_ = g.lease.release(false, driver.Unused) // it was lost while this process stood still
		co, t = cs.join(cohortID{a.req.Key, a.opts.LockOptions})
	}
	a.behind = co
	defer func() {
		if lease == nil && !co.promote(&a.waiter) {
			a.cleanUp(a.c)
		}
	}()
	if err != nil {
		return nil, a.fail(err)
	}
	return a.lock()
}

// inherit goes on with the place in the queue, the owner and the silence of the
// previous leader: they are the cohort's, which would else start anew at the end of
// the queue whenever a leader's time is over. An error says that the silence has
// lasted for too long.
func (a *attempt) inherit(from *waiter) error {
	a.waiter = *from
	return a.wait.Inherit(a.began, a.c.now())
}

// await returns what a is given, or why it gave up.
func (co *cohort) await(a *attempt, t *caller) (g gift, err error) {
	given := false
	defer func() {
		if !given {
			co.quit(a.c, t)
		}
	}()
	a.emit(EventWaiting, func(e *Event) {
		if held := (*HeldError)(nil); errors.As(co.waits(t), &held) {
			e.Holder, e.Ahead, e.Left = held.Holder, held.Ahead, held.Left
		}
	})
	select {
	case g = <-t.given:
		given = true
		if g.lease != nil {
			if !a.part {
				g.lease.h.begin(a.c.now())
			}
			g.lease.takenHere()
			g.lease.h.tells(a.ctx)
		}
		return g, nil
	case <-a.ctx.Done():
	case <-a.c.calls.Open.Done():
	}
	a.wait.Blame(co.waits(t))
	return gift{}, a.fail(a.ended())
}

// quit takes a turn back, or passes on what it was given meanwhile.
func (co *cohort) quit(c *core, t *caller) {
	if co.leave(t) {
		return
	}
	c.calls.EnterLate()
	go func() {
		defer c.calls.Leave()
		if g := <-t.given; g.lease != nil {
			_ = g.lease.release(false, driver.Finished)
		} else if !co.promote(g.from) && g.from != nil {
			g.from.cleanUp(c)
		}
	}()
}

// pass gives what h holds to the next call of its cohort, without the store, or keeps it
// for a later call, while there is a fence for it and the grant is fit for that.
func (co *cohort) pass(h *hold) bool {
	now := h.c.now()
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	follower := h.follower(co, now) // under all.mu: it knows what hear noted until now
	if follower == nil {
		return false
	}
	var lease *Lease
	switch {
	case len(co.queue) > 0:
		lease = follower.lease(Exclusive)
	case co.keeps() && !co.shy && !follower.life.Wanted():
		co.offers(follower)
	default:
		return false
	}
	follower.signals.heard = co.hears
	if !h.c.renewer.Replace(h, follower, now) {
		return false // Close has begun
	}
	co.latest = follower
	if co.keeps() && co.hears == nil && h.c.traits.TellsWanted {
		co.hears = co.hear
		co.ask(follower)
	}
	if lease == nil {
		co.keep(follower)
		return true
	}
	co.again()
	co.give(gift{lease: lease})
	return true
}

// follower returns the hold of the next turn; nil when there is no fence for one, or the
// grant is not fit to be passed on: its renewal is in trouble, or it was extended, which
// was for one turn. Calls that waited when the store was asked have their turn within
// Cohort; later calls have it while the key may be kept, and no other client waits.
func (h *hold) follower(behind successors, now clock.Instant) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := h.turn.spare > h.turn.extra && now.Sub(h.turn.began) < h.opts.Cohort
	if h.turn.spare == 0 || !due && (h.opts.Keep == 0 || h.life.Wanted()) {
		return nil
	}
	life, fit := h.life.Follow(now)
	if !fit {
		return nil
	}
	follower := &hold{c: h.c, req: h.req, opts: h.opts, grant: h.grant, life: life}
	follower.req.Fence++
	follower.turn = turn{behind: behind, began: h.turn.began, spare: h.turn.spare - 1, later: true}
	follower.turn.extra = min(h.turn.extra, follower.turn.spare)
	follower.grant.abandoned = h.grant.abandoned && !life.Clean // the holder that used it came to its end
	return follower
}

// successors are the calls of this client that want what an attempt asks for, or a
// hold has, after it: a cohort, or none.
type successors interface {
	fences() int        // how many fences to ask the store for; 0 is as 1
	waitsFor(why error) // notes what keeps the attempt waiting
	granted(h *hold)    // notes the holder
	pass(h *hold) bool  // gives the next call what h holds, once it is passing; false: there is none
	over()              // there is nothing to pass on any more
}

// alone has no successors.
type alone struct{}

func (alone) fences() int     { return 0 }
func (alone) waitsFor(error)  {}
func (alone) granted(*hold)   {}
func (alone) pass(*hold) bool { return false }
func (alone) over()           {}

// turn is a hold's place among those that follow one another on one grant of
// the store. The hold's mu guards it.
type turn struct {
	behind successors    // notified once the hold is over
	began  clock.Instant // when the store was asked for the grant
	spare  int32         // fences left for those behind
	extra  int32         // those of them for which no call waited when the store was asked
	later  bool          // it is not the first: the store was not asked for it
	kept   bool          // no caller has had it since it was kept
}

// leave returns, once, those to notify that the hold is over.
func (t *turn) leave() successors {
	behind := t.behind
	t.behind = alone{}
	return behind
}

// share leaves a grant's other fences to those behind, and returns how many they are.
func (t *turn) share(behind successors, began clock.Instant, fences int) uint64 {
	t.behind, t.began = behind, began
	t.spare = int32(max(fences, 1) - 1)
	return uint64(t.spare)
}
