// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/hasplock/hasp/driver"
)

// Locker is what LockAll takes: a *Mutex, an *RWMutex (its write side), what its
// RLocker returns, a *Semaphore, or an *Election.
type Locker interface {
	Lock(ctx context.Context) (*Lease, error)
	TryLock(ctx context.Context) (*Lease, error)
	handle() *lock
}

// lock is what all lock types are: a key, and how it is to be held. It never changes.
type lock struct {
	c     *core
	key   string
	opts  *LockOptions // its own, and never changed: a handle may be overwritten while its leases live
	mode  Mode
	limit int
	err   error // what is wrong with all that: of the first use
}

func (c *core) lock(key string, o *LockOptions, mode Mode, limit int) lock {
	if c == nil {
		panic("hasp: this Client was not made by New")
	}
	l := lock{c: c, key: key, mode: mode, limit: limit}
	if l.opts, l.err = o.normal(c.traits); l.err == nil && mode == Shared {
		l.err = c.unshared(limit)
	}
	if err := driver.CheckKey(key); err != nil {
		l.err = err
	}
	return l
}

// noTurns refuses the options that are Mutex's alone.
func (l lock) noTurns() lock {
	switch {
	case l.err != nil:
	case l.opts.Cohort > 0:
		l.err = errors.New("only a Mutex can have a cohort: set Cohort to 0")
	case l.opts.Keep > 0:
		l.err = errors.New("only a Mutex can be kept: set Keep to 0")
	}
	return l
}

// acquire is Lock, or TryLock, of every lock type.
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
	l.mustBeMade()
	mustHave(ctx)
	if l.err != nil {
		return nil, l.err
	}
	if ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	if h, ok := ctx.Value(holdKey{l.c, l.key}).(*hold); ok {
		return h.again(l.mode, l.limit, l.opts.Reentrant)
	}
	return nil, nil //nolint:nilnil // neither: ask the store
}

// ask asks the store. part: the lease is worth nothing until others are held, too.
func (l *lock) ask(ctx context.Context, op string, wait, part bool) (lease *Lease, err error) {
	if !l.c.calls.Enter() {
		return nil, l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.calls.Leave()
	if lease := l.kept(ctx, wait, part); lease != nil {
		return lease, nil
	}
	a := &attempt{c: l.c, ctx: ctx, op: op, opts: l.opts, part: part, began: l.c.now(), behind: alone{},
		waiter: waiter{req: l.request(), patience: newPatience(l.c.maxSilence, l.c.maxRefused)}}
	switch {
	case !wait && l.opts.Keep > 0:
		lease, err = l.c.cohorts.tryLock(a)
	case !wait:
		lease, err = a.alone(a.tryLock)
	case l.opts.Cohort > 0 || l.opts.Keep > 0:
		lease, err = l.c.cohorts.lock(a)
	default:
		lease, err = a.alone(a.lock)
	}
	if err != nil {
		a.emit(EventFailed, func(e *Event) { e.Err = err })
		return nil, err
	}
	lease.acquired(a.began, a.waits)
	return lease, nil
}

// request returns what a new acquisition asks for.
func (l *lock) request() driver.TryRequest {
	return driver.TryRequest{
		Claim:    driver.Claim{Key: l.key, Owner: rand.Text(), Label: l.c.labels.label(l.opts.Reason), Mode: l.mode, Limit: l.limit},
		TTL:      l.opts.TTL,
		Patience: min(l.opts.TTL, maxPatience),
		Enters:   l.enters(),
	}
}

// do holds the key while f runs. lost: the lease was lost before f returned.
func (l *lock) do(ctx context.Context, op string, f func(ctx context.Context, lease *Lease) error) (lost bool, err error) {
	l.mustBeMade()
	mustHave(ctx)
	if f == nil {
		panic("hasp: the function to run is nil")
	}
	if !l.c.calls.Enter() { // Close waits for f
		return false, l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.calls.Leave()
	lease, err := l.acquire(ctx, op, true)
	if err != nil {
		return false, err
	}
	if err := lease.h.run(); err != nil {
		_ = lease.release(false, driver.Unused) // which says the same
		return errors.Is(err, ErrLost), err
	}
	end := driver.Unfinished // if f panics
	defer func() { err = errors.Join(err, lease.release(true, end)) }()
	err = f(lease.Context(ctx), lease)
	end = driver.Finished
	return errors.Is(lease.h.checkDeadline(), ErrLost), err
}

// mustBeMade panics for a lock that no Client made.
func (l *lock) mustBeMade() {
	if l == nil || l.c == nil {
		panic("hasp: this lock was not made by a Client: use Client.Mutex, RWMutex, Semaphore or Election")
	}
}

// mustHave panics without a context.
func mustHave(ctx context.Context) {
	if ctx == nil {
		panic("hasp: the context is nil")
	}
}
