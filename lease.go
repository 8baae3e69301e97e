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
)

// Lease is the right to a key until it ends: by Release, or by loss. It is
// renewed in the background unless NoRenew was asked for. All methods may be
// called by many goroutines at once.
//
// A lease that is dropped without Release is no longer renewed once the garbage
// collector took it, and ends with its TTL: EventForgotten tells of it. It is in
// use, and kept, while one of its contexts has not ended, and after Done or
// Wanted was called.
//
// A lease has a time limit, so it cannot protect data by itself: a process
// that was stopped does not know that it lost the lease until it runs again.
// What a lease protects should compare Fence.
type Lease struct {
	h        *hold
	mode     Mode   // guarded by h.mu, as released
	released bool   // as mode
	next     *Lease // of hold.fresh
	taken    *origin
}

// Key returns the key.
func (l *Lease) Key() string { return l.h.req.Key }

// Owner returns the 26 characters that name this acquisition in the store, and
// that Break and Adopt ask for.
func (l *Lease) Owner() string { return l.h.req.Owner }

// Fence returns the fencing token: larger for each later holder of the key. A
// store that remembers the largest it saw, and refuses smaller ones, is safe
// from holders that lost the key without knowing. Leases that share the key have
// fences above those of all that held it Exclusive before; over a quorum they have
// no order among themselves, and may be equal.
func (l *Lease) Fence() uint64 { return l.h.req.Fence }

// Mode says what the lease is for: Exclusive to write, Shared to read or to have
// a slot. A read within a write of the same context is Shared, though nobody
// else can have the key meanwhile.
func (l *Lease) Mode() Mode {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.mode
}

// Slot returns which of a Semaphore's n slots this is: 0 to n-1, the smallest
// that nobody else had. At any instant no two holders have the same, so that it
// can name a shard or a port. 0 for a lease of another kind.
func (l *Lease) Slot() int { return l.h.number }

// Abandoned says that a holder before this one did not come to its end: it
// died, lost the lease, or its client was closed under it. What the key
// protects may need repair. Readers are told, too, and leave it so; it is over
// once a holder of another kind, told so, has released or downgraded its lease.
// It is never true of an adopted lease.
func (l *Lease) Abandoned() bool { return l.h.abandoned }

// Wanted is closed once somebody waits in line for the key, so that a long
// holder can finish early. It is learnt with a renewal, so up to a third of the
// TTL later, with NoRenew only from Extend, and stays closed. Those who wait
// for a turn in this lease's own cohort do not count.
func (l *Lease) Wanted() <-chan struct{} { return l.h.wish().Done() }

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

// Done is closed when the hold is over: lost (Lead before the deadline),
// released (re-entrant leases share it: by the last Release), or its client
// closed.
func (l *Lease) Done() <-chan struct{} {
	l.h.pin()
	return l.h.over()
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
	return l.release(false, driver.Finished)
}

// release is Release within a call that was let in; ran says that a function
// of Do has returned, end how what was done under the lease ended.
func (l *Lease) release(ran bool, end driver.End) error {
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
	h.broken = h.broken || end == driver.Unfinished
	if h.broken {
		end = driver.Unfinished
	}
	l.released = true
	h.unlist(l)
	h.handles--
	if l.mode == Exclusive {
		h.writers--
	}
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
	if co != nil && lost == nil && end == driver.Finished && co.pass(h) {
		h.released(nil)
		return nil
	}
	h.c.renewer.remove(h)
	err := h.release(h.c.base, lost, end)
	if co != nil {
		co.lead(nil)
	}
	return err
}
