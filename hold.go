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

// hold is what a lease, and the re-entrant leases within it, stand for.
type hold struct {
	slot
	c    *Client
	req  driver.Request // TTL, and what a Downgrade changes, are guarded by mu; the rest never changes
	opts LockOptions
	born clock.Instant // when the call began that was granted

	number    int  // of the slot
	abandoned bool // as Lease.Abandoned

	mu       sync.Mutex
	start    clock.Instant // before the call that the lease counts from
	valid    time.Duration // how long from start it may be relied on
	renewAt  time.Duration // when to renew, on the monotonic clock
	handles  int           // leases not released; 0 after the last Release
	writers  int           // those of them that are Exclusive
	used     bool          // somebody was given it, who may have begun to work
	idle     time.Duration // since born, before somebody had it: MaxHold does not count it
	clean    bool          // a turn before this one came to its end
	extended bool          // the store was asked for a longer TTL than that of the options
	broken   bool          // a function of Do panicked: its end is Unfinished, whoever releases last
	unsure   bool          // a Downgrade has had no answer
	end      error         // why it is over: *Error with ErrLost or ErrClosed
	done     chan struct{} // made on demand
	ctxs     map[*leaseCtx]struct{}
	lastErr  error         // of the latest renewal
	cohort   *cohort       // to be told once this hold is over, then nil
	renewing bool          // a renewal is under way
	spare    int           // fences left for the cohort
	asked    clock.Instant // when the store was asked for what the cohort shares
	running  int           // functions of Do that have not returned: Close leaves the key to them

	fresh     *Lease      // leases that were not released, until the next renewal; linked
	known     []weakLease // those of before
	pinned    bool        // somebody may wait for a channel of it
	forgotten bool        // nobody can reach it: no renewal

	wanted  bool            // somebody waits in line
	wishCtx context.Context // ends then; made on demand
	wishEnd context.CancelFunc
}

// first puts a fresh hold under renewal; false when the client was closed
// meanwhile.
func (h *hold) first(now clock.Instant, waited time.Duration) bool {
	if !h.c.renewer.add(h, now) {
		return false
	}
	h.acquired(waited)
	return true
}

// handle returns one more lease. h.mu is held, or h nobody else's yet.
func (h *hold) handle(mode Mode) *Lease {
	h.handles++
	if mode == Exclusive {
		h.writers++
	}
	h.fresh = &Lease{h: h, mode: mode, next: h.fresh, taken: h.c.origin()}
	return h.fresh
}

// again returns one more lease of a standing hold, or why there is none.
func (h *hold) again(l *lock) (*Lease, error) {
	if err := h.err(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil || h.handles == 0 {
		return nil, cmp.Or(h.end, ErrNotHeld)
	}
	switch {
	case l.mode == Exclusive && h.req.Mode == Shared:
		return nil, fmt.Errorf("%w: this context shares it, and would wait for itself: release that first, or write from the start and Downgrade", ErrHeld)
	case l.limit != 0 && l.limit != h.req.Limit:
		return nil, fmt.Errorf("%w: held by this context, but not as one of %d: it has no such slot", ErrHeld, l.limit)
	case !l.opts.Reentrant:
		return nil, fmt.Errorf("%w: already held by this context; use its lease, or set Reentrant", ErrHeld)
	}
	return h.handle(l.mode), nil
}

// wish returns a context that ends once somebody waits for the key.
func (h *hold) wish() context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pinned = true
	if h.wishCtx == nil {
		h.wishCtx, h.wishEnd = context.WithCancel(context.Background())
		if h.wanted {
			h.wishEnd()
		}
	}
	return h.wishCtx
}

// over returns a channel that is closed when the hold is over.
func (h *hold) over() <-chan struct{} {
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

// tell tells the observer of this hold.
func (h *hold) tell(kind EventKind, more func(e *Event)) {
	if h.c.observe == nil {
		return
	}
	h.mu.Lock()
	mode := h.req.Mode
	h.mu.Unlock()
	e := Event{Kind: kind, Key: h.req.Key, Owner: h.req.Owner, Fence: h.req.Fence, Mode: mode, Slot: h.number}
	more(&e)
	h.c.emit(e)
}

func (h *hold) acquired(waited time.Duration) {
	h.tell(EventAcquired, func(e *Event) { e.Waited = waited })
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

// renewNow renews once, at the caller's wish.
func (h *hold) renewNow(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	if h.end != nil || h.handles == 0 { // it must not lengthen what the next turn has
		h.mu.Unlock()
		return h.stands()
	}
	h.extended = h.extended || ttl > h.opts.TTL // whatever the answer
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

// leaveCohort returns the cohort that must be told that this hold is over; nil
// when there is none, or it was told. h.mu is held.
func (h *hold) leaveCohort() *cohort {
	co := h.cohort
	h.cohort = nil
	return co
}

// release tells the store, within ctx and releaseLimit, and the observer. lost
// and end say how the hold ended.
func (h *hold) release(ctx context.Context, lost error, end driver.End) error {
	h.mu.Lock()
	req := h.req
	switch {
	case !h.used && h.clean:
		end = driver.Finished
	case !h.used:
		end = driver.Unused
	case lost != nil:
		end = driver.Unfinished
	}
	h.mu.Unlock()
	req.End = end
	err := h.c.release(ctx, releaseLimit, req)
	if errors.Is(err, errUntold) && h.c.open.Err() == nil {
		h.c.debts.owe(req) // the caller waits no longer, but others do
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
	h.tell(EventReleased, func(e *Event) { e.Held, e.Err = h.c.now().Sub(h.born), err })
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
	if h.opts.MaxHold > 0 && h.used {
		left = min(left, h.opts.MaxHold-h.worked(now))
	}
	return left
}

// worked is how long somebody has had the hold at now. h.mu is held.
func (h *hold) worked(now clock.Instant) time.Duration { return now.Sub(h.born) - h.idle }

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
	case h.opts.MaxHold > 0 && h.used && h.worked(h.c.now())+h.opts.Lead >= h.opts.MaxHold:
		why = fmt.Errorf("%w: held for its MaxHold of %v", ErrLost, h.opts.MaxHold)
	case h.forgotten:
		why = fmt.Errorf("%w: dropped without Release, and not renewed after that", ErrLost)
	case h.opts.NoRenew:
		why = fmt.Errorf("%w: its TTL of %v is over", ErrLost, h.req.TTL)
	case h.lastErr != nil:
		why = fmt.Errorf("%w: not renewed in time, last error: %w", ErrLost, h.lastErr)
	case h.renewing:
		why = fmt.Errorf("%w: not renewed in time: the store has not answered (does it hang?)", ErrLost)
	default:
		why = fmt.Errorf("%w: not renewed in time, by the clock of this machine (was the process stopped?)", ErrLost)
	}
	h.mu.Unlock()
	why = h.c.fail("hold", h.req.Key, why)
	if ended, _ := h.finish(why); !ended {
		return nil
	}
	h.c.renewer.remove(h)
	held := h.c.now().Sub(h.born)
	return func() { h.tell(EventLost, func(e *Event) { e.Held, e.Err = held, why }) }
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

// begin gives a part of a LockAll to its caller, together with the others.
func (h *hold) begin() {
	now := h.c.now()
	h.mu.Lock()
	if !h.used {
		h.used, h.idle = true, now.Sub(h.born)
	}
	h.mu.Unlock()
	h.c.renewer.again(h, now) // MaxHold may end it earlier than was planned
}

// use notes that somebody was given the hold.
func (h *hold) use() {
	h.mu.Lock()
	h.used = true
	h.mu.Unlock()
}
