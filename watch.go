// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

const (
	// watchLimit bounds how long a waiter stays out of the queue for the sake of
	// its subscription. Then it joins, and polls until one is confirmed.
	watchLimit = time.Second
	// watchFirst is how long a Lock waits for a Watch before it asks for the first time: it is answered at
	// once where the subscription stands.
	watchFirst = 5 * time.Millisecond
	// After a Watch that failed the next one comes after so long, and twice as
	// long after each more, up to the other.
	watchPause    = 500 * time.Millisecond
	maxWatchPause = 10 * time.Second
)

// subscription delivers hints to an owner in the queue. It goes with the place from one
// leader of a cohort to the next, and so does not depend on a caller's context.
type subscription struct {
	hints    <-chan struct{} // nil: none come, ask at intervals
	results  chan watched    // unbuffered: the answers to Watch
	answered bool            // one of them was read
	end      context.CancelFunc
}

// watched is the answer to a Watch.
type watched struct {
	hints <-chan struct{}
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
