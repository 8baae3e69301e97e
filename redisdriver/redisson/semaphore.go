// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"math"
	"time"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// Semaphore is one of getSemaphore: a number of free permits. It knows no holders: the permits of a process that ends stay
// acquired, and any caller may release permits that none acquired. Numbers of permits are 0 to 2^31-1; 0 is always granted.
//
// As in Redisson, permits can be lost: when the reply to Acquire or TryAcquire is lost, together with its connection, or when this process ends
// while one is under way. A reply that is only late is not lost: what it grants is released when its caller has left.
//
// A semaphore that is not there has no permits, as in Redisson: after the server has lost its data, or after a FLUSHALL or
// an eviction, Acquire waits until permits are set again, for ever if they are not.
type Semaphore struct{ object }

// Semaphore returns the semaphore of a name, of 1 to 512 bytes. It does no I/O.
func (s *Synchronizers) Semaphore(name string) *Semaphore {
	return &Semaphore{s.object("semaphore", name, prefixName("redisson_sc", s.prefix+name), tagged)}
}

func (m *Semaphore) step(op string, n int) *wire.Call {
	return &wire.Call{Script: semaphore, Keys: []any{m.key}, Args: []any{op, m.s.publish(), m.channel, n}}
}

// TrySetPermits makes n permits free, if the semaphore does not exist yet, and reports whether it did.
func (m *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	if err := number("permits", n, 0); err != nil {
		return false, err
	}
	a, err := m.do(ctx, m.step("set", n))
	return a.done, err
}

// AddPermits adds n free permits, or takes -n away, at most 2^31-1 either way: then there may be less than none, and Available is negative. A
// semaphore that does not exist has none before. An expiry that Redisson gave it stays. More than 2^31-1 free permits are an error, which
// changes nothing.
func (m *Semaphore) AddPermits(ctx context.Context, n int) error {
	if err := number("permits", n, -math.MaxInt32); err != nil {
		return err
	}
	_, err := m.do(ctx, m.step("add", n))
	return err
}

// Available returns how many permits are free; 0 if the semaphore does not exist.
func (m *Semaphore) Available(ctx context.Context) (int, error) {
	a, err := m.do(ctx, m.step("free", 0))
	return int(a.numbers[0]), err
}

// Acquire waits until n permits are free at once, and takes them. Waiters have no order. The error is
// ctx.Err() when ctx ends first; no permits stay taken then, unless the reply is lost. A lost reply ends the wait with an error, see [Semaphore].
func (m *Semaphore) Acquire(ctx context.Context, n int) error {
	if err := number("permits", n, 0); err != nil {
		return err
	}
	w := &wait{object: &m.object, permits: n, once: true, try: func(ctx context.Context) (bool, time.Duration, error) {
		ok, err := m.try(ctx, n)
		return ok, 0, err
	}}
	return w.run(ctx)
}

// TryAcquire takes n permits, if so many are free, and reports whether it did.
func (m *Semaphore) TryAcquire(ctx context.Context, n int) (bool, error) {
	if err := number("permits", n, 0); err != nil {
		return false, err
	}
	if err := m.check(); err != nil {
		return false, err
	}
	return m.try(ctx, n)
}

func (m *Semaphore) try(ctx context.Context, n int) (bool, error) {
	if n == 0 {
		return true, nil
	}
	c := m.step("acquire", n)
	err := m.s.ask(ctx, c, func() {
		if c.Err == nil {
			if a, err := m.read(c); err == nil && a.done {
				m.s.giveBack(func() *wire.Call { return m.step("release", n) }, true, 0)
			}
		}
	})
	if err != nil {
		return false, err
	}
	a, err := m.read(c)
	return a.done, err
}

// Release makes n permits more free, no matter which caller acquired them. After an error they may or may not be. More than
// 2^31-1 free permits are an error, which changes nothing.
func (m *Semaphore) Release(ctx context.Context, n int) error {
	if err := number("permits", n, 0); err != nil {
		return err
	}
	if err := m.check(); err != nil || n == 0 {
		return err
	}
	_, err := m.do(ctx, m.step("release", n))
	return err
}

// Drain takes all free permits, and returns how many there were. If there were less than none, there are none now, and
// the number is negative.
func (m *Semaphore) Drain(ctx context.Context) (int, error) {
	a, err := m.do(ctx, m.step("drain", 0))
	return int(a.numbers[0]), err
}
