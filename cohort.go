// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
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
	kept  error // what keeps the leader waiting, or who it is: *HeldError
}

// turn is one who waits for those before it in the same client. It is given
// once, without waiting.
type turn struct{ given chan gift }

// gift is the lease of a turn. Without one it is the lead, with all that a
// leader who gave up has in the store and knows of it, or nil.
type gift struct {
	lease *Lease
	from  *attempt
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
	t := &turn{given: make(chan gift, 1)}
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

// lead has the next one lead, and go on with what from has, if any. It is false
// when nobody is left: the cohort is over.
func (co *cohort) lead(from *attempt) bool {
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

// fences is how many a leader asks for: one for each who is there.
func (co *cohort) fences() int {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	return min(1+len(co.queue), maxTurns)
}

// keeps notes what keeps the leader waiting, or who it is, for the errors of
// the others.
func (co *cohort) keeps(err error) {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	co.kept = err
}

// waits returns what a turn waits for.
func (co *cohort) waits(t *turn) error {
	co.all.mu.Lock()
	defer co.all.mu.Unlock()
	held, ok := co.kept.(*HeldError) //nolint:errorlint // as it was noted
	if co.kept != nil && !ok {
		return co.kept
	}
	e := HeldError{}
	if held != nil {
		e = *held
	}
	e.Ahead += max(slices.Index(co.queue, t), 0)
	return &e
}

// inCohort is lock for one of many: it leads, or takes its turn.
func (a *attempt) inCohort() (*Lease, error) {
	co, t := a.c.cohorts.join(cohortID{a.req.Key, a.l.opts})
	if t != nil {
		g, err := a.await(co, t)
		if g.lease != nil || err != nil {
			return g.lease, err
		}
		a.asked = true // what the store grants counts from now, not from when we came
		a.cohort = co
		if err := a.inherit(g.from); err != nil {
			return nil, a.giveUp(err)
		}
	}
	a.cohort = co
	return a.lock()
}

// inherit goes on with the place in line, the owner and the silence of another
// who led: they are the cohort's, which would else start anew at the end of the
// line whenever a leader's time is over. An error says that the silence has
// lasted for too long.
func (a *attempt) inherit(from *attempt) error {
	if from == nil {
		return nil
	}
	a.req, a.silent, a.puzzled, a.backoff, a.kept = from.req, from.silent, from.puzzled, from.backoff, from.kept
	a.maybe, a.unsure, a.slow, a.marked = from.maybe, from.unsure, from.slow, from.marked
	a.place, a.sub = from.place, from.sub
	if a.backoff == 0 {
		return nil
	}
	if a.began.Sub(a.silent) > 0 { // we have not waited for all of it
		a.silent = a.began
	}
	if a.began.Sub(a.puzzled) > 0 {
		a.puzzled = a.began
	}
	return a.tired(0)
}

// await returns what our turn is.
func (a *attempt) await(co *cohort, t *turn) (gift, error) {
	if a.c.observe != nil {
		e := Event{Kind: EventWaiting, Key: a.req.Key, Owner: a.req.Owner, Waited: a.c.now().Sub(a.began)}
		if held := (*HeldError)(nil); errors.As(co.waits(t), &held) {
			e.Holder, e.Ahead, e.Left = held.Holder, held.Ahead, held.Left
		}
		a.c.emit(e)
	}
	select {
	case g := <-t.given:
		if g.lease != nil {
			if !a.part {
				g.lease.h.use()
			}
			g.lease.takenHere()
			g.lease.h.acquired(a.c.now().Sub(a.began))
		}
		return g, nil
	case <-a.ctx.Done():
	case <-a.c.open.Done():
	}
	a.kept = co.waits(t)
	if !co.leave(t) {
		a.c.enterLate()
		go func() {
			defer a.c.leave()
			if g := <-t.given; g.lease != nil {
				_ = g.lease.release(false, driver.Finished) // it was nobody's
			} else if !co.lead(g.from) && g.from != nil {
				g.from.cleanUp()
			}
		}()
	}
	return gift{}, a.giveUp(a.ended())
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
		cohort: co, spare: h.spare - 1, asked: h.asked,
		clean: h.used || h.clean, abandoned: h.abandoned && !h.used && !h.clean, // whoever used it came to its end
	}
	lease := heir.handle(Exclusive)
	heir.req.Fence++
	fit := h.spare > 0 && now.Sub(h.asked) < h.opts.Cohort &&
		h.lastErr == nil && !h.renewing && h.valid-now.Sub(h.start)-h.opts.Lead > h.span()/2 &&
		!h.extended // Extend was for one turn
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
	co.give(gift{lease: lease})
	return true
}

// share makes a grant of the store one that a cohort takes turns on.
func (h *hold) share(co *cohort, asked clock.Instant, res driver.Result) {
	h.cohort, h.asked = co, asked
	if res.Fences > 1 {
		h.spare = res.Fences - 1
		h.req.Fence -= uint64(h.spare)
	}
	co.keeps(&HeldError{Holder: Holder{Owner: h.req.Owner, Label: h.req.Label}, Left: h.valid})
}
