// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/fault"
)

func vanishedHolder(e *env) {
	gone := e.brief(e.ask("k"))
	start := time.Now()
	res := e.grant(e.d, gone)
	lease := e.lock(e.client(nil), e.lasting())
	took := time.Since(start)
	if took < sure(res.TTL) || took > res.TTL+e.ttl/2+e.slack+e.lost() {
		e.Errorf("granted after %v, want soon after the TTL of %v", took, res.TTL)
	}
	e.unlock(lease)
	e.free("k")
}

// link is a script that can cut a client off: its requests are dropped.
type link struct{ cut atomic.Bool }

func (l *link) script(fault.Call) fault.Fault { return fault.Fault{Hang: l.cut.Load()} }

func lossBeforeGrant(e *env, lock func(*hasp.Client) *hasp.Lease) {
	var l link
	renewed := make(chan struct{}, 1)
	c := e.observed(l.script, func(ev hasp.Event) {
		if ev.Kind == hasp.EventRenewed && l.cut.CompareAndSwap(false, true) {
			renewed <- struct{}{}
		}
	})
	lease := lock(c)
	w := e.begin(e.client(nil), e.lasting())
	for tries := 1; !e.outlives(lease, renewed, &l); tries++ { // this machine stalled for a TTL
		if tries == 20 {
			e.Fatal("20 leases ended before they were renewed")
		}
		_ = lease.Release()
		e.unlock(w.granted(e.ttl))
		lease = lock(c)
		w = e.begin(e.client(nil), e.lasting())
	}
	deadline := lease.Deadline()
	<-lease.Done()
	ended := time.Now()
	next := w.granted(2 * e.ttl)
	if !deadline.Before(w.at) {
		e.Errorf("the deadline of the holder was %v after the waiter had the key", deadline.Sub(w.at))
	}
	if !ended.Before(w.at.Add(e.lost())) {
		e.Errorf("the holder learned it %v after the waiter had the key", ended.Sub(w.at))
	}
	if err := lease.Err(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("the lease says %v, want ErrLost", err)
	}
	l.cut.Store(false)
	if err := lease.Release(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("Release of a lost lease: %v, want ErrLost", err)
	}
	if err := next.Err(); err != nil {
		e.Errorf("the successor's lease: %v", err)
	}
	e.unlock(next)
}

// outlives waits for the renewal at which l cuts the client off, and is false when the
// lease ended before.
func (e *env) outlives(lease *hasp.Lease, renewed <-chan struct{}, l *link) bool {
	e.Helper()
	select {
	case <-renewed:
		return true
	case <-lease.Done():
		return l.cut.Load() // then it ended as it should
	case <-time.After(e.ttl + e.slack + e.lost()):
		e.Fatal("the lease was neither renewed nor lost")
		return false
	}
}

// outage is a script under which the store is unreachable for some time.
type outage struct {
	start time.Time
	until atomic.Int64 // since start
}

func newOutage() *outage { return &outage{start: time.Now()} }

// begin cuts the store off for d from now on.
func (o *outage) begin(d time.Duration) { o.until.Store(int64(time.Since(o.start) + d)) }

func (o *outage) script(fault.Call) fault.Fault {
	if time.Since(o.start) < time.Duration(o.until.Load()) {
		return fault.Fault{Err: fault.ErrLink}
	}
	return fault.Fault{}
}

// firstOf applies f to the first call of each of the ops.
func firstOf(f fault.Fault, ops ...fault.Op) fault.Script {
	return func(c fault.Call) fault.Fault {
		for _, op := range ops {
			if c.Op == op && c.N == 1 {
				return f
			}
		}
		return fault.Fault{}
	}
}

func lostReplies(e *env) {
	c := e.client(firstOf(fault.Fault{Lost: fault.ErrLink}, fault.Try, fault.Renew, fault.Release))
	start := time.Now()
	lease := e.lock(c, e.short())
	if took := time.Since(start); took > e.ttl/2+e.lost() {
		e.Errorf("a grant whose reply was lost was found again after %v", took)
	}
	select {
	case <-lease.Done():
		e.Fatalf("lost: %v", lease.Err())
	case <-time.After(2 * e.ttl): // time for renewals
	}
	e.unlock(lease)
	e.free("k")

	// The same for a waiter: the replies to its joining and its claim.
	holder := e.lock(e.client(nil), e.lasting())
	tries := func(c fault.Call) fault.Fault {
		if c.Op == fault.Try && c.N%2 == 0 {
			return fault.Fault{Lost: fault.ErrLink}
		}
		return fault.Fault{}
	}
	w := e.begin(e.client(tries), e.lasting())
	e.unlock(holder)
	e.unlock(w.granted(e.ttl))
	e.free("k")
}

func breakOwner(e *env) {
	holder := e.lock(e.client(nil), e.short())
	w := e.begin(e.client(nil), e.lasting())
	op := e.client(nil)
	if err := op.Break(e.ctx, "k", e.ask("k").Owner); !errors.Is(err, hasp.ErrNotHeld) {
		e.Errorf("Break of nobody: %v, want ErrNotHeld", err)
	}
	if err := op.Break(e.ctx, "k", holder.Owner()); err != nil {
		e.Fatalf("Break: %v", err)
	}
	next := w.granted(0)
	if err := op.Break(e.ctx, "k", holder.Owner()); !errors.Is(err, hasp.ErrNotHeld) {
		e.Errorf("Break of the one before: %v, want ErrNotHeld", err)
	}
	<-holder.Done()
	if err := holder.Release(); !errors.Is(err, hasp.ErrLost) {
		e.Errorf("Release of a broken lease: %v, want ErrLost", err)
	}
	if err := next.Err(); err != nil {
		e.Errorf("the successor's lease: %v", err)
	}
	e.heldBy(contend.Owner{Key: "k", Owner: next.Owner(), Label: e.inspect("k").Holder.Label})
	e.unlock(next)
}
