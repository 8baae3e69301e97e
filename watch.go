// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

const (
	// watchLimit bounds how long a waiter stays out of the queue for the sake of
	// its subscription. Then it joins, and polls until one is confirmed.
	watchLimit = time.Second
	// After a Watch that failed the next one comes after so long, and twice as
	// long after each more, up to the other.
	watchPause    = 500 * time.Millisecond
	maxWatchPause = 10 * time.Second
)

// subscription delivers hints to an owner in the queue. It goes with the place from one
// leader of a cohort to the next, and so does not depend on a caller's context.
type subscription struct {
	hints    <-chan driver.Hint // nil: none come, ask at intervals
	results  chan watched       // unbuffered: the answers to Watch
	answered bool               // one of them was read
	end      context.CancelFunc
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
// confirmed or has failed once. An error ends the wait; a store that answers
// Try and not Watch does not.
func (a *attempt) subscribe() error { return a.subscribeUntil(nil) }

// subscribeUntil also ends, without an error, at that time.
func (a *attempt) subscribeUntil(over <-chan time.Time) error {
	if a.sub == nil {
		a.sub = a.c.listen(a.req.Claim)
	}
	if a.sub.answered {
		return nil
	}
	select {
	case h := <-a.sub.results:
		a.subscribed(h)
		return nil
	case <-over:
		return nil
	case <-a.ctx.Done():
	case <-a.c.calls.Open.Done():
	}
	return a.ended()
}

// subscribed notes the answer to a Watch.
func (a *attempt) subscribed(h watched) {
	a.sub.answered = true
	a.c.busy.deaf.Store(h.err != nil)
	if h.err == nil {
		a.sub.hints = h.hints
		return
	}
	a.emit(EventTrouble, func(e *Event) {
		e.Sent = time.Time{} // that is a Try's
		e.Err = a.c.fail(a.op, a.req.Key, fmt.Errorf("the store sends no hints when the key is free, so this polls: %w", h.err))
	})
}
