// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/broken"
)

// recorder wraps the quorum, or the one store, and records which owner waits, and what the store said to it last.
type recorder struct {
	driver.Driver
	p *process
}

// try is the latest that was granted, or that was refused to an owner that may enter.
type try struct {
	began   int64
	granted bool
}

// Try forwards the request.
func (r recorder) Try(ctx context.Context, req driver.TryRequest) (driver.Result, error) {
	p := r.p
	began := p.c.w.history.Tick()
	if req.Queue {
		p.waitsFor(waiter{p, req.Owner, req.Mode == driver.Shared})
	}
	res, err := r.Driver.Try(ctx, req)
	if err == nil && (res.Granted || res.At != 0) {
		p.mu.Lock()
		p.tries[req.Owner] = try{began, res.Granted}
		p.mu.Unlock()
	}
	p.c.w.trace.add("  %v: the answer to %+v is %+v", p, req, answer[driver.Result]{res, err})
	return res, err
}

// waitsFor records which owner of the process waits; none does with the zero value.
func (p *process) waitsFor(wt waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = wt
}

// hold is one hold of the key in its process's own view. It was asked for before the
// request that was granted, or after which the key was handed over.
type hold struct {
	*history.Hold
	p       *process
	lease   *hasp.Lease
	entered bool // it began with a message, without a Try
}

// take acquires the key, and records that the process learned of its lease.
func (p *process) take(lock locker, limit time.Duration) (*hold, error) {
	lease, err := p.acquire(lock, limit)
	if err != nil {
		return nil, err
	}
	w := p.c.w
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tries[lease.Owner()]
	h := &hold{p: p, lease: lease, entered: !t.granted}
	h.Hold = w.history.Acquired(history.Hold{
		Key: key, Owner: p.String() + ", owner " + short(lease.Owner()), Fence: broken.Shift(lease.Fence(), p.c.skew),
		Shared: lease.Mode() == hasp.Shared, Abandoned: lease.Abandoned(), Asked: t.began,
	}, lease.Deadline())
	p.holds[lease.Owner()] = h
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = append(w.holds, h)
	w.trace.add("%v HOLDS, entered %v, until %.6f, shared %v, fence %d",
		h.Owner, h.entered, h.To.Sub(w.began).Seconds(), h.Shared, h.Fence)
	return h, nil
}

// saw records an event of the process's hasp.Client.
func (p *process) saw(_ context.Context, e *event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h, w := p.holds[e.Owner], p.c.w
	switch {
	case e.Kind == event.Lost:
		w.lost.Add(1)
		if h != nil {
			w.history.Cut(h.Hold)
		}
		w.trace.add("%v, owner %s, LOST, %v", p, e.Owner, e.Err)
	case e.Kind == event.Renewed && h != nil:
		w.history.Extended(h.Hold, time.Now().Add(e.Left))
		w.trace.add("%v RENEWED for %v", h.Owner, e.Left)
	}
}

// release releases the lease; if it is lost, that is already recorded.
func (h *hold) release() {
	h.p.c.w.history.Released(h.Hold)
	h.p.c.w.trace.add("%v RELEASES", h.Owner)
	_ = h.lease.Release()
}

// dies records that the process ends.
func (p *process) dies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.holds {
		p.c.w.history.Cut(h.Hold)
	}
	p.c.w.trace.add("%v DIES", p)
}

// use sends a write or a read to what the lock protects, which arrives after takes.
func (h *hold) use(reads bool, takes time.Duration) {
	w := h.p.c.w
	time.AfterFunc(takes, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		ok := w.register.Takes(h.Fence, reads)
		if !ok {
			w.refused = append(w.refused, use{h.Hold, time.Now(), reads})
		}
		w.trace.add("  %v uses it, to read %v, with fence %d: accepted %v", h.Owner, reads, h.Fence, ok)
	})
}

// use is a write or a read that the register refused.
type use struct {
	*history.Hold
	at    time.Time
	reads bool
}

// valid reports whether the holder was entitled to that use at that time.
func (u *use) valid() bool {
	may := u.at.Before(u.To) && (u.reads || u.Down.IsZero() || u.at.Before(u.Down))
	return may && !u.at.Before(u.From)
}
