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
)

// attempt is one acquisition, from the first Try to a lease or to the last
// trace of it in the store.
type attempt struct {
	c       *core
	ctx     context.Context // bounds the wait: the caller's, ended also by Close
	op      string
	opts    *settings
	part    bool // its lease is nobody's until others are held, too
	began   clock.Instant
	sent    bool          // a Try was sent
	waits   bool          // the observer was told that it waits
	briefly bool          // a TryLock asks a keeper
	asked   time.Duration // when the latest one was, on the monotonic clock
	slowest time.Duration // what the slowest refusal took
	behind  successors
	waiter
}

// waiter is what the store has of an attempt, and what the attempt knows of the
// store. In a cohort it goes from one leader to the next.
type waiter struct {
	req      driver.TryRequest
	patience patience
	maybe    bool            // the store may have something of this owner
	unsure   bool            // a Try had no good answer: it may still come to the store
	lost     bool            // a Try had no answer at all, and may have been granted
	slow     bool            // a grant came so late that it was asked for again
	marked   bool            // a grant said Abandoned
	kept     bool            // a refusal said Keeps
	place    *place          // in the queue, once joined
	answered time.Duration   // when the latest Try of it was answered, on the monotonic clock
	seen     sample          // of the latest refusal
	told     driver.Handover // the newest that a hint told
	sub      *subscription   // once it was to join
}

// alone asks for one who is in no cohort. Without a lease, also when the observer
// panicked, nothing stays in the store.
func (a *attempt) alone(ask func() (*Lease, error)) (lease *Lease, err error) {
	defer func() {
		if lease == nil {
			a.cleanUp(a.c)
		}
	}()
	return ask()
}

// lock is the one loop: try without the queue, watch, try with the queue; then
// wait for a hint or for the moment that the store named, and try.
//
// It watches before it joins, so that a release between the two is not missed, unless the store says that
// it misses none: then it joins at once. So it does after it watched, where it is likely to wait.
func (a *attempt) lock() (*Lease, error) {
	lease, err := a.wait()
	if err != nil {
		return nil, a.fail(err)
	}
	return lease, nil
}

// wait is lock with the bare error.
func (a *attempt) wait() (*Lease, error) {
	a.req.Queue = a.req.Queue || a.c.traits.JoinFirst
	asks := !a.req.Queue
	if asks && a.c.busy.is(a.req.Key) {
		a.joinFirst()
	}
	for ; ; asks = false {
		lease, pause, err := a.try()
		if asks && err == nil {
			a.c.busy.note(a.req.Key, lease == nil)
		}
		if lease != nil {
			a.leaveQueue(a.c)
			return lease, nil
		}
		if err == nil {
			err = a.subscribe()
		}
		if err == nil && !a.req.Queue {
			a.req.Queue = true
			continue
		}
		if err != nil {
			pause, err = a.troubled(err)
		} else {
			a.joined(a.c)
		}
		if err == nil {
			err = a.sleep(pause)
		}
		if err != nil {
			return nil, err
		}
		if lease := a.enter(); lease != nil {
			a.leaveQueue(a.c)
			return lease, nil
		}
	}
}

var errLate = errors.New("the store granted the key, but its answer took so long that the lease is over")

// try asks once: a lease; or a refusal, with the moment to ask again; or an
// error after which the store may or may not have granted.
//
// Validity counts from before the request, so that a slow reply can only
// shorten it. A grant that came too late is asked for again by the same
// owner, which prolongs it when it still stands.
func (a *attempt) try() (*Lease, time.Duration, error) {
	start := a.began
	if a.sent {
		start = a.c.now()
	}
	a.sent, a.asked = true, start.Mono
	limit := a.patience.asks(start, a.req.TTL)
	ctx := newRequest(a.ctx, a.c.calls.Open, limit)
	defer ctx.done()
	a.req.Fences = a.behind.fences()
	res, refusal, err := a.asks(ctx)
	if driver.IsAskAgain(err) && ctx.Err() == nil {
		res, refusal, err = a.asks(ctx)
	}
	switch err = cmp.Or(err, refusal); {
	case err != nil:
		return nil, 0, a.silence(ctx, start, limit, err)
	case !res.Granted:
		a.refused(start, res)
		return nil, res.RetryIn, nil
	}
	a.maybe = true
	return a.granted(start, res)
}

