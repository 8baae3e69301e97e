// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package memdriver keeps locks in memory: the reference engine.
//
// It is the simplest correct implementation of [driver.Driver], and the way to
// test code that uses hasp. A [Store] is the server: any number of
// hasp.Clients may share one, and to each other they are as clients of one
// Redis are. It runs under testing/synctest, where a test that waits out a TTL
// of 30 seconds takes no time, and it can do on demand what is hard to come by
// with a real store: [Store.Hold] makes somebody else the holder, [Store.Lose]
// makes a holder lose its lease, [Store.SetUnreachable] cuts the store off.
package memdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	minTTL = time.Millisecond
	// claimLimit bounds how long a key that was handed to a waiter waits to be
	// claimed. In memory a claim takes microseconds; what may hold it up is
	// the waiter's own process.
	claimLimit = time.Second
	// tombLimit bounds how long a released owner is remembered: no request is
	// under way for longer.
	tombLimit = 10 * time.Second
	// abandonLimit bounds how long it is remembered that a lease expired.
	abandonLimit = time.Minute
)

// Store is a store of locks in this process, and the driver for it. It has no
// goroutine and no timer of its own: what is over is found out when somebody
// looks. All methods may be called by many goroutines at once.
type Store struct {
	mu          sync.Mutex
	keys        map[string]*entry
	tombs       map[ownerKey]time.Time // released owners, and until when they are refused
	watchers    map[ownerKey]map[chan struct{}]struct{}
	fence       uint64 // the largest of all keys
	sweepAt     int    // look for what is over when there is so much to look at
	unreachable bool
}

// ownerKey names what one owner has or had on one key.
type ownerKey struct{ key, owner, label string }

func idOf(r driver.Request) ownerKey { return ownerKey{r.Key, r.Owner, r.Label} }

// New returns an empty store.
func New() *Store {
	return &Store{
		keys:     make(map[string]*entry),
		tombs:    make(map[ownerKey]time.Time),
		watchers: make(map[ownerKey]map[chan struct{}]struct{}),
	}
}

// Traits implements [driver.Driver].
func (s *Store) Traits() driver.Traits {
	return driver.Traits{
		Engine:     "memory",
		Queue:      driver.QueueHandoff,
		Fencing:    true,
		Proposable: true,
		MinTTL:     minTTL,
		Survives:   driver.ClockStep, // expiry goes by the monotonic clock
	}
}

var errUnreachable = errors.New("the store is unreachable (SetUnreachable)")

// enter locks the store for one request.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.unreachable {
		s.mu.Unlock()
		return errUnreachable
	}
	return nil
}

// Try implements [driver.Driver].
func (s *Store) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	if err := check(r); err != nil {
		return driver.Result{}, err
	}
	if err := s.enter(ctx); err != nil {
		return driver.Result{}, err
	}
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	e := s.settled(r.Key, now)
	defer s.forget(e, now)
	switch {
	case s.buried(idOf(r), now):
		return e.refuse(r, now), nil
	case e.holder != nil && e.holder.id == idOf(r):
		return s.again(e, r, now), nil
	case e.holder == nil: // and so nobody waits
		return s.grant(e, r, now), nil
	}
	if r.Queue {
		e.join(r, now)
	}
	return e.refuse(r, now), nil
}

func check(r driver.Request) error {
	switch {
	case r.Mode != driver.Exclusive || r.Limit != 0:
		return fmt.Errorf("shared locks: %w", driver.ErrUnsupported)
	case r.Key == "" || len(r.Key) > driver.MaxKey:
		return fmt.Errorf("the key has %d bytes: it must have 1 to %d", len(r.Key), driver.MaxKey)
	case r.TTL <= 0:
		return fmt.Errorf("the TTL is %v: it must be positive", r.TTL)
	case r.Queue && r.Patience <= 0:
		return fmt.Errorf("the patience is %v: it must be positive", r.Patience)
	}
	return nil
}

