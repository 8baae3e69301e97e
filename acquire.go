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
	"github.com/hasplock/hasp/internal/clock"
)

// attempt is one acquisition, from the first Try to a lease or to the last
// trace of it in the store.
type attempt struct {
	l     *lock
	c     *Client
	ctx   context.Context // bounds the wait: the caller's, ended also by Close
	op    string
	part  bool // its lease is nobody's until others are held, too
	req   driver.Request
	began clock.Instant

	asked   bool          // a Try was sent
	silent  clock.Instant // when the first call began that had no good answer
	puzzled clock.Instant // since when no error was one that the engine knows
	backoff time.Duration // after the latest error, 0 when all is well
	kept    error         // what keeps us waiting: the latest refusal or error
	maybe   bool          // the store may have something of this owner
	unsure  bool          // a Try had no answer: it may still come to the store
	slow    bool          // a grant came so late that it was asked for again
	marked  bool          // a grant said Abandoned

	cohort *cohort       // which we lead, or nil
	place  *place        // our place in line, once joined
	sub    *subscription // once it was to join
}

// tryLock asks once.
func (a *attempt) tryLock() (*Lease, error) {
	lease, _, err := a.try()
	switch {
	case lease != nil:
		return lease, nil
	case err == nil:
		err = a.kept
	default:
		err = cmp.Or(a.ended(), err)
	}
	return nil, a.giveUp(err)
}

