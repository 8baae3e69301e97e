// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// Lease is the right to a key until it ends: by Release, or by loss. It is
// renewed in the background unless NoRenew was asked for. All methods may be
// called by many goroutines at once.
//
// A lease has a time limit, so it cannot protect data by itself: a process
// that was stopped does not know that it lost the lease until it runs again.
// What a lease protects should compare Fence.
type Lease struct {
	h        *hold
	released bool // guarded by h.mu
}

// hold is what a lease, and the re-entrant leases within it, stand for.
type hold struct {
	slot
	c    *Client
	req  driver.Request // Key, Owner, Label and Fence never change; TTL is guarded by mu
	opts LockOptions
	born clock.Instant // when the call began that was granted

	mu       sync.Mutex
	start    clock.Instant // before the call that the lease counts from
	valid    time.Duration // how long from start it may be relied on
	renewAt  time.Duration // when to renew, on the monotonic clock
	handles  int           // leases not released; 0 after the last Release
	end      error         // why it is over: *Error with ErrLost or ErrClosed
	done     chan struct{} // made on demand
	ctxs     map[*leaseCtx]struct{}
	lastErr  error         // of the latest renewal
	cohort   *cohort       // to be told once this hold is over, then nil
	renewing bool          // a renewal is under way
	spare    int           // fences left for the cohort
	asked    clock.Instant // when the store was asked for what the cohort shares
	running  int           // functions of Do that have not returned: Close leaves the key to them
}

// first returns the lease of a fresh hold and puts it under renewal; nil when
// the client was closed meanwhile.
func (h *hold) first(now clock.Instant, waited time.Duration) *Lease {
	h.handles = 1
	if !h.c.renewer.add(h, now) {
		return nil
	}
	h.c.emit(h.acquired(waited))
	return &Lease{h: h}
}

func (h *hold) acquired(waited time.Duration) Event {
	return Event{Kind: EventAcquired, Key: h.req.Key, Owner: h.req.Owner, Fence: h.req.Fence, Waited: waited}
}

// again returns one more lease of a standing hold, or why there is none.
func (h *hold) again(reentrant bool) (*Lease, error) {
	if err := h.err(); err != nil {
		return nil, err
	}
	if !reentrant {
		return nil, fmt.Errorf("%w: already held by this context; use its lease, or set Reentrant", ErrHeld)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil || h.handles == 0 {
		return nil, cmp.Or(h.end, ErrNotHeld)
	}
	h.handles++
	return &Lease{h: h}, nil
}

// Key returns the key.
func (l *Lease) Key() string { return l.h.req.Key }

// Owner returns the 26 characters that name this acquisition in the store, and
// that Break and Adopt ask for.
func (l *Lease) Owner() string { return l.h.req.Owner }

// Fence returns the fencing token: larger for each later holder of the key. A
// store that remembers the largest it saw, and refuses smaller ones, is safe
// from holders that lost the key without knowing.
func (l *Lease) Fence() uint64 { return l.h.req.Fence }

// Deadline returns the instant after which the lease may not be relied on, as
// of now: renewal moves it. It is always before the store gives the key to
// another. Only this process's clock can be compared with it.
func (l *Lease) Deadline() time.Time {
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.left(h.c.now()))
}

// Err returns nil while the lease can be relied on. It asks the clock, not the
// store: a process that just woke up gets the truth before it acts. Otherwise
// the error is ErrLost (and also ErrNotHeld when the store said that the key is
// another's), ErrClosed when the client was closed, or ErrNotHeld alone after
// Release.
func (l *Lease) Err() error {
	l.h.mu.Lock()
	released := l.released
	l.h.mu.Unlock()
	if released {
		return l.h.c.fail("hold", l.h.req.Key, fmt.Errorf("%w: this lease was released", ErrNotHeld))
	}
	return l.h.err()
}

// err is nil while the hold stands; it declares the loss that it finds.
func (h *hold) err() error {
	h.mu.Lock()
	if h.end == nil && h.handles > 0 && h.left(h.c.now()) <= h.opts.Lead {
		h.mu.Unlock()
		h.lose(nil)
		h.mu.Lock()
	}
	defer h.mu.Unlock()
	return h.end
}

