// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/fault"
)

// The cases of this file use package hasp: what it promises on any engine must be true
// on this one.
var coreCases = []Case{
	{Name: "LockWaitsItsTurn", // promise 4
		Rule: "Lock waits while another client holds the key, and returns soon after its release.",
		run:  lockWaits},
	{Name: "LockIsFirstComeFirstServed", // promise 4, failure case 24
		Rule:  "Locks on several clients are granted in the order in which they began to wait.",
		Needs: queueing, run: lockInOrder},
	{Name: "LockOutlivesManyTTLs", // promises 3 and 4
		Rule:  "A lease is renewed for as long as it is held, and a waiter keeps its place for as long as it waits.",
		Needs: queueing, timely: true, run: lockOutlivesTTLs},
	{Name: "CancelledLockLeavesNothing", // promises 4 and 6, failure cases 11 and 18
		Rule: "A Lock whose context ends returns its error and the holder, leaves no place, and makes nobody behind it wait.",
		run:  cancelledLock},
	{Name: "CancelAtAnyMoment", // promise 6, failure case 11
		Rule: "Whenever the context of a Lock ends, either it returns a lease or the store soon has nothing of it.",
		run:  cancelAtAnyMoment},
	{Name: "ReleaseNeedsNoContext", // promise 5, failure cases 12 and 19
		Rule:   "The context of Lock bounds only the wait: the lease outlives it, and Release works after it has ended.",
		timely: true, run: releaseNeedsNoContext},
	{Name: "ClientCloseLeavesNothing", // promise 6, failure case 12
		Rule: "Close ends waits, releases what is held, and leaves nothing in the store.",
		run:  clientClose},
	{Name: "VanishedHolderDelaysForItsTTL", // failure case 14
		Rule: "A waiting Lock is granted the key of a holder that vanished right after its grant within little more than the TTL.",
		run:  vanishedHolder},
	{Name: "VanishedWaiterDelaysForItsPatience", // promise 4
		Rule:  "A waiter that vanished delays those behind it for its patience and its claim, and no longer.",
		Needs: queueing, timely: true, run: vanishedWaiter},
	{Name: "LossIsKnownBeforeTheNextGrant", // promises 1 and 2, failure case 1
		Rule:   "A holder that is cut off right after a renewal learns of its loss before a waiter elsewhere has the key.",
		timely: true, run: func(e *env) {
			lossBeforeGrant(e, func(c *hasp.Client) *hasp.Lease { return e.lock(c, e.short()) })
		}},
	{Name: "LockOutlivesAShortOutage", // promise 7, failure case 16
		Rule:   "A store that is unreachable for less than the TTL fails neither a waiting Lock nor a held lease.",
		timely: true, run: shortOutage},
	{Name: "OutageAtTheTurn", // promise 7, failure case 16
		Rule:   "A waiter whose turn comes while the store is unreachable for less than the TTL is granted the key afterwards.",
		timely: true, run: outageAtTheTurn},
	{Name: "LostRepliesDoNoHarm", // failure case 13
		Rule:   "When the reply to an acquire, a renewal or a release is lost, asking again has the outcome of the first.",
		timely: true, run: lostReplies},
	{Name: "DuplicatedRequestsDoNothing", // failure case 13
		Rule: "Requests that reach the store twice have the outcome of one.",
		run:  duplicates},
	{Name: "BreakEndsExactlyOneOwner",
		Rule:   "Break takes the key from the named owner, whose lease is lost, and from nobody else.",
		timely: true, run: breakOwner},
	{Name: "AdoptedLeaseGoesOn",
		Rule:   "A lease that another client adopts keeps its fence and is renewed there.",
		timely: true, run: adopt},
	{Name: "KeptKeyGoesToWhoWaits",
		Rule:  "A client that keeps a key takes it again with rising fences, and gives it back once its renewal says that somebody waits.",
		Needs: queueing, timely: true, run: keptKey},
	{Name: "NoGoroutineStays", // promise 6, failure case 28
		Rule: "After many locks, waits that were cancelled, lost leases and Close no goroutine is left.",
		run:  noGoroutineStays},
}

// client returns a hasp.Client on a driver of its own, behind faults.
func (e *env) client(s fault.Script) *hasp.Client {
	e.Helper()
	return e.observed(s, func(hasp.Event) {})
}

