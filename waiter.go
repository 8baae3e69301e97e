// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
	"github.com/hasplock/hasp/internal/wait"
)

const (
	// watchLimit bounds how long a waiter stays out of the queue for the sake of
	// its subscription. Then it joins, and polls until one is confirmed.
	watchLimit = time.Second
	// After a Watch that failed the next one comes after so long, and twice as
	// long after each more, up to the other.
	watchPause    = 500 * time.Millisecond
	maxWatchPause = 10 * time.Second
	// watchFirst is how long a Lock of a busy key waits for a Watch before it asks for the first time: it is
	// answered at once where the subscription stands.
	watchFirst = 5 * time.Millisecond
	// maxBusy bounds the keys of a client that are remembered.
	maxBusy = 1 << 14
)

// waiter is what the store has of an attempt, and what the attempt knows of the
// store. In a cohort it goes from one leader to the next.
type waiter struct {
	req   driver.TryRequest // but for what changes from one Try to the next
	wait  wait.Wait
	place *place        // in the queue, once joined
	sub   *subscription // once it was to join
}

// joined puts the place in the queue under the renewer's care, after a Try that joins was answered.
func (w *waiter) joined(c *core) {
	now := c.now()
	if w.place != nil {
		w.place.seen(now)
		return
	}
	r := driver.RenewRequest{Claim: w.req.Claim, TTL: w.req.TTL, Queue: true, Patience: w.req.Patience}
	w.place = &place{req: r, now: c.now, wake: make(chan wait.News, 1)}
	w.place.seen(now)
	c.renewer.Add(w.place, now)
}

// leaveQueue ends what only a waiter needs.
func (w *waiter) leaveQueue(c *core) {
	if w.place != nil {
		c.renewer.Remove(w.place)
	}
	if w.sub != nil {
		w.sub.end()
	}
}

// cleanUp ends an attempt without a lease: it leaves nothing in the store, in
// the background when the store is slow or away.
func (w *waiter) cleanUp(c *core) {
	w.leaveQueue(c)
	if something, lost := w.wait.Left(); something {
		r := driver.ReleaseRequest{Claim: w.req.Claim, TTL: w.req.TTL, End: driver.Unused, Settled: w.wait.Settled()}
		c.cleanUp(r, lost, w.wait.Failing())
	}
}

// news returns what may end a sleep: hints, the answers to Watch, and what the renewer learns of the place.
func (w *waiter) news() (hints <-chan driver.Hint, results <-chan watched, wake <-chan wait.News) {
	if w.sub != nil {
		hints, results = w.sub.hints, w.sub.results
	}
	if w.place != nil {
		wake = w.place.wake
	}
	return hints, results, wake
}

// place is a waiter's entry in the queue: the renewer gives its signs of life,
// one batch for all waiters of a client.
type place struct {
	keepalive.Entry
	req  driver.RenewRequest
	now  clock.Clock
	wake chan wait.News // room for one

	mu     sync.Mutex
	signAt time.Duration // when the next sign of life is due
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
		p.learned(wait.News{Asked: start.Mono, At: p.now().Mono, Gone: true})
	case r.Err != nil:
		p.learned(wait.News{Asked: start.Mono, At: p.now().Mono + backoff.Jitter(50*time.Millisecond)})
	case r.RetryIn > 0:
		p.learned(wait.News{Asked: start.Mono, At: p.now().Mono + r.RetryIn})
	}
}

// learned tells the waiter to try then, or earlier where earlier news, which it has not seen, said so.
func (p *place) learned(n wait.News) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case before := <-p.wake:
		n.At, n.Gone = min(n.At, before.At), n.Gone || before.Gone
	default:
	}
	p.wake <- n
}

// subscription delivers hints to an owner in the queue. It goes with the place from one
// leader of a cohort to the next, and so does not depend on a caller's context.
type subscription struct {
	hints   <-chan driver.Hint // nil: none come, ask at intervals
	results chan watched       // unbuffered: the answers to Watch
	end     context.CancelFunc
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
// confirmed or has failed once, or until over. An error ends the wait; a store that answers
// Try and not Watch does not.
func (a *attempt) subscribe(over <-chan time.Time) error {
	if a.sub == nil {
		a.sub = a.c.listen(a.req.Claim)
	}
	select {
	case w := <-a.sub.results:
		a.subscribed(w)
		return nil
	case <-over:
		a.wait.Unwatched()
		return nil
	case <-a.ctx.Done():
	case <-a.c.calls.Open.Done():
	}
	return a.ended()
}

// watchBriefly subscribes, if a Watch is answered at once, as where the subscription stands.
func (a *attempt) watchBriefly() error {
	timer := time.NewTimer(watchFirst)
	defer timer.Stop()
	a.sent = true // what the store grants counts from the Try
	return a.subscribe(timer.C)
}

// subscribed notes the answer to a Watch. wakes: it ends a sleep.
func (a *attempt) subscribed(w watched) (wakes bool) {
	a.c.busy.deaf.Store(w.err != nil)
	a.sub.hints = w.hints
	if w.err != nil {
		a.sub.hints = nil
		a.emit(EventTrouble, func(e *Event) {
			e.Sent = time.Time{} // that is a Try's
			e.Err = a.c.fail(a.op, a.req.Key, fmt.Errorf("the store sends no hints when the key is free, so this polls: %w", w.err))
		})
	}
	return a.wait.Watched(a.sub.hints != nil)
}

// busy are the keys of which a client's latest Lock was refused at first: the next one is likely to
// wait, too, and watches and joins with its first Try, which saves a round trip.
type busy struct {
	deaf atomic.Bool // the latest Watch failed: waiting for one would keep a Lock from a key that is free
	n    atomic.Int64
	mu   sync.Mutex
	keys map[string]struct{}
}

// is says whether the key is one.
func (b *busy) is(key string) bool {
	if b.n.Load() == 0 || b.deaf.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.keys[key]
	return ok
}

// note notes how the first Try of a Lock ended.
func (b *busy) note(key string, refused bool) {
	if !refused && b.n.Load() == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !refused:
		delete(b.keys, key)
	case b.keys == nil || len(b.keys) >= maxBusy:
		b.keys = map[string]struct{}{key: {}}
	default:
		b.keys[key] = struct{}{}
	}
	b.n.Store(int64(len(b.keys)))
}
