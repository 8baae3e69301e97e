// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"slices"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// maxTurns bounds the turns on one grant.
const maxTurns = 64

// cohorts are the calls of Lock of a client that may take turns: "Lock
// Cohorting" (Dice, Marathe, Shavit; PPoPP 2012), with the store as the global
// lock. One of them at a time deals with the store: it leads.
type cohorts struct {
	mu   sync.Mutex
	byID map[cohortID]*cohort
}

// cohortID is what calls must share.
type cohortID struct {
	key  string
	opts LockOptions
}

// cohort exists while somebody leads. Its fields are guarded by cohorts.mu.
type cohort struct {
	all   *cohorts
	id    cohortID
	queue []*turn
	kept  *HeldError // what the leader waits for, or is
}

// turn is one who waits for those before it in the same client.
type turn struct {
	// lease is given once, without waiting: a lease, or nil to lead.
	lease chan *Lease
}

// join returns a turn behind the others, or nil to the first, who leads.
func (cs *cohorts) join(id cohortID) (*cohort, *turn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	co := cs.byID[id]
	if co == nil {
		co = &cohort{all: cs, id: id}
		if cs.byID == nil {
			cs.byID = map[cohortID]*cohort{}
		}
		cs.byID[id] = co
		return co, nil
	}
	t := &turn{lease: make(chan *Lease, 1)}
	co.queue = append(co.queue, t)
	return co, t
}

// leave takes a turn back; false when it was given meanwhile.
func (co *cohort) leave(t *turn) bool {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	i := slices.Index(co.queue, t)
	if i >= 0 {
		co.queue = slices.Delete(co.queue, i, i+1)
	}
	return i >= 0
}

// next has the next one lead, once the leader is done with the store.
func (co *cohort) next() {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	if len(co.queue) == 0 {
		delete(co.all.byID, co.id)
		return
	}
	t := co.queue[0]
	co.queue = co.queue[1:]
	t.lease <- nil
}

// fences is how many a leader asks for: one for each who is there.
func (co *cohort) fences() int {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	return min(1+len(co.queue), maxTurns)
}

// keeps notes what keeps the leader waiting, or who it is, for the errors of
// the others.
func (co *cohort) keeps(e *HeldError) {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	co.kept = e
}

// waits returns what a turn waits for.
func (co *cohort) waits(t *turn) *HeldError {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	e := HeldError{}
	if co.kept != nil {
		e = *co.kept
	}
	e.Ahead += max(slices.Index(co.queue, t), 0)
	return &e
}

// inCohort is lock for one of many: it leads, or takes its turn.
func (a *attempt) inCohort() (*Lease, error) {
	co, t := a.c.cohorts.join(cohortID{a.req.Key, a.m.opts})
	if t != nil {
		lease, err := a.await(co, t)
		if lease != nil || err != nil {
			return lease, err
		}
		a.asked = true // what the store grants counts from now, not from when we came
	}
	a.cohort = co
	lease, err := a.lock()
	if err != nil {
		co.next()
	}
	return lease, err
}

// await returns the lease of our turn; neither that nor an error when we are
// to lead.
func (a *attempt) await(co *cohort, t *turn) (*Lease, error) {
	if a.c.observe != nil {
		e := co.waits(t)
		a.c.emit(Event{Kind: EventWaiting, Key: a.req.Key, Owner: a.req.Owner, Holder: e.Holder, Ahead: e.Ahead,
			Left: e.Left, Waited: a.c.now().Sub(a.began)})
	}
	select {
	case lease := <-t.lease:
		if lease != nil {
			a.c.emit(lease.h.acquired(a.c.now().Sub(a.began)))
		}
		return lease, nil
	case <-a.ctx.Done():
	case <-a.c.open.Done():
	}
	a.kept = co.waits(t)
	if !co.leave(t) {
		a.c.enterLate()
		go func() {
			defer a.c.leave()
			if lease := <-t.lease; lease != nil {
				_ = lease.release(false) // it was nobody's
			} else {
				co.next()
			}
		}()
	}
	return nil, a.giveUp(a.ended())
}

// pass gives what h holds to the next in its cohort, without the store, while
// there is a fence for it and the lease is in good health. It is called once
// h has no handles left.
func (co *cohort) pass(h *hold) bool {
	now := h.c.now()
	h.mu.Lock()
	heir := &hold{
		c: h.c, req: h.req, opts: h.opts, born: now,
		start: h.start, valid: h.valid, renewAt: h.renewAt,
		cohort: co, spare: h.spare - 1, asked: h.asked, handles: 1,
	}
	heir.req.Fence++
	heir.req.TTL = h.opts.TTL // whatever Extend made of it
	fit := h.spare > 0 && h.lastErr == nil && now.Sub(h.asked) < h.opts.Cohort && h.left(now)-h.opts.Lead > h.span()/2
	h.mu.Unlock()
	if !fit {
		return false
	}
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	if len(co.queue) == 0 {
		return false
	}
	h.c.renewer.remove(h)
	if !h.c.renewer.add(heir, now) {
		return false // Close has begun
	}
	t := co.queue[0]
	co.queue = co.queue[1:]
	t.lease <- &Lease{h: heir}
	return true
}

// lead makes a grant of the store one that a cohort takes turns on.
func (h *hold) lead(co *cohort, asked clock.Instant, res driver.Result) {
	h.cohort, h.asked = co, asked
	h.spare = max(res.Fences, 1) - 1
	h.req.Fence -= uint64(h.spare)
	co.keeps(&HeldError{Holder: Holder{Owner: h.req.Owner, Label: h.req.Label}, Left: h.valid})
}
