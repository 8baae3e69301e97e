// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"

	"github.com/hasplock/hasp/driver"
)

// Mutex is a key that one holder has at a time. It is a handle without state:
// any number of goroutines may use one, or many for the same key, and each
// Lock is an acquisition of its own.
type Mutex struct {
	c    *Client
	key  string
	opts LockOptions
	err  error // what is wrong with the key or the options
}

// Mutex returns the lock of a key of 1 to 512 bytes. nil options mean the
// defaults. What is wrong with either is the error of the first use.
func (c *Client) Mutex(key string, o *LockOptions) *Mutex {
	opts, err := o.normal(c.traits)
	if kerr := checkKey(key); kerr != nil {
		err = kerr
	}
	return &Mutex{c: c, key: key, opts: opts, err: err}
}

// Lock waits for its turn and returns a lease.
//
// ctx bounds the wait, not the hold. When it ends first, the error is its
// error and what kept Lock waiting, both found with errors.Is and errors.As,
// and nothing of this attempt stays in the store. A store that cannot be
// reached is asked again until ctx ends, but no longer than the TTL without a
// single answer (5 s at least, and when it never answered this client). A store that
// refuses for good (Error.Class Denied, Misconfigured, Full, ReadOnly) ends
// Lock at once.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, "lock", true)
}

// TryLock asks once. It returns ErrHeld (as *HeldError) when somebody holds
// the key, or stands in line for it.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, "try lock", false)
}

// Do holds the key while f runs. f's context ends when ctx does, when the
// lease may be lost, and when the client is closed; the key is released only
// after f returned. The error joins f's, the loss of the lease, and the
// release's.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) (err error) {
	if !m.c.enter() { // Close waits for f
		return m.c.fail("lock", m.key, ErrClosed)
	}
	defer m.c.leave()
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	if err := lease.h.run(); err != nil {
		return errors.Join(err, lease.release(false))
	}
	defer func() { err = errors.Join(err, lease.release(true)) }()
	return f(lease.Context(ctx), lease)
}

func (m *Mutex) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	if m.err != nil {
		return nil, m.c.fail(op, m.key, m.err)
	}
	if ctx.Err() != nil {
		return nil, m.c.fail(op, m.key, endOf(ctx))
	}
	if h, ok := ctx.Value(holdKey{m.c, m.key}).(*hold); ok {
		lease, err := h.again(m.opts.Reentrant)
		if err != nil {
			return nil, m.c.fail(op, m.key, err)
		}
		return lease, nil
	}
	if !m.c.enter() {
		return nil, m.c.fail(op, m.key, ErrClosed)
	}
	defer m.c.leave()
	a := &attempt{m: m, c: m.c, ctx: ctx, op: op, req: m.request(), began: m.c.now()}
	switch {
	case wait && m.opts.Cohort > 0:
		return a.inCohort()
	case wait:
		return a.lock()
	}
	return a.tryLock()
}

// request returns what a new acquisition asks for.
func (m *Mutex) request() driver.Request {
	return driver.Request{
		Key:      m.key,
		Owner:    newOwner(),
		Label:    m.c.newLabel(m.opts.Reason),
		TTL:      m.opts.TTL,
		Patience: min(m.opts.TTL, maxPatience),
	}
}
