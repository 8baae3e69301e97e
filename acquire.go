// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/internal/wait"
)

// attempt is one acquisition, from the first Try to a lease or to the last
// trace of it in the store. How it goes on is decided by its wait.Wait; attempt does it.
type attempt struct {
	c       *core
	ctx     context.Context // bounds the wait: the caller's, ended also by Close
	op      string
	opts    *settings
	part    bool // its lease is not the caller's until others are held, too
	began   clock.Instant
	sent    bool          // what the store grants counts from the request, not from began
	waits   bool          // the observer was told that it waits
	briefly bool          // a TryLock asks a keeper
	asked   time.Duration // when the latest Try was sent, on the monotonic clock
	behind  successors
	waiter
}

// alone asks for a caller that is in no cohort. Without a lease, also when the observer
// panicked, nothing stays in the store.
func (a *attempt) alone(ask func() (*Lease, error)) (lease *Lease, err error) {
	defer func() {
		if lease == nil {
			a.cleanUp(a.c)
		}
	}()
	return ask()
}

// lock asks, watches and sleeps as its Wait says, until there is a lease or an error that ends it.
func (a *attempt) lock() (*Lease, error) {
	a.wait.Begin(a.c.traits.JoinFirst, a.c.busy.is(a.req.Key))
	for first := !a.wait.Queue(); ; {
		var lease *Lease
		var err error
		switch a.wait.Next() {
		case wait.WatchBriefly:
			err = a.watchBriefly()
		case wait.Watch:
			err = a.subscribe(nil)
		case wait.Ask:
			lease, err = a.try()
			if first && err == nil && !a.wait.Failing() {
				a.c.busy.note(a.req.Key, lease == nil)
			}
			first = false
		case wait.Sleep:
			lease, err = a.sleep()
		}
		if lease != nil {
			a.leaveQueue(a.c)
			return lease, nil
		}
		if err != nil {
			return nil, a.fail(err)
		}
	}
}

// tryLock asks once, and waits only where the holder keeps the key for no caller, until it has given it back.
func (a *attempt) tryLock() (*Lease, error) {
	lease, err := a.ask()
	if a.wait.Kept() && !a.c.cohorts.keeps(a.req.Key) {
		lease, err = a.askKeeper()
	}
	switch {
	case lease != nil:
		return lease, nil
	case err == nil:
		err = a.wait.Why()
	default:
		err = cmp.Or(a.ended(), err)
	}
	return nil, a.fail(err)
}

// try is ask with errors that the Wait bears.
func (a *attempt) try() (*Lease, error) {
	lease, err := a.ask()
	if err != nil {
		err = a.troubled(err)
	}
	return lease, err
}

var errLate = errors.New("the store granted the key, but its answer took so long that the lease is over")

// ask asks once: a lease; or neither, of a refusal; or an error after which the store may or
// may not have granted.
//
// Validity counts from before the request, so that a slow reply can only
// shorten it. A grant that came too late is asked for again by the same
// owner, which prolongs it when it still stands.
func (a *attempt) ask() (*Lease, error) {
	start := a.began
	if a.sent {
		start = a.c.now()
	}
	a.sent, a.asked = true, start.Mono
	limit := a.wait.Asks(start)
	ctx := newRequest(a.ctx, a.c.calls.Open, limit)
	defer ctx.done()
	req := a.req
	req.Queue, req.Enters, req.Fences = a.wait.Queue(), a.wait.Enters(), a.behind.fences()
	res, refusal, err := a.c.ask(ctx, req)
	if res.Unsettled || err != nil && !driver.IsNotSent(err) {
		a.wait.Unanswered(err != nil && a.c.answered(err))
	}
	switch err = cmp.Or(err, refusal); {
	case err != nil:
		return nil, a.silence(ctx, start, limit, err)
	case !res.Granted:
		a.refused(start, res)
		return nil, nil //nolint:nilnil // a refusal
	}
	return a.granted(start, res)
}

// granted returns the lease of a grant that was asked for at start, unless its
// time is over, or it is so short that it was asked for again.
func (a *attempt) granted(start clock.Instant, res driver.Result) (*Lease, error) {
	now := a.c.now()
	h := a.hold(start, now, res, a.wait.Granted(res.Abandoned))
	h.req.Fence -= h.turn.share(a.behind, start, res.Fences)
	h.life.Grant(start, now, res.TTL)
	switch left := h.life.Ahead(now); {
	case left <= 0:
		return nil, fmt.Errorf("%w (%v of a TTL of %v)", errLate, clock.Short(now.Sub(start)), res.TTL)
	case left < h.life.Span()/3 && a.wait.Again(): // too little to renew in
		return a.ask()
	}
	a.behind.granted(h)
	lease := h.lease(h.req.Mode)
	if !a.c.renewer.Add(h, now) {
		return nil, ErrClosed
	}
	return lease, nil
}

// hold returns the hold of a grant that was asked for at born, and came at now.
func (a *attempt) hold(born, now clock.Instant, res driver.Result, marked bool) *hold {
	h := newHold(a.c, driver.RenewRequest{Claim: a.req.Claim, TTL: a.req.TTL, Fence: res.Fence}, a.opts, born,
		lifetime.Facts{Settled: a.wait.Settled(), Marked: marked})
	h.grant = grant{slot: res.Slot, abandoned: marked, handoff: res.Handoff}
	if !a.part {
		h.life.Give(now)
	}
	h.tells(a.ctx)
	return h
}

