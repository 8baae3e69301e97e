// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/internal/wait"
)

// target is what the calls of a lock ask for. It never changes.
type target struct {
	c      *core
	key    string
	opts   *settings // its own, and never changed: a handle may be overwritten while its leases live
	mode   Mode
	limit  int
	enters bool // a waiter enters on a handover
}

// call is one call of Lock or TryLock.
type call struct {
	*target
	ctx    context.Context // bounds the wait: the caller's, ended also by Close
	op     string
	waits  bool // it is a Lock
	partly bool // its lease is not the caller's until others are held, too
}

// source is where the leases of a lock come from: the store, unless its options say that calls take turns on a lease.
type source interface {
	lease(call) (*Lease, error)
}

// store is the source that asks the store for each call.
type store struct{}

func (store) lease(cl call) (*Lease, error) {
	cl.c.shelf.clear(cl.ctx, cl.key)
	a := cl.attempt()
	return a.tell(a.alone())
}

// attempt is one acquisition, from the first Try to a lease or to the last
// trace of it in the store. How it goes on is decided by its wait.Wait; attempt does it.
type attempt struct {
	call
	began   clock.Instant
	sent    bool          // what the store grants counts from the request, not from began
	noted   bool          // the first Try was answered
	waiting bool          // the observer was told that it waits
	asked   time.Duration // when the latest Try was sent, on the monotonic clock
	waiter
}

// attempt returns what a call that asks the store begins with.
func (cl call) attempt() *attempt {
	return &attempt{call: cl, began: cl.c.now(), waiter: waiter{wait: wait.New(&cl.opts.waits, cl.enters), req: driver.TryRequest{
		Claim:    driver.Claim{Key: cl.key, Owner: rand.Text(), Label: cl.c.labels.label(cl.opts.Reason), Mode: cl.mode, Limit: cl.limit},
		TTL:      cl.opts.TTL,
		Patience: cl.opts.waits.Patience,
	}}}
}

// alone asks for the caller alone. Without a lease, also when the observer panicked, nothing stays in the store.
func (a *attempt) alone() (lease *Lease, err error) {
	defer func() {
		if lease == nil {
			a.cleanUp(a.c)
		}
	}()
	if !a.waits {
		return a.tryLock()
	}
	for a.begin(); lease == nil && err == nil; {
		lease, err = a.step()
	}
	return lease, err
}

// tell tells the observer what came of the attempt.
func (a *attempt) tell(lease *Lease, err error) (*Lease, error) {
	if err != nil {
		a.emit(EventFailed, func(e *Event) { e.Err = err })
		return nil, err
	}
	lease.acquired(a.began, a.waiting)
	return lease, nil
}

// begin begins a Lock, which takes as many steps as it needs.
func (a *attempt) begin() {
	a.wait.Begin(a.c.traits.JoinFirst, a.c.busy.is(a.key))
	a.noted = a.wait.Queue()
}

// step asks, watches or sleeps, as its Wait says. It returns a lease, or an error that ends the Lock, or neither.
func (a *attempt) step() (lease *Lease, err error) {
	switch a.wait.Next() {
	case wait.WatchBriefly:
		err = a.watchBriefly()
	case wait.Watch:
		err = a.subscribe(nil)
	case wait.Ask:
		lease, err = a.try()
	case wait.Sleep:
		lease, err = a.sleep()
	}
	switch {
	case err != nil:
		return nil, a.fail(err)
	case lease != nil:
		a.leaveQueue(a.c)
	}
	return lease, nil
}

// tryLock asks once, and waits only where the holder keeps the key for no caller, until it has given it back.
func (a *attempt) tryLock() (*Lease, error) {
	lease, err := a.ask()
	if a.wait.Kept() && !a.c.shelf.has(a.key) {
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

// try is ask with errors that the Wait bears. The observer is told of a refusal to a waiter.
func (a *attempt) try() (*Lease, error) {
	joins, first := a.wait.Queue(), !a.noted
	a.noted = true
	lease, err := a.ask()
	if err != nil {
		return nil, a.troubled(err)
	}
	if first {
		a.c.busy.note(a.key, lease == nil)
	}
	if lease == nil && joins {
		held, _ := a.wait.Why().(*HeldError) //nolint:errorlint // as it was noted
		a.emit(EventWaiting, func(e *Event) { e.Holder, e.Ahead, e.Left = held.Holder, held.Ahead, held.Left })
	}
	return lease, nil
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
	req.Queue, req.Enters = a.wait.Queue(), a.wait.Enters()
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
	h.life.Grant(start, now, res.TTL)
	switch left := h.life.Ahead(now); {
	case left <= 0:
		return nil, fmt.Errorf("%w (%v of a TTL of %v)", errLate, clock.Short(now.Sub(start)), res.TTL)
	case left < h.life.Span()/3 && a.wait.Again(): // too little to renew in
		return a.ask()
	}
	lease := h.lease(h.req.Mode)
	if !a.c.renewer.Add(h, now) {
		return nil, ErrClosed
	}
	return lease, nil
}

// hold returns the hold of a grant that was asked for at born, and came at now.
func (a *attempt) hold(born, now clock.Instant, res driver.Result, marked bool) *hold {
	fence := res.Fence - uint64(max(res.Fences, 1)-1) // the smallest of those that were granted
	h := newHold(a.c, driver.RenewRequest{Claim: a.req.Claim, TTL: a.req.TTL, Fence: fence}, a.opts, born,
		lifetime.Facts{Settled: a.wait.Settled(), Marked: marked})
	h.grant = grant{slot: res.Slot, abandoned: marked, handoff: res.Handoff, fences: res.Fences}
	if !a.partly {
		h.life.Give(now)
	}
	h.tells(a.ctx)
	return h
}

func (a *attempt) refused(start clock.Instant, res driver.Result) {
	joined := a.wait.Queue()
	a.wait.Refused(start, a.c.now(), res, &HeldError{Holder: res.Holder, Left: res.Left, Ahead: res.Ahead})
	if joined {
		a.joined(a.c)
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
	h.grant.unasked = true
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
	case ends && a.waiting:
		e.Waiters = -1
	case !ends && !a.waiting:
		a.waiting, e.Waiters = true, 1
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
