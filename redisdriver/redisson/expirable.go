// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// maxAtOnce is how many permits one request takes at most.
const maxAtOnce = 1000

// PermitExpirableSemaphore is one of getPermitExpirableSemaphore: permits with ids, each for a lease. The caller with
// the id has the permit. Once its lease has expired the permit is free again, and may be another caller's: nothing renews
// it but UpdateLease. Ids are 32 hexadecimal digits, as Redisson shows them.
//
// Leases are by the server's clock. Redisson's are by that of the Java host, which has to be right. As with a [Semaphore], nothing is left
// of it, and Acquire waits, once the server has lost its data.
type PermitExpirableSemaphore struct {
	object
	held string
}

// PermitExpirableSemaphore returns the semaphore of a name, of 1 to 512 bytes. It does no I/O.
func (s *Synchronizers) PermitExpirableSemaphore(name string) *PermitExpirableSemaphore {
	key := s.prefix + name
	held := suffixName(key, "timeout")
	return &PermitExpirableSemaphore{s.object("semaphore", name, prefixName("redisson_sc", key), tagged, held), held}
}

// step is one of the script; gone is the mark of what it is about.
func (m *PermitExpirableSemaphore) step(op, gone string, args ...any) *wire.Call {
	return &wire.Call{
		Script: expirable, Keys: []any{m.key, m.held, wire.Sidecars + "gone:" + gone + ":" + wire.Beside(m.key)},
		Args: append([]any{op, m.s.publish(), m.channel}, args...),
	}
}

// TrySetPermits makes n permits free, if the semaphore does not exist yet, and reports whether it did. n is 0 to 2^31-1.
func (m *PermitExpirableSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	if err := number("permits", n, 0); err != nil {
		return false, err
	}
	a, err := m.do(ctx, m.step("set", "", n))
	return a.done, err
}

// SetPermits makes it n permits in all, 0 to 2^31-1, free and acquired ones: Available is negative while more are acquired.
func (m *PermitExpirableSemaphore) SetPermits(ctx context.Context, n int) error {
	if err := number("permits", n, 0); err != nil {
		return err
	}
	_, err := m.do(ctx, m.step("total", "", n))
	return err
}

// AddPermits adds n free permits, or takes -n away, at most 2^31-1 either way: then Available may be negative. A semaphore that does not exist
// has none before. More than 2^31-1 permits, free and acquired ones, are an error, which changes nothing.
func (m *PermitExpirableSemaphore) AddPermits(ctx context.Context, n int) error {
	if err := number("permits", n, -math.MaxInt32); err != nil {
		return err
	}
	_, err := m.do(ctx, m.step("add", "", n))
	return err
}

// Available returns how many permits are free; 0 if the semaphore does not exist.
func (m *PermitExpirableSemaphore) Available(ctx context.Context) (int, error) {
	a, err := m.do(ctx, m.step("free", "", 0))
	return int(a.numbers[0]), err
}

// Acquired returns how many permits are acquired, and not expired.
func (m *PermitExpirableSemaphore) Acquired(ctx context.Context) (int, error) {
	a, err := m.do(ctx, m.step("free", "", 0))
	return int(a.numbers[1]), err
}

// Acquire waits for a permit, and returns its id. Its lease, rounded up to whole milliseconds, counts from when the server granted
// it; 0: it never expires. The error is ctx.Err() when ctx ends first. A permit that an error leaves in question
// is released in the background, until the server has answered, or Close.
func (m *PermitExpirableSemaphore) Acquire(ctx context.Context, lease time.Duration) (id string, err error) {
	return one(m.AcquireMany(ctx, 1, lease))
}

// AcquireMany is Acquire for n permits at once, 1 to 1000.
func (m *PermitExpirableSemaphore) AcquireMany(ctx context.Context, n int, lease time.Duration) (ids []string, err error) {
	if err := checkLease(n, lease); err != nil {
		return nil, err
	}
	w := &wait{object: &m.object, permits: n, try: func(ctx context.Context) (bool, time.Duration, error) {
		var in time.Duration
		var err error
		ids, in, err = m.try(ctx, n, lease)
		return ids != nil, in, err
	}}
	err = w.run(ctx)
	return ids, err
}

// TryAcquire takes a permit, if one is free, and returns its id; else "". See Acquire for its lease, and errors.
func (m *PermitExpirableSemaphore) TryAcquire(ctx context.Context, lease time.Duration) (id string, err error) {
	return one(m.TryAcquireMany(ctx, 1, lease))
}

