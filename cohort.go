// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/clock"
)

// maxTurns bounds the turns on one grant.
const maxTurns = 64

// cohorts are the calls of Lock of a client that may take turns: "Lock
// Cohorting" (Dice, Marathe, Shavit; PPoPP 2012), with the store as the global
// lock; or that may have a key that this client keeps. One of them at a time deals with the store: it leads.
type cohorts struct {
	c         *core
	mu        sync.Mutex
	byID      map[cohortID]*cohort
	keepers   map[string]*cohort // by key: cohorts that keep it, or did on the grant that stands
	habits    map[string]habit   // of keys without a cohort
	closeErrs []error            // see notFreed

	keeping atomic.Int64 // how many keepers there are
}

// turning is the source of a Mutex whose calls of Lock take turns (LockOptions.Cohort).
func (cl lockCall) turning() (*Lease, error) {
	if !cl.waits {
		return cl.direct()
	}
	cl.c.cohorts.releaseKey(cl.ctx, cl.key)
	a := cl.attempt()
	return a.tell(cl.c.cohorts.takeTurn(&a))
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
	queue []*queuedCall
	why   error // what keeps the leader waiting, or the holder: *HeldError
	keeper
}

// queuedCall is a call that waits for earlier calls of the same client. It is given
// its turn once; the giver does not block.
type queuedCall struct{ given chan gift }

// gift is the lease of a turn. Without a lease it is the lead, with all that a
// leader that gave up has in the store and knows of it, or nil.
type gift struct {
	lease *Lease
	from  *waiter
}

// join queues a call behind the others. Nil: it is the first, and leads.
func (cs *cohorts) join(id cohortID) (*cohort, *queuedCall) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	co := cs.byID[id]
	if co == nil {
		return cs.newCohort(id), nil
	}
	q := &queuedCall{given: make(chan gift, 1)}
	if co.kept != nil { // it was released since we looked
		if lease := co.take(false, cs.c.now()); lease != nil {
			q.given <- gift{lease: lease}
			return co, q
		}
	}
	co.queue = append(co.queue, q)
	return co, q
}

// unled returns a cohort to lead, or nil when another call does.
func (cs *cohorts) unled(id cohortID) *cohort {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.byID[id] != nil {
		return nil
	}
	return cs.newCohort(id)
}