// again answers a holder: a repeated request, or the claim of a handoff.
func (s *Store) again(e *entry, r driver.Request, now time.Time) driver.Result {
	h := e.holder
	if r.Fence != 0 && r.Fence != h.fence {
		if r.Fence <= s.fence {
			return driver.Result{Why: driver.FenceTooLow, Fence: s.fence}
		}
		s.fence, h.fence = r.Fence, r.Fence
	}
	fences := 1
	if !h.claimed && r.Fence == 0 && r.Fences > 1 {
		fences = r.Fences
		h.fence = s.mint(now, fences)
	}
	h.claimed = true
	h.extend(now.Add(r.TTL))
	return h.granted(now, fences)
}

// grant gives a free key to r.
func (s *Store) grant(e *entry, r driver.Request, now time.Time) driver.Result {
	if r.Fence != 0 && r.Fence <= s.fence {
		return driver.Result{Why: driver.FenceTooLow, Fence: s.fence}
	}
	h := &place{id: idOf(r), since: now, claimed: true}
	fences := 1
	if h.fence = r.Fence; h.fence == 0 {
		fences = max(r.Fences, 1)
		h.fence = s.mint(now, fences)
	}
	s.fence = h.fence
	h.extend(now.Add(r.TTL))
	e.install(h)
	return h.granted(now, fences)
}

// mint returns the last of the next n fences: one high-water mark for all keys, so that
// nothing needs to be kept for a key that is free. It goes by the clock so
// that a new Store goes on above the fences of an older one.
func (s *Store) mint(now time.Time, n int) uint64 {
	s.fence = max(s.fence+1, uint64(max(now.UnixMicro(), 0))) + uint64(n-1)
	return s.fence
}

// Renew implements [driver.Driver].
func (s *Store) Renew(ctx context.Context, rs []driver.Request, done func(i int, r driver.Renewal)) {
	for i, r := range rs {
		if err := s.enter(ctx); err != nil {
			done(i, driver.Renewal{Err: err})
			continue
		}
		answer := s.renew(r, time.Now())
		s.mu.Unlock()
		done(i, answer)
	}
}

func (s *Store) renew(r driver.Request, now time.Time) driver.Renewal {
	e := s.settled(r.Key, now)
	defer s.forget(e, now)
	if r.Queue {
		i := e.index(idOf(r))
		if i < 0 {
			return driver.Renewal{Err: driver.ErrNotHeld}
		}
		e.line[i].extend(now.Add(r.Patience))
		return driver.Renewal{RetryIn: e.retryIn(i, now)}
	}
	if e.holder == nil || e.holder.id != idOf(r) {
		return driver.Renewal{Err: driver.ErrNotHeld}
	}
	e.holder.extend(now.Add(r.TTL))
	return driver.Renewal{TTL: e.holder.until.Sub(now), Wanted: len(e.line) > 0}
}

// Release implements [driver.Driver].
func (s *Store) Release(ctx context.Context, r driver.Request) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	now := time.Now()
	e := s.settled(r.Key, now)
	defer s.forget(e, now)
	s.tombs[idOf(r)] = now.Add(min(max(r.TTL, minTTL), tombLimit))
	if e.holder != nil && e.holder.id == idOf(r) {
		e.holder = nil
		s.handOn(e, now)
		return nil
	}
	i := e.index(idOf(r))
	if i < 0 {
		return driver.ErrNotHeld
	}
	e.leave(i)
	if i == 0 && len(e.line) > 0 {
		s.hint(e.line[0].id) // now first: it must look at the holder's expiry
	}
	return nil
}

// Classify implements [driver.Driver].
func (s *Store) Classify(err error) driver.Class {
	switch {
	case errors.Is(err, errUnreachable):
		return driver.Unreachable
	case errors.Is(err, driver.ErrUnsupported):
		return driver.Misconfigured
	}
	return driver.Unknown
}

// Close does nothing: a Store outlives its clients, as a server does.
func (s *Store) Close() error { return nil }
