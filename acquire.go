// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/internal/wait"
)

const (
	// watchLimit bounds how long a waiter stays out of the queue for the sake of
	// its subscription. Then it joins, and polls until one is confirmed.
	watchLimit = time.Second
	// After a Watch that failed the next one comes after so long, and twice as
	// long after each more, up to the other.
	watchPause    = 500 * time.Millisecond
	maxWatchPause = 10 * time.Second
	// watchFirst is how long a Lock of a busy key waits for a Watch before it asks for the first time: it is
	// answered at once where the subscription stands.
	watchFirst = 5 * time.Millisecond
)

// lockCall is one call of Lock or TryLock.
type lockCall struct {
	*lock
	ctx    context.Context // bounds the wait: the caller's; Close ends it only in Locks, so each wait looks at calls.Open, too
	op     string
	waits  bool // it is a Lock
	partly bool // its lease is not the caller's until others are held, too
}

// source is where the leases of a lock come from: the store, unless its options say that calls take turns on a lease.
type source func(lockCall) (*Lease, error)

// direct is the source that asks the store for each call.
func (cl lockCall) direct() (*Lease, error) {
	cl.c.cohorts.releaseKey(cl.ctx, cl.key) // a key that this client keeps, perhaps with other options (LockOptions.Keep)
	a := cl.attempt()
	return a.tell(a.alone())
}

// attempt is one acquisition, from the first Try to a lease or to the last
// trace of it in the store. How it goes on is decided by its wait.Wait; attempt does it.
type attempt struct {
	lockCall
	began       clock.Instant
	fromRequest bool          // false for the first Try: its lease counts from began
	tried       bool          // the first Try was made, or says nothing of the key since it joins: c.busy needs no note
	waiting     bool          // the observer was told that it waits
	asked       time.Duration // when the latest Try was sent, on the monotonic clock
	waiter
}

