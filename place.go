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
	now  clock.Clock
	wake chan news // room for one

	mu     sync.Mutex
	signAt time.Duration // when the next sign of life is due
}

// news is what a sign of life learned: when to try. Both are on the monotonic clock.
type news struct {
	asked time.Duration // when the store was asked
	at    time.Duration
	gone  bool // the place is, so at once
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
		p.learned(news{asked: start.Mono, at: p.now().Mono, gone: true})
	case r.Err != nil:
		p.learned(news{asked: start.Mono, at: p.now().Mono + backoff.Jitter(50*time.Millisecond)})
	case r.RetryIn > 0:
		p.learned(news{asked: start.Mono, at: p.now().Mono + r.RetryIn})
	}
}

// learned tells the waiter to try then, or earlier where earlier news, which it has not seen, said so.
func (p *place) learned(n news) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case before := <-p.wake:
		n.at, n.gone = min(n.at, before.at), n.gone || before.gone
	default:
	}
	p.wake <- n
}