func (e *env) observed(s fault.Script, observe func(hasp.Event)) *hasp.Client {
	e.Helper()
	d := fault.New(e.store.Open(), s)
	d.Took = e.took
	c, err := hasp.New(d, &hasp.Options{Observe: func(ev hasp.Event) {
		if ev.Kind == hasp.EventWaiting {
			e.mu.Lock()
			e.waiting[ev.Owner] = true
			e.mu.Unlock()
		}
		observe(ev)
	}})
	if err != nil {
		e.Fatalf("hasp.New: %v", err)
	}
	e.Cleanup(func() { _ = c.Close() }) // the case checks what it leaves
	return c
}

// refused returns how many Locks were refused at least once.
func (e *env) refused() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting)
}

// lasting and short are the options of leases that outlast the case, or not.
func (e *env) lasting() *hasp.LockOptions { return &hasp.LockOptions{TTL: e.long} }
func (e *env) short() *hasp.LockOptions   { return &hasp.LockOptions{TTL: e.ttl} }

func (e *env) lock(c *hasp.Client, o *hasp.LockOptions) *hasp.Lease {
	e.Helper()
	lease, err := c.Mutex("k", o).Lock(e.ctx)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	return lease
}

func (e *env) unlock(l *hasp.Lease) {
	e.Helper()
	if err := l.Release(); err != nil {
		e.Fatalf("Release: %v", err)
	}
}

// waiting is a Lock in the background.
type waiting struct {
	*env
	cancel context.CancelCauseFunc
	lease  *hasp.Lease
	err    error
	at     time.Time
	done   chan struct{}
}

// begin starts a Lock, and returns when it waits: in the queue where there is one.
func (e *env) begin(c *hasp.Client, o *hasp.LockOptions) *waiting {
	e.Helper()
	return e.beginLock(c.Mutex("k", o).Lock)
}

// beginLock is begin for any lock of "k".
func (e *env) beginLock(lock func(context.Context) (*hasp.Lease, error)) *waiting {
	e.Helper()
	places, refused := e.inspect("k").Waiters, e.refused()
	w := e.startLock(lock)
	e.eventually(0, "the Lock was refused", func() bool {
		select {
		case <-w.done:
			if e.refused() == refused { // a lease that was to refuse it may have ended meanwhile
				e.Fatalf("the Lock was not refused: granted %v, %v", w.lease != nil, w.err) // not the lease: its renewals go on
			}
		default:
		}
		return e.refused() > refused
	})
	if e.traits.Queue != driver.QueueNone {
		e.eventually(0, "the Lock waits in the queue", func() bool { return e.inspect("k").Waiters > places })
	}
	return w
}

// startLock starts a Lock, which ends with the case.
func (e *env) startLock(lock func(context.Context) (*hasp.Lease, error)) *waiting {
	ctx, cancel := context.WithCancelCause(e.ctx)
	w := &waiting{env: e, cancel: cancel, done: make(chan struct{})}
	e.Cleanup(func() { cancel(nil); <-w.done })
	go func() {
		defer close(w.done)
		w.lease, w.err = lock(ctx)
		w.at = time.Now()
	}()
	return w
}

// granted waits for the lease.
func (w *waiting) granted(limit time.Duration) *hasp.Lease {
	w.Helper()
	w.comes(w.done, limit+w.slack, "Lock has not returned")
	if w.err != nil {
		w.Fatalf("Lock: %v", w.err)
	}
	return w.lease
}

// goneFrom waits until the store knows nothing of "k".
func (e *env) goneFrom(limit time.Duration) {
	e.Helper()
	e.eventually(limit, "the store has nothing of the key", func() bool {
		info := e.inspect("k")
		return !info.Held && info.Waiters == 0
	})
}

func lockWaits(e *env) {
	holder := e.lock(e.client(nil), e.lasting())
	w := e.begin(e.client(nil), e.lasting())
	select {
	case <-w.done:
		e.Fatalf("Lock returned while another holds the key: granted %v, %v", w.lease != nil, w.err)
	case <-time.After(e.ttl / 2): // enough for a Lock that does not wait to return
	}
	e.unlock(holder)
	next := w.granted(0)
	if e.traits.Fencing && next.Fence() <= holder.Fence() {
		e.Errorf("the fence is %d after %d", next.Fence(), holder.Fence())
	}
	e.unlock(next)
	e.free("k")
}