// asks is one Try; refusal is of one that is about the store.
func (a *attempt) asks(ctx context.Context) (res driver.Result, refusal, err error) {
	res, refusal, err = a.c.ask(ctx, a.req)
	if err != nil && !driver.IsNotSent(err) {
		a.maybe, a.unsure, a.req.Enters = true, true, false // when that Try comes, it says that we did not enter
		a.lost = a.lost || !a.c.answered(err)
	}
	return res, refusal, err
}

// granted returns the lease of a grant that was asked for at start, unless its
// time is over, or it is so short that it was asked for again.
func (a *attempt) granted(start clock.Instant, res driver.Result) (*Lease, time.Duration, error) {
	now := a.c.now()
	a.marked = a.marked || res.Abandoned
	h := a.hold(start, now, res)
	h.req.Fence -= h.turn.share(a.behind, start, res.Fences)
	h.life.Grant(start, now, res.TTL)
	switch left := h.life.Ahead(now); {
	case left <= 0:
		return nil, 0, fmt.Errorf("%w (%v of a TTL of %v)", errLate, shortDuration(now.Sub(start)), res.TTL)
	case left < h.life.Span()/3 && a.req.Queue && !a.slow:
		a.slow = true // too little to renew in: ask once more, which prolongs it
		return a.try()
	}
	a.behind.granted(h)
	lease := h.lease(h.req.Mode)
	if !a.c.renewer.Add(h, now) {
		return nil, 0, ErrClosed
	}
	return lease, 0, nil
}

// hold returns the hold of a grant that was asked for at born, and came at now.
func (a *attempt) hold(born, now clock.Instant, res driver.Result) *hold {
	h := newHold(a.c, driver.RenewRequest{Claim: a.req.Claim, TTL: a.req.TTL, Fence: res.Fence}, a.opts, born,
		lifetime.Facts{Settled: !a.unsure, Marked: a.marked})
	h.grant = grant{slot: res.Slot, abandoned: a.marked, handoff: res.Handoff}
	if !a.part {
		h.life.Give(now)
	}
	h.tells(a.ctx)
	return h
}

func (a *attempt) refused(start clock.Instant, res driver.Result) {
	a.seen, a.kept = sample{start, res.At, res.Fence}, res.Keeps
	a.slowest = max(a.slowest, a.c.now().Sub(start))
	a.maybe = a.maybe || a.req.Queue
	held := &HeldError{Holder: res.Holder, Left: res.Left, Ahead: res.Ahead}
	a.patience.refused(held)
	a.behind.waitsFor(held)
	if !a.req.Queue || a.briefly {
		return // TryLock; or Watch is still to come
	}
	a.emit(EventWaiting, func(e *Event) { e.Holder, e.Ahead, e.Left = res.Holder, res.Ahead, res.Left })
}

// emit tells the observer of this attempt.
func (a *attempt) emit(kind EventKind, more func(e *Event)) {
	if a.c.observe == nil {
		return
	}
	now := a.c.now()
	e := Event{Kind: kind, Context: a.ctx, Key: a.req.Key, Owner: a.req.Owner, Mode: a.req.Mode, TTL: a.req.TTL,
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
	a.c.emit(e)
}

// silence returns what an error of a call means that had until limit after start.
// Nobody takes the end of that for the end of the caller's context; when it is
// that, the store may be what kept us waiting.
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
	case a.patience.why == nil || took >= moment+a.slowest:
		a.patience.why = &silentError{limit: took}
	}
	return err
}

