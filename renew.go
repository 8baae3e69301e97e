// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

// renews says whether the hold is to be renewed. h.mu is held.
func (h *hold) renews() bool { return !h.term.opts.NoRenew && !h.handles.forgotten }

// Due says whether to renew, and whether the hold is over.
func (h *hold) Due(now clock.Instant, hurry bool) (renew, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stale(now) {
		h.letGo()
		return false, false
	}
	if h.term.over(now) {
		return false, true
	}
	if h.claims && now.Mono < h.term.renewAt && !hurry && !h.signals.ask {
		return false, false // work that is over by then needs no claim
	}
	renew = h.renews() && h.term.due(now, hurry || h.signals.ask)
	h.signals.ask = h.signals.ask && !renew
	return renew, false
}

// NextLook is when to renew, or to declare the loss.
func (h *hold) NextLook(now clock.Instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := now.Mono + h.term.left(now) - h.term.opts.Lead
	switch {
	case !h.renews():
		return over
	case h.signals.ask:
		return min(over, now.Mono)
	}
	if h.state == kept {
		over = min(over, h.term.born.Mono+h.term.opts.Keep)
	}
	return min(over, h.term.renewAt)
}

// Request is what to send, unless nobody can reach the hold: then it is told,
// and the TTL ends it.
func (h *hold) Request() (r driver.RenewRequest, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handles.forgotten {
		return r, false
	}
	if !h.state.stands() || h.state == kept || h.handles.reachable() {
		return h.renewal(), true
	}
	h.handles.forgotten = true
	now := h.c.now()
	took, left, taken := h.term.held(now), h.term.left(now)-h.term.opts.Lead, h.handles.known[0].taken
	err := fmt.Errorf("dropped without Release: nobody can reach this lease any more, so it is not renewed and ends in %v", shortDuration(left))
	go h.emit(EventForgotten, func(e *Event) {
		e.Held, e.Left, e.Taken, e.Err = took, left, taken.String(), h.c.fail("hold", h.req.Key, err)
	})
	return r, false
}

// renewal is what to send. h.mu is held.
func (h *hold) renewal() driver.RenewRequest {
	r := h.req
	r.Entered = h.claims
	switch {
	case h.signals.heard != nil:
		r.Wanted, r.Keeps = h.signals.heard, true // as only a cohort that keeps does
	case h.signals.listens():
		r.Wanted = h.hear
	}
	return r
}

// Renewed takes the answer to a renewal.
func (h *hold) Renewed(start clock.Instant, r driver.Renewal) {
	if errors.Is(r.Err, ErrNotHeld) {
		h.lose(r.Err)
		return
	}
	h.mu.Lock()
	if !h.state.stands() {
		h.mu.Unlock()
		return
	}
	t := &h.term
	if r.Err != nil && start.Mono < t.start.Mono {
		h.mu.Unlock()
		return // a call that began later had a good answer
	}
	t.renewing = false
	now := h.c.now()
	if t.valid != 0 && t.over(now) {
		// Too late, whatever the answer: others may have had the key since.
		back := h.letGo()
		h.mu.Unlock()
		if !back {
			h.lose(nil)
		}
		return
	}
	var wanted context.CancelFunc
	age := now.Sub(t.start)
	if r.Err == nil {
		t.grant(start, now, r.TTL)
		h.claims = r.Entered
		wanted = h.signals.want(r.Wanted)
	} else {
		t.failed(now, r.Err)
		h.letGo()
	}
	left := t.left(now) - t.opts.Lead
	h.mu.Unlock()
	h.c.renewer.Again(h, now)
	if wanted != nil {
		wanted()
	}
	kind := EventRenewed
	if r.Err != nil {
		kind = EventRenewFailed
	}
	h.emit(kind, func(e *Event) {
		e.Left, e.Sent, e.Age, e.Err = left, sentAt(start.Mono, now), age, h.c.fail("renew", h.req.Key, r.Err)
	})
}

// extend renews once, at the caller's wish.
func (h *hold) extend(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	if !h.state.stands() { // it must not lengthen what the next turn has
		h.mu.Unlock()
		return h.checkStands()
	}
	h.term.longest = max(h.term.longest, ttl) // whatever the answer
	req := h.renewal()
	h.mu.Unlock()
	req.TTL = ttl
	start := h.c.now()
	r, err := h.c.renewOnce(ctx, req)
	if err != nil {
		return err
	}
	h.Renewed(start, r)
	if r.Err != nil {
		return r.Err
	}
	h.mu.Lock()
	h.req.TTL = max(h.req.TTL, ttl)
	h.mu.Unlock()
	return h.checkDeadline() // the answer may have come too late
}

// renewOnce renews one lease. An error: there was no answer.
func (c *core) renewOnce(ctx context.Context, req driver.RenewRequest) (driver.Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	got := make(chan driver.Renewal, 1)
	c.drv.Renew(ctx, []driver.RenewRequest{req}, func(_ int, r driver.Renewal) { got <- r })
	select { // drivers report before they return
	case r := <-got:
		return r, nil
	default:
		return driver.Renewal{}, keepalive.Unanswered(ctx)
	}
}