func (a *attempt) refused(start clock.Instant, res driver.Result) {
	held, joined := &HeldError{Holder: res.Holder, Left: res.Left, Ahead: res.Ahead}, a.wait.Queue()
	a.wait.Refused(start, a.c.now(), res, held)
	a.behind.waitsFor(held)
	if !joined {
		return
	}
	a.joined(a.c)
	if !a.briefly {
		a.emit(EventWaiting, func(e *Event) { e.Holder, e.Ahead, e.Left = res.Holder, res.Ahead, res.Left })
	}
}

// sleep waits for a hint, for the moment that the Wait names, or for what the renewer learns of the
// place. It returns the lease of a handover; an error ends the wait for good.
func (a *attempt) sleep() (*Lease, error) {
	now := a.c.now()
	timer := time.NewTimer(a.wait.Until(now) - now.Mono)
	defer timer.Stop()
	for {
		hints, results, wake := a.news()
		select {
		case h := <-hints:
			a.wait.Hinted(h)
			return a.enter(), nil
		case w := <-results:
			if a.subscribed(w) {
				return a.enter(), nil
			}
		case <-timer.C:
			return a.enter(), nil
		case n := <-wake:
			until, wakes := a.wait.Learn(n)
			if wakes {
				return a.enter(), nil
			}
			timer.Reset(until - a.c.now().Mono)
		case <-a.ctx.Done():
			return nil, a.ended()
		case <-a.c.calls.Open.Done():
			return nil, a.ended()
		}
	}
}

// enter returns the lease that the store gave to our place, as a hint told; nil: ask the store. The lease is claimed behind, with its
// first renewal. The argument for its deadline stands in docs/design.md.
func (a *attempt) enter() *Lease {
	hints, _, _ := a.news()
	select {
	case h := <-hints: // a hint that came as the sleep ended
		a.wait.Hinted(h)
	default:
	}
	now := a.c.now()
	e, ok := a.wait.Woke(now)
	if !ok {
		return nil
	}
	h := a.hold(now, now, driver.Result{Fence: e.Fence, Handoff: e.Took}, e.Marked)
	h.grant.entered = true
	h.life.Enter(e.From, now, e.TTL)
	lease := h.lease(Exclusive)
	if !a.c.renewer.Add(h, now) {
		return nil
	}
	return lease
}

// silence says what the error of a call means; the call had until limit after start.
// The end of that limit must not pass for the end of the caller's context; when
// that has ended, the store may be what kept us waiting.
func (a *attempt) silence(ctx context.Context, start clock.Instant, limit time.Duration, err error) error {
	took := a.c.now().Sub(start)
	if by, ok := ctx.Deadline(); ok && time.Until(by) <= 0 {
		took -= time.Since(by) // this process ran later than that, which was not the store's silence
		select {               // a connection that ends at that moment may be faster than the context
		case <-ctx.Done():
		case <-time.After(moment):
		}
	}
	switch {
	case ctx.Err() == nil:
	case a.ended() == nil:
		silent := &silentError{limit: limit}
		if driver.IsNotSent(err) {
			silent.why = err
		}
		return silent
	case a.wait.Outlasts(took, moment):
		a.wait.Blame(&silentError{limit: took})
	}
	return err
}

// troubled has the Wait bear an error, or returns what ends the wait.
func (a *attempt) troubled(err error) error {
	if end := a.ended(); end != nil {
		return end
	}
	if errors.Is(err, ErrClosed) {
		return err
	}
	a.behind.waitsFor(err)
	now := a.c.now()
	if err := a.wait.Failed(now, a.c.trouble(err), err); err != nil {
		return err
	}
	event, left := EventTrouble, a.wait.Bears(now)
	if errors.As(err, new(*admission.HeldBack)) {
		event, left = EventHeldBack, heldBack(err)
	}
	a.emit(event, func(e *Event) { e.Left, e.Err = left, a.c.fail(a.op, a.req.Key, err) })
	return nil
}

// emit tells the observer of this attempt.
func (a *attempt) emit(kind EventKind, more func(e *Event)) {
	if a.c.observe == nil {
		return
	}
	now := a.c.now()
	e := Event{Kind: kind, Key: a.req.Key, Owner: a.req.Owner, Mode: a.req.Mode, TTL: a.req.TTL,
		Waited: now.Sub(a.began)}
	if a.asked != 0 {
		e.Sent = sentAt(a.asked, now)
	}
	switch ends := kind == EventFailed; {
	case ends && a.waits:
		e.Waiters = -1
	case !ends && !a.waits:
		a.waits, e.Waiters = true, 1
	}
	more(&e)
	a.c.emit(a.ctx, e)
}

// fail is the error of an attempt without a lease: with what kept it waiting,
// when the wait was ended.
func (a *attempt) fail(err error) error {
	why := a.wait.Why()
	if why != nil && !errors.Is(why, err) && a.ended() != nil {
		return &Error{Op: a.op, Key: a.req.Key, Engine: a.c.traits.Engine, Class: a.c.classify(why),
			Err: &WaitError{End: err, Why: why}}
	}
	return a.c.fail(a.op, a.req.Key, err)
}

// ended is nil while the wait may go on, or why it is over.
func (a *attempt) ended() error {
	switch {
	case a.ctx.Err() != nil:
		return endOf(a.ctx)
	case a.c.calls.Open.Err() != nil:
		return ErrClosed // the caller's context has not ended
	}
	return nil
}