// troubled says how long to wait after an error before asking again, or
// returns what ends the wait.
func (a *attempt) troubled(err error) (time.Duration, error) {
	if end := a.ended(); end != nil {
		return 0, end
	}
	if errors.Is(err, ErrClosed) {
		return 0, err
	}
	a.patience.why = err
	a.behind.waitsFor(err)
	kind, now := a.c.trouble(err), a.c.now()
	if kind == permanent {
		return 0, err
	}
	pause := a.patience.failed(now, kind)
	if err := a.patience.exhausted(now, pause, a.req.TTL); err != nil {
		return 0, err
	}
	event, left := EventTrouble, max(a.patience.bound(now, a.req.TTL).left(), 0)
	if errors.As(err, new(*admission.HeldBack)) {
		event, left = EventHeldBack, heldBack(err)
	}
	a.emit(event, func(e *Event) { e.Left, e.Err = left, a.c.fail(a.op, a.req.Key, err) })
	return pause, nil
}

// joined puts our place in the queue under the renewer's care.
func (w *waiter) joined(c *core) {
	now := c.now()
	w.answered = now.Mono
	if w.place != nil {
		w.place.seen(now)
		return
	}
	r := driver.RenewRequest{Claim: w.req.Claim, TTL: w.req.TTL, Queue: true, Patience: w.req.Patience}
	w.place = &place{req: r, now: c.now, wake: make(chan news, 1)}
	w.place.seen(now)
	c.renewer.Add(w.place, now)
}

// leaveQueue ends what only a waiter needs.
func (w *waiter) leaveQueue(c *core) {
	if w.place != nil {
		c.renewer.Remove(w.place)
	}
	if w.sub != nil {
		w.sub.end()
	}
}

// sleep waits for a hint, or for pause, or for what the renewer learns of our
// place. An error ends the wait for good.
func (a *attempt) sleep(pause time.Duration) error {
	var sub subscription
	if a.sub != nil {
		sub = *a.sub
	}
	polls := sub.hints == nil && !a.patience.failing()
	switch most := a.req.Patience; {
	case polls: // the moment that the store named may come earlier than it thought
		pause = min(cmp.Or(pause, most), most/3)
	case pause <= 0:
		pause = most
	}
	until := a.c.now().Mono + pause
	var wake <-chan news
	if a.place != nil {
		wake = a.place.wake
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case h := <-sub.hints:
			a.hinted(h)
			return nil
		case h := <-sub.results:
			if a.subscribed(h); h.hints != nil {
				return nil // ask, so that the store knows that this place gets hints now
			}
		case <-timer.C:
			return nil
		case n := <-wake:
			old := n.asked < a.answered // or of the same time: it puts nothing off
			if old {
				n.at = min(n.at, until)
			}
			if n.gone || polls && !old {
				return nil
			}
			if !a.patience.failing() { // the pause after an error stands
				until = n.at
				timer.Reset(until - a.c.now().Mono)
			}
		case <-a.ctx.Done():
			return a.ended()
		case <-a.c.calls.Open.Done():
			return a.ended()
		}
	}
}

// fail is the error of an attempt without a lease: with what kept it waiting,
// when the wait was ended.
func (a *attempt) fail(err error) error {
	why := a.patience.why
	if why != nil && !errors.Is(why, err) && a.ended() != nil {
		return &Error{Op: a.op, Key: a.req.Key, Engine: a.c.traits.Engine, Class: a.c.classify(why),
			Err: &WaitError{End: err, Why: why}}
	}
	return a.c.fail(a.op, a.req.Key, err)
}

// cleanUp ends an attempt without a lease: it leaves nothing in the store, in
// the background when the store is slow or away.
func (w *waiter) cleanUp(c *core) {
	w.leaveQueue(c)
	if w.maybe {
		r := driver.ReleaseRequest{Claim: w.req.Claim, TTL: w.req.TTL, End: driver.Unused, Settled: !w.unsure}
		c.cleanUp(r, w.lost, w.patience.failing())
	}
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
