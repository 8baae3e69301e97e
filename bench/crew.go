// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// patience bounds what must come to an end by itself.
const patience = time.Minute

// guard is what a lock protects: it notices a holder too many, and whether the holder
// is another one than the last.
type guard struct {
	limit  int32        // of those who share it; 0: none
	inside atomic.Int32 // those who share it, and alone for one who does not
	last   atomic.Pointer[hand]
}

// alone is more than all who can share a lock.
const alone = 1 << 16

// errTwoHolders: the lock did not exclude.
var errTwoHolders = errors.New("TWO HOLDERS AT ONCE: the lock does not exclude")

func weight(shared bool) int32 {
	if shared {
		return 1
	}
	return alone
}

func (g *guard) enter(shared bool) error {
	n := g.inside.Add(weight(shared))
	if !shared && n != alone || shared && (n >= alone || g.limit > 0 && n > g.limit) {
		return errTwoHolders
	}
	return nil
}

func (g *guard) leave(shared bool) { g.inside.Add(-weight(shared)) }

// hand is a goroutine that locks and releases one key.
type hand struct {
	locker locker
	key    string
	guard  *guard
	shares bool // its Lock admits more than one
	// reads says of each turn, from 0, whether it only reads; nil: none does.
	reads func(turn int) bool
	turns int

	waits    hist // of Lock, granted or not
	writes   hist // of those of waits that were not to read, where some are
	pairs    hist // of Lock and unlock
	grants   int
	handoffs int // grants after another hand's
}

// errCold: some key that nobody else wants was not granted.
var errCold = fmt.Errorf("not every hand got a free key of its own within %v", patience)

// crew is hands that work at the same time.
type crew struct {
	hands  []*hand
	hold   time.Duration
	opened []locker
}

// open makes n clients.
func (c *crew) open(ctx context.Context, p *peer, to target, n int) error {
	made, errs := make([]locker, n), make([]error, n)
	many(n, func(i int) { made[i], errs[i] = p.open(ctx, to) })
	c.opened = slices.DeleteFunc(made, func(l locker) bool { return l == nil })
	return errors.Join(errs...)
}

// close closes the clients.
func (c *crew) close() {
	many(len(c.opened), func(i int) {
		_ = c.opened[i].Close() // what it held was given back, or the round has failed
	})
}

// many calls f for 0 to n-1, some at the same time.
func many(n int, f func(i int)) {
	var all sync.WaitGroup
	places := make(chan struct{}, 32)
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			f(i)
			<-places
		})
	}
	all.Wait()
}

// warm has each hand lock and release a key of its own, so that it is
// connected; limit of them at once.
func (c *crew) warm(ctx context.Context, pairs, limit int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errCold)
	defer cancel()
	places := make(chan struct{}, limit)
	return c.all(ctx, func(ctx context.Context, i int, h *hand) error {
		places <- struct{}{}
		defer func() { <-places }()
		for done := 0; done < pairs && ctx.Err() == nil; {
			err := h.pair(ctx, fmt.Sprintf("warm/%03d", i))
			if err == nil {
				done++
			} else if !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
		}
		return nil // when ctx has ended, its cause says why
	})
}

// pair takes a free key and gives it back, within a bound: there are peers that
// wait for ever when the answer to their attempt comes late.
func (h *hand) pair(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	unlock, err := h.locker.Lock(ctx, key)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// work has the hands lock and release for so long, but until one has done so
// once, and returns how long it really was. atEnd, when it is not nil, is
// called just before the end, while they still work.
func (c *crew) work(ctx context.Context, lasts time.Duration, atEnd func() error) (took time.Duration, err error) {
	waits, stop := context.WithCancel(ctx)
	defer stop()
	begin, once := make(chan struct{}), make(chan struct{})
	var ready sync.WaitGroup
	var first sync.Once
	ready.Add(len(c.hands))
	ended := make(chan error, 1)
	go func() {
		ended <- c.all(ctx, func(ctx context.Context, _ int, h *hand) error {
			ready.Done()
			<-begin
			return h.work(ctx, waits, c.hold, func() { first.Do(func() { close(once) }) })
		})
	}()
	ready.Wait()
	start := time.Now()
	close(begin)
	select {
	case <-time.After(lasts):
	case err := <-ended: // a hand failed, and so all ended
		return time.Since(start), err
	}
	select {
	case <-once:
	case err := <-ended:
		return time.Since(start), err
	case <-time.After(patience):
		err = fmt.Errorf("nobody got the key in %v", time.Since(start))
	}
	if atEnd != nil {
		err = errors.Join(err, atEnd())
	}
	took = time.Since(start)
	stop()
	return took, errors.Join(err, <-ended)
}

// work locks and releases until waits ends, and tells of the first time.
func (h *hand) work(ctx, waits context.Context, hold time.Duration, tell func()) error {
	for !ended(waits) {
		if err := h.turn(ctx, waits, hold); err != nil {
			return err
		}
		if h.grants == 1 {
			tell()
		}
	}
	return nil
}

// turn locks and releases once. What is granted after the end counts as a wait
// only.
func (h *hand) turn(ctx, waits context.Context, hold time.Duration) error {
	shared, lock := h.shares, h.locker.Lock
	write := h.reads != nil && !h.reads(h.turns)
	if s, ok := h.locker.(sharer); ok && h.reads != nil && !write {
		shared, lock = true, s.RLock
	}
	h.turns++
	begin := time.Now()
	unlock, err := lock(waits, h.key)
	h.waits.add(time.Since(begin))
	if write {
		h.writes.add(time.Since(begin))
	}
	over := ended(waits)
	if err != nil && over { // its wait was ended
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if err := h.guard.enter(shared); err != nil {
		return err
	}
	passed := h.guard.last.Swap(h) != h
	if hold > 0 && !over {
		time.Sleep(hold)
	}
	h.guard.leave(shared)
	if err := unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	if !over {
		h.pairs.add(time.Since(begin))
		h.grants++
		if passed {
			h.handoffs++
		}
	}
	return nil
}

// ended says whether a context has.
func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// all calls f for each hand in a goroutine of its own, and returns when all
// have returned, with the first error; it ends the others' context. Hands that
// do not return are left behind, with an error.
func (c *crew) all(ctx context.Context, f func(ctx context.Context, i int, h *hand) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for i, h := range c.hands {
		running.Go(func() {
			if err := f(ctx, i, h); err != nil {
				stop(err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return context.Cause(ctx)
	case <-ctx.Done():
	}
	select {
	case <-ended:
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.Join(context.Cause(ctx), fmt.Errorf("a Lock or a release did not return within %v", patience))
	}
}
