// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"

	"github.com/hasplock/hasp/driver"
)

// Mode is how a key is held. The zero value is Exclusive.
type Mode = driver.Mode

// The modes.
const (
	Exclusive = driver.Exclusive // one holder
	Shared    = driver.Shared    // readers, or the holders of a semaphore's slots
)

// Locker is what LockAll takes: a *Mutex, a *RWMutex (its write side), what its
// RLocker returns, a *Semaphore, or an *Election.
type Locker interface {
	Lock(ctx context.Context) (*Lease, error)
	TryLock(ctx context.Context) (*Lease, error)
	asked() *lock
}

// lock is what all faces are: a key, and how it is to be held. It never changes.
type lock struct {
	c     *Client
	key   string
	opts  LockOptions
	mode  Mode
	limit int
	err   error // what is wrong with all that: of the first use
}

func (c *Client) lock(key string, o *LockOptions, mode Mode, limit int) lock {
	l := lock{c: c, key: key, mode: mode, limit: limit}
	if l.opts, l.err = o.normal(c.traits); l.err == nil && mode == Shared {
		l.err = c.unshared(limit)
	}
	if err := checkKey(key); err != nil {
		l.err = err
	}
	return l
}

// noCohort refuses the option that is Mutex's alone.
func (l lock) noCohort() lock {
	if l.err == nil && l.opts.Cohort > 0 {
		l.err = errors.New("only a Mutex has cohorts: set Cohort to 0")
	}
	return l
}

// unshared returns why the engine cannot share a key, or not by number.
func (c *Client) unshared(limit int) error {
	switch tr := c.traits; {
	case !tr.Shared:
		return fmt.Errorf("%w: %s gives a key to one holder at a time", ErrUnsupported, tr.Engine)
	case limit > 0 && !tr.Slots:
		return fmt.Errorf("%w: %s has no slots: counting votes would admit more than %d", ErrUnsupported, tr.Engine, limit)
	}
	return nil
}

// acquire is Lock, or TryLock, of every face.
func (l *lock) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	lease, err := l.ready(ctx)
	if lease != nil || err != nil {
		return lease, l.c.fail(op, l.key, err)
	}
	return l.ask(ctx, op, wait, false)
}

// ready returns what needs no store: a lease that counts up the one ctx comes
// from, or an error. Otherwise neither.
func (l *lock) ready(ctx context.Context) (*Lease, error) {
	if l.err != nil {
		return nil, l.err
	}
	if ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	if h, ok := ctx.Value(holdKey{l.c, l.key}).(*hold); ok {
		return h.again(l)
	}
	return nil, nil //nolint:nilnil // neither: ask the store
}

// ask asks the store. part: the lease is worth nothing until others are held, too.
func (l *lock) ask(ctx context.Context, op string, wait, part bool) (*Lease, error) {
	if !l.c.enter() {
		return nil, l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.leave()
	a := &attempt{l: l, c: l.c, ctx: ctx, op: op, part: part, req: l.request(), began: l.c.now()}
	switch {
	case wait && l.opts.Cohort > 0:
		return a.inCohort()
	case wait:
		return a.lock()
	}
	return a.tryLock()
}

// request returns what a new acquisition asks for.
func (l *lock) request() driver.Request {
	return driver.Request{
		Key:      l.key,
		Owner:    newOwner(),
		Label:    l.c.newLabel(l.opts.Reason),
		TTL:      l.opts.TTL,
		Patience: min(l.opts.TTL, maxPatience),
		Mode:     l.mode,
		Limit:    l.limit,
	}
}

// do holds the key while f runs.
func (l *lock) do(ctx context.Context, op string, f func(ctx context.Context, lease *Lease) error) (err error) {
	if !l.c.enter() { // Close waits for f
		return l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.leave()
	lease, err := l.acquire(ctx, op, true)
	if err != nil {
		return err
	}
	if err := lease.h.run(); err != nil {
		return errors.Join(err, lease.release(false, driver.Unused))
	}
	end := driver.Unfinished // if f panics
	defer func() { err = errors.Join(err, lease.release(true, end)) }()
	err = f(lease.Context(ctx), lease)
	end = driver.Finished
	return err
}