// newCohort makes a cohort, whose caller leads it. cs.mu is held.
func (cs *cohorts) newCohort(id cohortID) *cohort {
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

// leave takes a call out of the queue; false when it was given something meanwhile.
func (co *cohort) leave(q *queuedCall) bool {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	i := slices.Index(co.queue, q)
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
	q := co.queue[0]
	co.queue = co.queue[1:]
	q.given <- g
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

// noteWhy notes what keeps the leader waiting, or the holder, for the errors of
// the other calls.
func (co *cohort) noteWhy(why error) {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	if why != nil {
		co.why = why
	}
}

// granted notes the holder, whose turn is the first on its grant.
func (co *cohort) granted(h *hold) {
	h.mu.Lock()
	t := &turn{hold: h, co: co, began: h.life.Born(), spare: int32(max(h.grant.fences, 1) - 1)}
	left := h.life.Valid()
	h.mu.Unlock()
	co.all.mu.Lock()
	co.why = &HeldError{Holder: Holder{Owner: h.req.Owner, Label: h.req.Label}, Left: left}
	if co.keeps() {
		co.begins(t)
	}
	co.all.mu.Unlock()
	h.setAfter(t)
}

// over makes the next waiter the leader, which begins anew.
func (co *cohort) over() {
	if co.keeps() {
		co.ends()
	}
	co.promote(nil)
}

// whyQueued returns what a queued call waits for.
func (co *cohort) whyQueued(q *queuedCall) error {
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
	e.Ahead += max(slices.Index(co.queue, q), 0)
	return &e
}

// takeTurn has one call of many lead, or take its turn.
func (cs *cohorts) takeTurn(a *attempt) (lease *Lease, err error) {
	id := cohortID{a.key, a.opts.LockOptions}
	co, q := cs.join(id)
	for q != nil {
		g, ended := co.await(a, q)
		if ended != nil {
			return nil, ended
		}
		a.fromRequest = true // what the store grants counts from now, not from when we came
		if g.lease == nil {
			if g.from != nil { // its error is returned from within lead, which promotes the next call
				err = a.inherit(g.from)
			}
			break
		}
		if g.lease.h.checkDeadline() == nil {
			return g.lease, nil
		}
		_ = g.lease.release(false, driver.EndUnused) // it was lost while this process stood still
		co, q = cs.join(id)
	}
	a.begin()
	return co.lead(a, func() (*Lease, error) {
		if err != nil {
			return nil, a.fail(err)
		}
		return a.step()
	})
}

// lead has a call ask the store for its cohort, in one step or several. A leader that gets no lease, also because
// the observer panicked, gives up the lead.
func (co *cohort) lead(a *attempt, step func() (*Lease, error)) (lease *Lease, err error) {
	defer func() {
		if lease == nil && !co.promote(&a.waiter) {
			a.cleanUp(a.c)
		}
	}()
	for lease == nil && err == nil {
		a.req.Fences = co.fences()
		if lease, err = step(); a.ended() == nil {
			co.noteWhy(a.wait.Why())
		}
	}
	if err == nil {
		co.granted(lease.h)
	}
	return lease, err
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
func (co *cohort) await(a *attempt, q *queuedCall) (g gift, err error) {
	given := false
	defer func() {
		if !given {
			co.quit(q)
		}
	}()
	a.emit(event.Waiting, func(e *event.Event) {
		if held := (*HeldError)(nil); errors.As(co.whyQueued(q), &held) {
			e.Holder, e.Ahead, e.Left = held.Holder, held.Ahead, held.Left
		}
	})
	select {
	case g = <-q.given:
		given = true
		if g.lease != nil {
			if !a.partly {
				g.lease.h.begin(a.c.now())
			}
			g.lease.takenHere()
			g.lease.h.setCaller(a.ctx)
		}
		return g, nil
	case <-a.ctx.Done():
	case <-a.c.calls.Open.Done():
	}
	a.wait.Blame(co.whyQueued(q))
	return gift{}, a.fail(a.ended())
}

// quit takes a call out of the queue, or hands on what it was given meanwhile.
func (co *cohort) quit(q *queuedCall) {
	c := co.all.c
	if co.leave(q) {
		return
	}
	c.calls.EnterLate()
	go func() {
		defer c.calls.Leave()
		if g := <-q.given; g.lease != nil {
			_ = g.lease.release(false, driver.EndFinished) // so that the next call gets it; the store is told that no caller worked
		} else if !co.promote(g.from) && g.from != nil {
			g.from.cleanUp(c)
		}
	}()
}

// turn is a hold's place among those that follow one another on one grant of
// the store, and what follows the hold. The renewer has the later turns in place of their holds.
type turn struct {
	*hold
	co    *cohort
	began clock.Instant // when the store was asked for the grant
	spare int32         // fences left for later turns
	extra int32         // those of them for which no call waited when the store was asked
}

func (t *turn) handOn() bool { return t.co.handOn(t) }
func (t *turn) over()        { t.co.over() }

// handOn gives what t holds to the next call of its cohort, without the store, or keeps it
// for a later call, while there is a fence for it and the grant is fit for that.
func (co *cohort) handOn(t *turn) bool {
	now := t.c.now()
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	next := t.follower(now) // under all.mu: it knows what hear noted until now
	if next == nil {
		return false
	}
	var lease *Lease
	switch {
	case len(co.queue) > 0:
		lease = next.lease(Exclusive)
	case co.keeps() && !co.shy && !next.life.Wanted():
		co.offers(next)
	default:
		return false
	}
	next.req.Wanted, next.req.Keeps = co.onWanted, co.onWanted != nil
	if !t.c.renewer.Replace(t, next, now) {
		return false // Close has begun
	}
	co.latest = next.hold
	if co.keeps() && co.onWanted == nil && t.c.traits.Tells.Has(driver.TellsWanted) {
		co.onWanted = co.hear
		co.askToTell(next.hold)
	}
	if lease == nil {
		co.keep(next)
		return true
	}
	co.noteReuse()
	co.give(gift{lease: lease})
	return true
}

// follower returns the next turn; nil when there is no fence for one, or the
// grant is not fit to be passed on: its renewal is in trouble, or it was extended, which
// was for one turn. Calls that waited when the store was asked have their turn within
// Cohort; later calls have it while the key may be kept, and no other client waits.
func (t *turn) follower(now clock.Instant) *turn {
	h := t.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	due := t.spare > t.extra && now.Sub(t.began) < h.opts.Cohort
	if t.spare == 0 || !due && (h.opts.Keep == 0 || h.life.Wanted()) {
		return nil
	}
	life, fit := h.life.Follow(now)
	if !fit {
		return nil
	}
	next := &struct {
		turn
		own hold
	}{own: hold{c: h.c, req: h.req, opts: h.opts, grant: h.grant, life: life}}
	f := &next.own
	f.req.Fence++
	f.grant.unasked, f.grant.handoff = true, 0
	f.grant.abandoned = h.grant.abandoned && !life.Clean // the holder that used it came to its end
	f.after = &next.turn
	next.turn = turn{hold: f, co: t.co, began: t.began, spare: t.spare - 1, extra: min(t.extra, t.spare-1)}
	return &next.turn
}