// attempt returns what a call that asks the store begins with: a value, which stays on the stack of a direct call.
func (cl lockCall) attempt() attempt {
	return attempt{lockCall: cl, began: cl.c.now(), waiter: waiter{wait: wait.New(&cl.opts.waits, cl.enters), req: driver.TryRequest{
		Claim:    driver.Claim{Key: cl.key, Owner: rand.Text(), Label: cl.c.labels.label(&cl.opts.LockOptions), Mode: cl.mode, Limit: cl.limit},
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
		a.emit(event.Failed, func(e *event.Event) { e.Err = err })
		return nil, err
	}
	lease.emitAcquired(a.began, a.waiting)
	return lease, nil
}

// begin begins a Lock, which takes as many steps as it needs.
func (a *attempt) begin() {
	a.wait.Begin(a.c.traits.Tells.Has(driver.TellsEarlier), a.c.busy.is(a.key))
	a.tried = a.wait.Queue()
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
	if a.wait.Kept() && !a.c.cohorts.has(a.key) {
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

// keeperTime is what a keeper needs beside the store: see attempt.keeperLimit.
const keeperTime = 5 * time.Millisecond

// askKeeper joins, which tells the keeper, and waits until it has given the key back, for keeperLimit at most. Whatever goes wrong
// is as if it was not asked: neither a lease nor an error.
func (a *attempt) askKeeper() (lease *Lease, err error) {
	why := a.wait.Why()
	defer func() {
		if err != nil && a.ended() == nil {
			a.wait.Blame(why)
			err = nil
		}
	}()
	timer := time.NewTimer(a.keeperLimit())
	defer timer.Stop()
	if err := a.subscribe(timer.C); a.sub.hints == nil {
		return nil, err
	}
	a.wait.Join()
	lease, err = a.ask()
	for joined := a.c.now(); lease == nil && err == nil; lease, err = a.ask() {
		timer.Reset(a.keeperLimit() - a.c.now().Sub(joined))
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

// keeperLimit is how long a keeper may need: for the message to it, its release, and the message of that. With thousands of keys at
// once all requests take longer, ours and the keeper's.
func (a *attempt) keeperLimit() time.Duration { return min(3*a.wait.Slowest()+keeperTime, tryLimit) }

// try is ask with errors that the Wait bears. The observer is told of a refusal to a waiter.
func (a *attempt) try() (*Lease, error) {
	joins, first := a.wait.Queue(), !a.tried
	a.tried = true
	lease, err := a.ask()
	if err != nil {
		return nil, a.troubled(err)
	}
	if first {
		a.c.busy.note(a.key, lease == nil)
	}
	if lease == nil && joins {
		held, _ := a.wait.Why().(*HeldError) //nolint:errorlint // as it was noted
		a.emit(event.Waiting, func(e *event.Event) { e.Holder, e.Ahead, e.Left = held.Holder, held.Ahead, held.Left })
	}
	return lease, nil
}

var errLate = errors.New("the store granted the key, but its answer took so long that the lease is over")

// ask sends one Try. It returns a lease if that is granted, nil and nil if it is refused, else an error, after which the
// store may still grant.
//
// Validity counts from before the request, so that a slow reply can only
// shorten it. A grant that came too late is asked for again by the same
// owner, which prolongs it when it still stands: at once if it is short (granted), after a pause if it is over (errLate).
func (a *attempt) ask() (*Lease, error) {
	start := a.began
	if a.fromRequest {
		start = a.c.now()
	}
	a.fromRequest, a.asked = true, start.Mono
	limit := a.wait.Asks(start)
	ctx := newRequest(a.ctx, a.c.calls.Open, limit)
	defer ctx.done()
	req := a.req
	req.Queue, req.Enters = a.wait.Queue(), a.wait.Enters()
	res, storeErr, err := a.c.tryStore(ctx, req)
	if res.Unsettled || err != nil && !driver.IsNotSent(err) {
		a.wait.Unanswered(!res.Unsettled && a.c.answered(err)) // Unsettled: the engine sent it twice, and this answers the second
	}
	switch err = cmp.Or(err, storeErr); {
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
		return nil, fmt.Errorf("%w (%v of a TTL of %v)", errLate, short(now.Sub(start)), res.TTL)
	case left < h.life.Span()/3 && a.wait.AskAgain(): // too little to renew in
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
	h := newHold(a.c, driver.RenewRequest{Claim: a.req.Claim, TTL: a.req.TTL, Fence: fence}, &a.opts, born,
		lifetime.Facts{Settled: a.wait.Settled(), Marked: marked})
	h.grant = grant{slot: res.Slot, abandoned: marked, handoff: res.Handoff, fences: res.Fences}
	if !a.partly {
		h.life.Give(now)
	}
	h.setCaller(a.ctx)
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
	kind, left := event.Trouble, a.wait.Bears(now)
	if errors.As(err, new(*admission.HeldBack)) {
		kind, left = event.HeldBack, heldBack(err)
	}
	a.emit(kind, func(e *event.Event) { e.Left, e.Err = left, a.c.fail(a.op, a.req.Key, err) })
	return nil
}

// emit tells the observer of this attempt.
func (a *attempt) emit(kind event.Kind, more func(e *event.Event)) {
	if a.c.observe == nil {
		return
	}
	now := a.c.now()
	e := events.Get().(*event.Event)
	e.Kind, e.Key, e.Owner, e.Mode, e.TTL, e.Waited = kind, a.req.Key, a.req.Owner, a.req.Mode, a.req.TTL, now.Sub(a.began)
	if a.asked != 0 {
		e.Sent = sentAt(a.asked, now)
	}
	switch ends := kind == event.Failed; {
	case ends && a.waiting:
		e.WaiterDelta = -1
	case !ends && !a.waiting:
		a.waiting, e.WaiterDelta = true, 1
	}
	more(e)
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

// waiter is what the store has of an attempt, and what the attempt knows of the
// store. In a cohort it goes from one leader to the next.
type waiter struct {
	req   driver.TryRequest // but for what changes from one Try to the next
	wait  wait.Wait
	place *place        // in the queue, once joined
	sub   *subscription // once it was to join
}

// joined puts the place in the queue under the renewer's care, after a Try that joins was answered.
func (w *waiter) joined(c *core) {
	now := c.now()
	if w.place != nil {
		w.place.seen(now)
		return
	}
	r := driver.RenewRequest{Claim: w.req.Claim, TTL: w.req.TTL, Queue: true, Patience: w.req.Patience}
	w.place = &place{req: r, now: c.now, wake: make(chan wait.News, 1)}
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

// cleanUp ends an attempt without a lease: it leaves nothing in the store, in
// the background when the store is slow or away.
func (w *waiter) cleanUp(c *core) {
	w.leaveQueue(c)
	if something, lost := w.wait.Left(); something {
		r := driver.ReleaseRequest{Claim: w.req.Claim, TTL: w.req.TTL, End: driver.EndUnused, Settled: w.wait.Settled()}
		c.cleanUp(r, lost, w.wait.Failing(), releaseLimit)
	}
}

// news returns what may end a sleep: hints, the answers to Watch, and what the renewer learns of the place.
func (w *waiter) news() (hints <-chan driver.Hint, results <-chan watched, wake <-chan wait.News) {
	if w.sub != nil {
		hints, results = w.sub.hints, w.sub.results
	}
	if w.place != nil {
		wake = w.place.wake
	}
	return hints, results, wake
}

// place is a waiter's entry in the queue: the renewer gives its signs of life,
// one batch for all waiters of a client.
type place struct {
	keepalive.Entry
	req  driver.RenewRequest
	now  clock.Clock
	wake chan wait.News // room for one

	mu     sync.Mutex
	signAt time.Duration // when the next sign of life is due
}

// seen notes that the store just answered a Try, which is a sign of life.
func (p *place) seen(now clock.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signAt = now.Mono + p.req.Patience/3
}

// NextLook is when the next sign of life is due.
func (p *place) NextLook(clock.Instant) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.signAt
}

// Due says whether that is now. A place is never over by itself.
func (p *place) Due(now clock.Instant, hurry bool) (renew, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if hurry || now.Mono+min(keepalive.Tick, p.req.Patience/12) >= p.signAt {
		renew, p.signAt = true, now.Mono+p.req.Patience/3
	}
	return renew, false
}

// Expire is never called.
func (p *place) Expire() func() { return nil }

// Request is the sign of life.
func (p *place) Request() (driver.RenewRequest, bool) { return p.req, true }

// Renewed passes on what the store said. An error makes the waiter ask for
// itself, which finds out whether to go on waiting.
func (p *place) Renewed(start clock.Instant, r driver.Renewal) {
	switch {
	case errors.Is(r.Err, ErrNotHeld):
		p.learned(wait.News{Asked: start.Mono, At: p.now().Mono, Gone: true})
	case r.Err != nil:
		p.learned(wait.News{Asked: start.Mono, At: p.now().Mono + backoff.Jitter(50*time.Millisecond)})
	case r.RetryIn > 0:
		p.learned(wait.News{Asked: start.Mono, At: p.now().Mono + r.RetryIn})
	}
}

// learned tells the waiter to try then, or earlier where earlier news, which it has not seen, said so.
func (p *place) learned(n wait.News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case before := <-p.wake:
		n.At, n.Gone = min(n.At, before.At), n.Gone || before.Gone
	default:
	}
	p.wake <- n
}

// subscription delivers hints to an owner in the queue. It goes with the place from one
// leader of a cohort to the next, and so does not depend on a caller's context.
type subscription struct {
	hints   <-chan driver.Hint // nil: none come, ask at intervals
	results chan watched       // unbuffered: the answers to Watch
	end     context.CancelFunc
}

// watched is the answer to a Watch.
type watched struct {
	hints <-chan driver.Hint
	err   error
}

// listen watches in the background until end is called, again and again where
// that fails.
func (c *core) listen(claim driver.Claim) *subscription {
	ctx, cancel := context.WithCancel(c.calls.Open)
	s := &subscription{results: make(chan watched), end: cancel}
	c.calls.EnterLate()
	go func() {
		defer c.calls.Leave()
		limit := watchLimit
		pause := backoff.Backoff{Least: watchPause, Most: maxWatchPause}
		for {
			h := c.watch(ctx, limit, claim)
			select {
			case s.results <- h:
			case <-ctx.Done():
				return
			}
			if h.err == nil {
				return
			}
			if limit = tryLimit; !pause.Wait(ctx.Done()) {
				return
			}
		}
	}()
	return s
}

var errUnconfirmed = errors.New("the store did not confirm the subscription")

// watch asks once. Its context outlives it, for the hints.
func (c *core) watch(ctx context.Context, limit time.Duration, claim driver.Claim) (h watched) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(limit, cancel)
	h.hints, h.err = c.drv.Watch(ctx, claim)
	if !timer.Stop() {
		h.err = errUnconfirmed
	}
	if h.err != nil {
		cancel()
	}
	return h
}

// subscribe asks for the hints for this owner, and waits until that is
// confirmed or has failed once, or until over. An error ends the wait; a store that answers
// Try and not Watch does not.
func (a *attempt) subscribe(over <-chan time.Time) error {
	if a.sub == nil {
		a.sub = a.c.listen(a.req.Claim)
	}
	select {
	case w := <-a.sub.results:
		a.subscribed(w)
		return nil
	case <-over:
		a.wait.Unwatched()
		return nil
	case <-a.ctx.Done():
	case <-a.c.calls.Open.Done():
	}
	return a.ended()
}

// watchBriefly subscribes, if a Watch is answered at once, as where the subscription stands.
func (a *attempt) watchBriefly() error {
	timer := time.NewTimer(watchFirst)
	defer timer.Stop()
	a.fromRequest = true // what the store grants counts from the Try
	return a.subscribe(timer.C)
}

// subscribed notes the answer to a Watch. wakes: it ends a sleep.
func (a *attempt) subscribed(w watched) (wakes bool) {
	a.c.busy.deaf.Store(w.err != nil)
	a.sub.hints = w.hints
	if w.err != nil {
		a.sub.hints = nil
		a.emit(event.Trouble, func(e *event.Event) {
			e.Sent = time.Time{} // that is a Try's
			e.Err = a.c.fail(a.op, a.req.Key, fmt.Errorf("the store sends no hints when the key is free, so this polls: %w", w.err))
		})
	}
	return a.wait.Watched(a.sub.hints != nil)
}
