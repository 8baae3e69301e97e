// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	// watchLimit bounds how long a waiter stays out of the line for the sake of
	// its subscription. Then it joins, and polls until one is confirmed.
	watchLimit = time.Second
	// After a Watch that failed the next one comes after so long, and twice as
	// long after each more, up to the other.
	watchPause    = 500 * time.Millisecond
	maxWatchPause = 10 * time.Second
)

// subscription is how an owner in line hears of the store. It goes with the place from
// one leader of a cohort to the next, and so knows nothing of a caller's context.
type subscription struct {
	hints <-chan struct{} // nil: none come, ask at intervals
	news  chan watched    // of the subscription, without room
	end   context.CancelFunc
}

// watched is the answer to a Watch.
type watched struct {
	hints <-chan struct{}
	err   error
}

// subscribe asks for the hints for this owner, and waits until that is
// confirmed or has failed once. An error ends the wait; a store that answers
// Try and not Watch does not.
func (a *attempt) subscribe() error {
	if a.sub == nil {
		a.sub = a.c.listen(a.req)
	}
	select {
	case h := <-a.sub.news:
		a.subscribed(h)
		return nil
	case <-a.ctx.Done():
	case <-a.c.open.Done():
	}
	return a.ended()
}

// subscribed notes the answer to a Watch.
func (a *attempt) subscribed(h watched) {
	if h.err == nil {
		a.sub.hints = h.hints
		return
	}
	a.c.emit(Event{Kind: EventTrouble, Key: a.req.Key, Owner: a.req.Owner, Mode: a.req.Mode, Waited: a.c.now().Sub(a.began),
		Err: fmt.Errorf("the store does not tell when the key is free, so this asks at intervals: %w", h.err)})
}

// listen watches in the background until end is called, again and again where
// that fails.
func (c *Client) listen(r driver.Request) *subscription {
	ctx, cancel := context.WithCancel(c.open)
	s := &subscription{news: make(chan watched), end: cancel}
	c.enterLate()
	go func() {
		defer c.leave()
		limit := watchLimit
		for pause := watchPause; ; pause = min(2*pause, maxWatchPause) {
			h := c.watch(ctx, limit, r)
			select {
			case s.news <- h:
			case <-ctx.Done():
				return
			}
			if h.err == nil {
				return
			}
			limit = tryLimit
			timer := time.NewTimer(jitter(pause))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}()
	return s
}

var errUnconfirmed = errors.New("the store did not confirm the subscription")

// watch asks once. Its context outlives it, for the hints.
func (c *Client) watch(ctx context.Context, limit time.Duration, r driver.Request) (h watched) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(limit, cancel)
	h.hints, h.err = c.drv.Watch(ctx, r)
	if !timer.Stop() {
		h.err = errUnconfirmed
	}
	if h.err != nil {
		cancel()
	}
	return h
}