// TryAcquireMany is TryAcquire for n permits at once, 1 to 1000; nil if so many are not free.
func (m *PermitExpirableSemaphore) TryAcquireMany(ctx context.Context, n int, lease time.Duration) (ids []string, err error) {
	if err := checkLease(n, lease); err != nil {
		return nil, err
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	ids, _, err = m.try(ctx, n, lease)
	return ids, err
}

func one(ids []string, err error) (string, error) {
	if len(ids) == 0 {
		return "", err
	}
	return ids[0], err
}

func checkLease(n int, lease time.Duration) error {
	switch {
	case n < 1 || n > maxAtOnce:
		return fmt.Errorf("redisson: %d permits: it must be 1 to %d", n, maxAtOnce)
	case lease < 0:
		return fmt.Errorf("redisson: a lease of %v: it must be positive, or 0 for one without end", lease)
	}
	return nil
}

// try asks once, for permits that no request named before: so a late request grants nothing that a caller here has. ids is
// nil if it was refused; in is when a lease ends then, or 0.
func (m *PermitExpirableSemaphore) try(ctx context.Context, n int, lease time.Duration) (ids []string, in time.Duration, err error) {
	raw := make([]any, n)
	for i := range raw {
		b := make([]byte, 16)
		_, _ = rand.Read(b) // it never fails
		raw[i], ids = b, append(ids, hex.EncodeToString(b))
	}
	c := m.step("acquire", ids[0], append([]any{wire.Millis(lease)}, raw...)...)
	if _, err = m.s.send.Do(ctx, c); err != nil {
		if !untouched(err) {
			m.giveBack(ids[0], raw, lease)
		}
		return nil, 0, err
	}
	a, err := m.read(c)
	if err == nil && a.done {
		return ids, 0, nil
	}
	if at := a.numbers[0]; at > 0 {
		in = wire.Span(at) + time.Millisecond
	}
	return nil, in, err
}

// giveBack releases permits that a request without an answer may have taken, or may still take. Those with a lease expire by themselves.
func (m *PermitExpirableSemaphore) giveBack(gone string, raw []any, lease time.Duration) {
	limit := lease
	if limit > 0 {
		limit += min(driver.MaxTransit, math.MaxInt64-limit)
	}
	m.s.giveBack(func() *wire.Call {
		return m.step("release", gone, append([]any{driver.MaxTransit.Milliseconds()}, raw...)...)
	}, false, limit)
}

// Release makes permits free again: all of them, or none. The error is [driver.ErrNotHeld], which is hasp.ErrNotHeld, if one of
// them is not acquired: it was released, its lease is over, or it never was a permit. After another error they may or may not be free: to
// release them again does no harm, since an id is never granted twice.
func (m *PermitExpirableSemaphore) Release(ctx context.Context, ids ...string) error {
	raw := make([]any, 0, len(ids)+1)
	raw = append(raw, "")
	for _, id := range ids {
		b, err := bytesOf(id)
		if err != nil {
			return err
		}
		raw = append(raw, b)
	}
	if len(ids) == 0 {
		return m.check()
	}
	return m.change(ctx, m.step("release", strings.ToLower(ids[0]), raw...))
}

// UpdateLease lets a permit expire in d, rounded up to whole milliseconds; 0: never. The error is [driver.ErrNotHeld] if it is
// not acquired, see Release.
func (m *PermitExpirableSemaphore) UpdateLease(ctx context.Context, id string, d time.Duration) error {
	if err := checkLease(1, d); err != nil {
		return err
	}
	b, err := bytesOf(id)
	if err != nil {
		return err
	}
	return m.change(ctx, m.step("update", "", wire.Millis(d), b))
}

// change runs a step that is not done if a permit is gone.
func (m *PermitExpirableSemaphore) change(ctx context.Context, c *wire.Call) error {
	a, err := m.do(ctx, c)
	if err == nil && !a.done {
		err = driver.ErrNotHeld
	}
	return err
}

// LeaseLeft returns for how long a permit is acquired, in whole milliseconds, at least one; 0: it never expires. The error is [driver.ErrNotHeld]
// if it is not acquired, see Release.
func (m *PermitExpirableSemaphore) LeaseLeft(ctx context.Context, id string) (time.Duration, error) {
	b, err := bytesOf(id)
	if err != nil {
		return 0, err
	}
	a, err := m.do(ctx, m.step("left", "", 0, b))
	switch {
	case err != nil:
		return 0, err
	case !a.done:
		return 0, driver.ErrNotHeld
	}
	return max(wire.Span(a.numbers[0]), 0), nil
}

// bytesOf returns a permit as Redis has it.
func bytesOf(id string) ([]byte, error) {
	b, err := hex.DecodeString(id)
	if err != nil || len(b) != 16 {
		return nil, fmt.Errorf("redisson: %q is no permit of Redisson's, which has 32 hexadecimal digits: %w", id, driver.ErrNotHeld)
	}
	return b, nil
}
