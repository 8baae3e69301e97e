// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

// place is a waiter's entry in the queue: the renewer gives its signs of life,
// one batch for all waiters of a client.
type place struct {
	keepalive.Entry
	req  driver.RenewRequest
	wake chan time.Duration // when to try, from now; room for one

	mu     sync.Mutex
	tried  time.Duration // when the store last answered a Try, on the monotonic clock
	signAt time.Duration // when the next sign of life is due
}

// seen notes that the store just answered a Try, which is a sign of life. When to ask
// again, as it said before, is old.
func (p *place) seen(now clock.Instant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tried, p.signAt = now.Mono, now.Mono+p.req.Patience/3
	select {
	case d := <-p.wake:
		if d <= 0 {
			p.wake <- d
		}
	default:
	}
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
		p.wakeIn(start, 0)
	case r.Err != nil:
		p.wakeIn(start, backoff.Jitter(50*time.Millisecond))
	case r.RetryIn > 0:
		p.wakeIn(start, r.RetryIn)
	}
}

// wakeIn wakes the waiter after d, or earlier if an earlier call said so. A moment from
// before the answer to a Try puts nothing off; that the place is gone may be news still.
func (p *place) wakeIn(start clock.Instant, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d > 0 && start.Mono < p.tried {
		return
	}
	select {
	case before := <-p.wake:
		d = min(d, before)
	default:
	}
	p.wake <- d
}