// lock is the one loop: try without the line, watch, try with the line; then
// wait for a hint or for the moment that the store named, and try.
//
// It watches before it joins, so that a release between the two is not missed.
func (a *attempt) lock() (*Lease, error) {
	for {
		lease, pause, err := a.try()
		if lease != nil {
			a.leaveLine()
			return lease, nil
		}
		if err == nil && !a.req.Queue {
			if err = a.subscribe(); err == nil {
				a.req.Queue = true
				continue
			}
		}
		if err != nil {
			pause, err = a.troubled(err)
		} else {
			a.joined()
		}
		if err == nil {
			err = a.sleep(pause)
		}
		if err != nil {
			return nil, a.giveUp(err)
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
	if a.asked {
		start = a.c.now()
	}
	a.asked = true
	if a.backoff == 0 {
		a.silent = start
	}
	limit := a.limit(start)
	ctx, cancel := context.WithTimeout(a.ctx, limit)
	defer cancel()
	defer context.AfterFunc(a.c.open, cancel)()
	if a.cohort != nil {
		a.req.Fences = a.cohort.fences()
	}
	res, refusal, err := a.c.ask(ctx, a.req)
	if err != nil {
		if !driver.IsNotSent(err) {
			a.maybe, a.unsure = true, true
		}
		return nil, 0, a.silence(ctx, start, limit, err)
	}
	if refusal != nil {
		return nil, 0, a.silence(ctx, start, limit, refusal)
	}
	if !res.Granted {
		a.refused(res)
		return nil, res.RetryIn, nil
	}
	a.maybe = true
	now := a.c.now()
	a.marked = a.marked || res.Abandoned
	h := &hold{c: a.c, req: a.req, opts: a.l.opts, born: start, number: res.Slot, abandoned: a.marked, used: !a.part}
	h.req.Queue, h.req.Fences, h.req.Fence, h.req.Settled = false, 0, res.Fence, !a.unsure
	h.granted(start, now, res.TTL)
	if a.cohort != nil {
		h.share(a.cohort, start, res)
	}
	h.idle = now.Sub(h.born) // MaxHold counts from when the caller has it
	switch left := h.valid - now.Sub(h.start) - h.opts.Lead; {
	case left <= 0:
		return nil, 0, fmt.Errorf("%w (%v of a TTL of %v)", errLate, shortDuration(now.Sub(start)), res.TTL)
	case left < h.span()/3 && a.req.Queue && !a.slow:
		a.slow = true // too little to renew in: ask once more, which prolongs it
		return a.try()
	}
	lease := h.handle(h.req.Mode)
	if !h.first(now, now.Sub(a.began)) {
		return nil, 0, ErrClosed
	}
	return lease, 0, nil
}

// limit is how long the call that begins at start may take.
func (a *attempt) limit(start clock.Instant) time.Duration {
	limit, most := min(a.req.TTL, tryLimit), a.c.maxSilence
	if most == 0 {
		return limit
	}
	// Half of the silence that a wait bears, so that one dead connection does
	// not end it; and not more than is left of it. Nothing is left when this
	// process stood still meanwhile, which was not the store's silence.
	limit = min(limit, most/2)
	if left := most - start.Sub(a.silent); left > 0 {
		limit = min(limit, left)
	}
	return limit
}

// silence returns what an error of a call means that had until limit after start.
// Nobody takes the end of that for the end of the caller's context; when it is
// that, the store may be what kept us waiting.
func (a *attempt) silence(ctx context.Context, start clock.Instant, limit time.Duration, err error) error {
	took := a.c.now().Sub(start)
	switch {
	case ctx.Err() == nil:
	case a.ended() == nil:
		return &silentError{limit}
	case a.kept == nil || took >= moment:
		a.kept = &silentError{took}
	}
	return err
}

func (a *attempt) refused(res driver.Result) {
	a.maybe = a.maybe || a.req.Queue
	held := &HeldError{Holder: res.Holder, Left: res.Left, Ahead: res.Ahead}
	a.kept = held
	if a.cohort != nil {
		a.cohort.keeps(held)
	}
	a.backoff = 0
	if !a.req.Queue {
		return // TryLock; or Watch is still to come
	}
	a.c.emit(Event{Kind: EventWaiting, Key: a.req.Key, Owner: a.req.Owner, Holder: res.Holder,
		Mode: a.req.Mode, Ahead: res.Ahead, Left: res.Left, Waited: a.c.now().Sub(a.began)})
}

// joined puts our place in line under the renewer's care.
func (a *attempt) joined() {
	now := a.c.now()
	if a.place != nil {
		a.place.seen(now)
		return
	}
	a.place = &place{c: a.c, req: a.req, wake: make(chan time.Duration, 1)}
	a.place.seen(now)
	a.c.renewer.add(a.place, now)
}

// leaveLine ends what only a waiter needs.
func (a *attempt) leaveLine() {
	if a.place != nil {
		a.c.renewer.remove(a.place)
	}
	if a.sub != nil {
		a.sub.end()
	}
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
	a.kept = err
	if a.cohort != nil {
		a.cohort.keeps(err)
	}
	if !a.c.worthAsking(err) {
		return 0, err
	}
	if a.backoff == 0 || a.c.classify(err) != ClassUnknown {
		a.puzzled = a.c.now()
	}
	a.backoff = min(max(2*a.backoff, 20*time.Millisecond), time.Second)
	pause := jitter(a.backoff)
	if err := a.tired(pause); err != nil {
		return 0, err
	}
	a.c.emit(Event{Kind: EventTrouble, Key: a.req.Key, Owner: a.req.Owner, Mode: a.req.Mode, Left: heldBack(err),
		Err: err, Waited: a.c.now().Sub(a.began)})
	return pause, nil
}

// tired returns what ends a wait without a good answer, once pause has passed: a
// silence that the client bears no longer; or errors that the engine does not
// know, and that may stay for ever.
func (a *attempt) tired(pause time.Duration) error {
	now, most := a.c.now(), a.c.maxSilence
	silent, puzzled := now.Sub(a.silent), now.Sub(a.puzzled)
	switch {
	case most > 0 && silent+pause >= most:
		return fmt.Errorf("no good answer from the store for %v: %w", shortDuration(silent), a.kept)
	case puzzled+pause >= max(a.req.TTL, tryLimit):
		return fmt.Errorf("the store has failed for %v, and not for being away: %w", shortDuration(puzzled), a.kept)
	}
	return nil
}

// sleep waits for a hint, or for pause, or for what the renewer learns of our
// place. An error ends the wait for good.
func (a *attempt) sleep(pause time.Duration) error {
	var sub subscription
	if a.sub != nil {
		sub = *a.sub
	}
	polls := sub.hints == nil && a.backoff == 0
	switch most := a.req.Patience; {
	case polls: // the moment that the store named may come earlier than it thought
		pause = min(cmp.Or(pause, most), most/3)
	case pause <= 0:
		pause = most
	}
	var news <-chan time.Duration
	if a.place != nil {
		news = a.place.wake
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-sub.hints:
			return nil
		case h := <-sub.news:
			if a.subscribed(h); h.hints != nil {
				return nil // the store is to know that this place can be told
			}
		case <-timer.C:
			return nil
		case in := <-news:
			if in <= 0 || polls {
				return nil
			}
			if a.backoff == 0 { // after an error: ask soon, whatever was told before
				timer.Reset(in)
			}
		case <-a.ctx.Done():
			return a.ended()
		case <-a.c.open.Done():
			return a.ended()
		}
	}
}

// giveUp ends an attempt without a lease: it leaves nothing in the store, in
// the background when the store is slow or away, and says why. What a cohort has
// in the store is the next leader's.
func (a *attempt) giveUp(err error) error {
	if a.cohort == nil || !a.cohort.lead(a) {
		a.cleanUp()
	}
	if a.kept != nil && !errors.Is(a.kept, err) && a.ended() != nil {
		class := a.c.classify(a.kept)
		return &Error{Op: a.op, Key: a.req.Key, Engine: a.c.traits.Engine, Class: class,
			Err: &WaitError{End: err, Kept: a.kept}}
	}
	return a.c.fail(a.op, a.req.Key, err)
}

func (a *attempt) cleanUp() {
	a.leaveLine()
	if a.maybe {
		req := a.req
		req.Settled, req.End = !a.unsure, driver.Unused
		a.c.giveBack(req, a.backoff > 0)
	}
}

// ended is nil while the wait may go on, or why it is over.
func (a *attempt) ended() error {
	switch {
	case a.ctx.Err() != nil:
		return endOf(a.ctx)
	case a.c.open.Err() != nil:
		return ErrClosed // the caller's context has not ended
	}
	return nil
}

// endOf returns why a context ended, with its cause where that says more.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err { //nolint:errorlint // the very value: there is no more to say
		return err
	}
	if errors.Is(cause, ErrClosed) {
		return ErrClosed // the caller's context has not ended
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// worthAsking says whether an error may go away by itself.
func (c *Client) worthAsking(err error) bool {
	class := c.classify(err)
	return class == ClassUnknown || class == ClassUnreachable
}