// Done is closed when the hold is over: lost (Lead before the deadline),
// released (re-entrant leases share it: by the last Release), or its client
// closed.
func (l *Lease) Done() <-chan struct{} {
	h := l.h
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done == nil {
		h.done = make(chan struct{})
		if h.end != nil || h.handles == 0 {
			close(h.done)
		}
	}
	return h.done
}

// Extend sets the lease to last at least ttl from now, and asks once. A larger
// ttl than the lease's becomes its TTL for renewals. ErrNotHeld and ErrLost
// say that the lease is over; any other error that the outcome is unknown and
// the lease stands as it was.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	h := l.h
	if err := l.Err(); err != nil {
		return err
	}
	if ttl == 0 { // in options that means the default
		return h.c.fail("extend", h.req.Key, errors.New("the TTL is 0: it must be positive"))
	}
	if _, err := (&LockOptions{TTL: ttl, Lead: h.opts.Lead}).normal(h.c.traits); err != nil {
		return h.c.fail("extend", h.req.Key, err)
	}
	ctx, done, err := h.c.during(ctx)
	if err != nil {
		return h.c.fail("extend", h.req.Key, err)
	}
	defer done()
	return h.c.fail("extend", h.req.Key, h.renewNow(ctx, ttl))
}

// renewNow renews once, at the caller's wish.
func (h *hold) renewNow(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	req := h.req
	h.mu.Unlock()
	req.TTL = ttl
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	start := h.c.now()
	got := make(chan driver.Renewal, 1)
	h.c.drv.Renew(ctx, []driver.Request{req}, func(_ int, r driver.Renewal) { got <- r })
	select { // drivers report before they return
	case r := <-got:
		h.renewed(start, r)
		if r.Err == nil {
			h.mu.Lock()
			h.req.TTL = max(h.req.TTL, ttl)
			h.mu.Unlock()
			return h.err() // the answer may have come too late
		}
		return r.Err
	default:
		return unanswered(ctx)
	}
}

func unanswered(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the store did not answer: %w", err)
	}
	return errors.New("the store did not answer")
}

// Release gives the key back. It does so even when every context has ended,
// takes at most 5 seconds, and tells the store that the lease is over even
// when it was lost; then the error is ErrLost. When the store could not be
// told, the error says so, and the key is free when the TTL is over. Releasing
// twice is harmless.
func (l *Lease) Release() error {
	if !l.h.c.enter() { // Close releases
		return cmp.Or(l.Err(), l.h.c.fail("release", l.h.req.Key, ErrClosed))
	}
	defer l.h.c.leave()
	return l.release(false)
}

// release is Release within a call that was let in; ran says that a function
// of Do has returned.
func (l *Lease) release(ran bool) error {
	h := l.h
	_ = h.err() // declares a loss that nobody saw yet
	h.mu.Lock()
	lost := h.end
	if ran {
		h.running--
	}
	if l.released {
		h.mu.Unlock()
		return nil
	}
	l.released = true
	h.handles--
	last := h.handles == 0
	if errors.Is(lost, ErrClosed) { // Close releases, unless it left that to us
		last = ran && h.running == 0
	}
	ctxs := h.takeCtxs(func(x *leaseCtx) bool { return last || x.lease == l })
	if last && h.done != nil && h.end == nil {
		close(h.done)
	}
	var co *cohort
	if last {
		co = h.leaveCohort()
	}
	h.mu.Unlock()
	endAll(ctxs, context.Canceled)
	if !last {
		return lost
	}
	if co != nil && lost == nil && co.pass(h) {
		h.released(nil)
		return nil
	}
	h.c.renewer.remove(h)
	err := h.release(h.c.base, lost)
	if co != nil {
		co.lead(nil)
	}
	return err
}