func lockInOrder(e *env) {
	clients := []*hasp.Client{e.client(nil), e.client(nil), e.client(nil)}
	holder := e.lock(clients[0], e.lasting())
	var ws []*waiting
	for i := range 9 {
		ws = append(ws, e.begin(clients[i%len(clients)], e.lasting()))
	}
	for i, w := range ws {
		e.unlock(holder)
		holder = w.granted(0)
		for j, later := range ws[i+1:] {
			select {
			case <-later.done:
				e.Fatalf("waiter %d returned while %d holds the key: %v", i+1+j, i, later.err)
			default:
			}
		}
	}
	e.unlock(holder)
	e.free("k")
}

func lockOutlivesTTLs(e *env) {
	holder := e.lock(e.client(nil), e.short())
	first, second := e.begin(e.client(nil), e.short()), e.begin(e.client(nil), e.short())
	fence := holder.Fence()
	for _, w := range []*waiting{first, second} {
		select {
		case <-holder.Done():
			e.Fatalf("lost: %v", holder.Err())
		case <-w.done:
			e.Fatalf("Lock returned while another holds the key: %v", w.err)
		case <-time.After(2 * e.ttl): // time must pass
		}
		e.unlock(holder)
		holder = w.granted(e.ttl)
		if e.traits.Fencing && holder.Fence() <= fence {
			e.Errorf("the fence is %d after %d", holder.Fence(), fence)
		}
		fence = holder.Fence()
	}
	e.unlock(holder)
	e.goneFrom(0)
}

func cancelledLock(e *env) {
	holder := e.lock(e.client(nil), e.lasting())
	c := e.client(nil)
	w := e.begin(c, e.lasting())
	behind := e.begin(c, e.lasting())
	why := errors.New("changed my mind")
	w.cancel(why)
	<-w.done
	var held *hasp.HeldError
	var silent *hasp.Error
	switch {
	case !errors.Is(w.err, context.Canceled) || !errors.Is(w.err, why):
		e.Errorf("the error is %v, want Canceled with its cause", w.err)
	case !errors.As(w.err, &held):
		if e.fake || !errors.As(w.err, &silent) || silent.Class != hasp.ClassUnreachable { // a store that is slow is not waited for
			e.Errorf("the error is %v, want a HeldError", w.err)
		}
	case held.Holder.Owner != holder.Owner():
		e.Errorf("kept waiting by %+v, want %s", held.Holder, holder.Owner())
	}
	if e.traits.Queue != driver.QueueNone {
		e.eventually(0, "the place is gone", func() bool { return e.inspect("k").Waiters == 1 })
	}
	e.unlock(holder)
	e.unlock(behind.granted(0))
	e.free("k")
}

func cancelAtAnyMoment(e *env) {
	c := e.client(nil)
	for i := range 60 {
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(i)*30*time.Microsecond)
		var holder *hasp.Lease
		if i%2 == 1 {
			holder = e.lock(c, e.lasting())
		}
		lease, err := c.Mutex("k", e.lasting()).Lock(ctx)
		cancel()
		switch {
		case err == nil:
			e.unlock(lease)
		case !errors.Is(err, context.DeadlineExceeded):
			e.Fatalf("Lock: %v", err)
		}
		if holder != nil {
			e.unlock(holder)
		}
		e.goneFrom(0)
	}
}

func releaseNeedsNoContext(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	lease, err := e.client(nil).Mutex("k", e.short()).Lock(ctx)
	if err != nil {
		e.Fatalf("Lock: %v", err)
	}
	cancel()
	select {
	case <-lease.Done():
		e.Fatalf("the lease ended with the wait's context: %v", lease.Err())
	case <-time.After(2 * e.ttl): // time must pass
	}
	e.unlock(lease)
	e.free("k")
}

func clientClose(e *env) {
	c, other := e.client(nil), e.client(nil)
	holder := e.lock(c, e.lasting())
	w := e.begin(c, e.lasting())
	behind := e.begin(other, e.lasting())
	if err := c.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	<-w.done
	if !errors.Is(w.err, hasp.ErrClosed) || !errors.Is(holder.Err(), hasp.ErrClosed) {
		e.Errorf("the wait ended with %v, the lease with %v, want ErrClosed", w.err, holder.Err())
	}
	e.unlock(behind.granted(0))
	e.goneFrom(0)
}
