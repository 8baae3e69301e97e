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

// patience bounds what must end by itself.
const patience = time.Minute

// guard is what a lock protects: it notices a holder too many, and whether the holder is
// a different one from the last.
type guard struct {
	limit  int32        // of holders that share it; 0: none
	inside atomic.Int32 // the number of sharing holders, plus alone for a holder that does not share
	last   atomic.Pointer[worker]
}

// alone is more than all that can share a lock.
const alone = 1 << 16

// errTwoHolders means that the lock did not exclude.
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

// worker is a goroutine that locks and releases one key.
type worker struct {
	locker locker
	key    string
	keys   int // of which it locks one after the other, named after key; 0: key alone
	guard  *guard
	shares bool // its Lock admits more than one
	// reads reports whether a turn, from 0, only reads; nil: none does.
	reads func(turn int) bool
	turns int

	waits    hist // of Lock, granted or not
	writes   hist // of Lock for turns that write, if some only read
	pairs    hist // of Lock and unlock
	grants   int
	handoffs int // grants after another hand's
}

// errNotWarm means that some uncontended key was not granted.
var errNotWarm = fmt.Errorf("not every worker was granted a free key of its own within %v", patience)

// workers run at the same time.
type workers struct {
	list    []*worker
	hold    time.Duration
	clients []locker
}

// gather opens clients of a peer, with workers that take turns on them, for one hot key.
func gather(ctx context.Context, p *peer, to target, clients, count int) (*workers, error) {
	c := &workers{clients: make([]locker, clients)}
	if err := many(clients, func(i int) (err error) {
		c.clients[i], err = p.open(ctx, to)
		return err
	}); err != nil {
		c.clients = slices.DeleteFunc(c.clients, func(l locker) bool { return l == nil })
		c.close()
		return nil, err
	}
	g := new(guard)
	for i := range count {
		c.list = append(c.list, &worker{locker: c.clients[i%clients], key: hotKey, guard: g})
	}
	return c, nil
}

// hotKey is the key that all contend for.
const hotKey = "hot"

// close closes the clients.
func (c *workers) close() {
	_ = many(len(c.clients), func(i int) error {
		_ = c.clients[i].Close() // what it held was released, or the round has failed
		return nil
	})
}

// atOnce is how many goroutines many has: so few that no peer's time-outs are what is measured.
const atOnce = 32

// many calls f for 0 to n-1, some at a time, until one fails.
func many(n int, f func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for range min(n, atOnce) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// warm makes each worker lock and release a key of its own, so that it is connected;
// limit of them at a time.
func (c *workers) warm(ctx context.Context, pairs, limit int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNotWarm)
	defer cancel()
	places := make(chan struct{}, limit)
	return c.all(ctx, func(ctx context.Context, i int, h *worker) error {
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

// pair locks and releases a free key, within a bound: some peers wait for ever if the
// answer to their attempt is late.
func (h *worker) pair(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	unlock, err := h.locker.Lock(ctx, key)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

// work makes the workers lock and release for lasts, or until one has done so once if
// that is later, and returns how long it was. atEnd, if not nil, is called just before
// the end, while they still work.
func (c *workers) work(ctx context.Context, lasts time.Duration, atEnd func() error) (took time.Duration, err error) {
	waits, stop := context.WithCancel(ctx)
	defer stop()
	begin, once := make(chan struct{}), make(chan struct{})
	var ready sync.WaitGroup
	var first sync.Once
	ready.Add(len(c.list))
	ended := make(chan error, 1)
	go func() {
		ended <- c.all(ctx, func(ctx context.Context, _ int, h *worker) error {
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
	case err := <-ended: // a worker failed, and so all ended
		return time.Since(start), err
	}
	select {
	case <-once:
	case err := <-ended:
		return time.Since(start), err
	case <-time.After(patience):
		err = fmt.Errorf("no worker got the key in %v", time.Since(start))
	}
	if atEnd != nil {
		err = errors.Join(err, atEnd())
	}
	took = time.Since(start)
	stop()
	return took, errors.Join(err, <-ended)
}

// work locks and releases until waits ends, and calls first after the first time.
func (h *worker) work(ctx, waits context.Context, hold time.Duration, first func()) error {
	for !ended(waits) {
		if err := h.turn(ctx, waits, hold); err != nil {
			return err
		}
		if h.grants == 1 {
			first()
		}
	}
	return nil
}

// turn locks and releases once. What is granted after the end counts as a wait
// only.
func (h *worker) turn(ctx, waits context.Context, hold time.Duration) error {
	shared, lock := h.shares, h.locker.Lock
	write := h.reads != nil && !h.reads(h.turns)
	if s, ok := h.locker.(sharer); ok && h.reads != nil && !write {
		shared, lock = true, s.RLock
	}
	h.turns++
	key := h.key
	if h.keys > 0 {
		key = fmt.Sprintf("%s/%d", key, h.turns%h.keys)
	}
	begin := time.Now()
	unlock, err := lock(waits, key)
	h.waits.add(time.Since(begin))
	if write {
		h.writes.add(time.Since(begin))
	}
	over := ended(waits)
	if err != nil && over { // its wait was cancelled
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

// ended reports whether a context has ended.
func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

// all calls f for each worker in a goroutine of its own, and returns when all have
// returned, with the first error, which also ends the others' context. Workers that do
// not return are abandoned with an error.
func (c *workers) all(ctx context.Context, f func(ctx context.Context, i int, h *worker) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var running sync.WaitGroup
	for i, h := range c.list {
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