// leaveCohort returns the cohort that must be told that this hold is over; nil
// when there is none, or it was told. h.mu is held.
func (h *hold) leaveCohort() *cohort {
	co := h.cohort
	h.cohort = nil
	return co
}

// release tells the store, within ctx and releaseLimit, and the observer.
func (h *hold) release(ctx context.Context, lost error) error {
	req := h.request()
	err := h.c.release(ctx, releaseLimit, req)
	if errors.Is(err, errUntold) && h.c.open.Err() == nil {
		h.c.giveBack(req) // the caller waits no longer, but others do
	}
	switch {
	case lost != nil:
		err = lost // what the store says of it now is no news
	case errors.Is(err, ErrNotHeld):
		err = fmt.Errorf("%w: the store says that this owner does not hold the key any more (%w)", ErrLost, err)
	}
	err = h.c.fail("release", h.req.Key, err)
	h.released(err)
	return err
}

// released tells the observer of a release.
func (h *hold) released(err error) {
	if h.c.observe != nil {
		h.c.emit(Event{Kind: EventReleased, Key: h.req.Key, Owner: h.req.Owner, Fence: h.req.Fence,
			Held: h.c.now().Sub(h.born), Err: err})
	}
}

// run begins a function of Do.
func (h *hold) run() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		h.running++
	}
	return h.end
}

// stillRuns is the error of a key that Close could not release, since Do's
// function has not returned; nil when it was released.
func (h *hold) stillRuns() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running == 0 {
		return nil
	}
	return h.c.fail("close", h.req.Key, fmt.Errorf("the function that holds it has not returned; the store keeps the key for its TTL of %v", h.req.TTL))
}

// left is what remains of the hold at now. h.mu is held.
func (h *hold) left(now clock.Instant) time.Duration {
	left := h.valid - now.Sub(h.start)
	if h.opts.MaxHold > 0 {
		left = min(left, h.opts.MaxHold-now.Sub(h.born))
	}
	return left
}

// lose declares the hold lost: by the clock, or by the store's word.
func (h *hold) lose(word error) {
	if tell := h.lost(word); tell != nil {
		tell()
	}
}

// lost is lose without the observer, whom tell tells; nil when it was over.
func (h *hold) lost(word error) (tell func()) {
	h.mu.Lock()
	var why error
	switch {
	case word != nil:
		why = fmt.Errorf("%w: the store says that this owner does not hold the key any more (%w)", ErrLost, word)
	case h.opts.MaxHold > 0 && h.c.now().Sub(h.born)+h.opts.Lead >= h.opts.MaxHold:
		why = fmt.Errorf("%w: held for its MaxHold of %v", ErrLost, h.opts.MaxHold)
	case h.opts.NoRenew:
		why = fmt.Errorf("%w: its TTL of %v is over", ErrLost, h.req.TTL)
	case h.lastErr != nil:
		why = fmt.Errorf("%w: not renewed in time, last error: %w", ErrLost, h.lastErr)
	default:
		why = fmt.Errorf("%w: not renewed in time, by the clock of this machine (was the process stopped?)", ErrLost)
	}
	h.mu.Unlock()
	why = h.c.fail("hold", h.req.Key, why)
	if ended, _ := h.finish(why); !ended {
		return nil
	}
	h.c.renewer.remove(h)
	e := Event{Kind: EventLost, Key: h.req.Key, Owner: h.req.Owner, Fence: h.req.Fence,
		Held: h.c.now().Sub(h.born), Err: why}
	return func() { h.c.emit(e) }
}

// finish ends a hold that was not released, once. running: a function of Do
// has not returned.
func (h *hold) finish(why error) (ended, running bool) {
	h.mu.Lock()
	if h.end != nil || h.handles == 0 {
		h.mu.Unlock()
		return false, false
	}
	running = h.running > 0
	h.end = why
	ctxs := h.takeCtxs(func(*leaseCtx) bool { return true })
	if h.done != nil {
		close(h.done)
	}
	co := h.leaveCohort()
	h.mu.Unlock()
	endAll(ctxs, why)
	if co != nil {
		co.lead(nil)
	}
	return true, running
}
