// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Leases are the leases of several keys, held and lost together. All methods may
// be called by many goroutines at once.
type Leases struct {
	parts []*Lease // each once
	all   []*Lease // in the order of the arguments

	mu     sync.Mutex
	done   context.Context // made on demand, as wanted
	over   context.CancelFunc
	wanted context.Context
	want   context.CancelFunc
	unwish []func() bool // forgets the callers of Wanted, since a hold may outlive its parts
}

// Locks are locks to hold together, of whatever kinds and clients.
type Locks []Locker

// Lock waits until it holds all of them, or holds none. ctx bounds the wait as in
// Mutex.Lock.
//
// It acquires one after the other, in the order of their keys, so that callers that
// name the same keys in different orders do not deadlock. Equal keys in different
// stores are taken in the order of the engines' names, then as they are given: give
// them in one order everywhere. Two clients of one store exclude each other here,
// too. The order does not cover keys that the caller holds already.
//
// A lock that is given twice is held once, with the options of the first. To ask
// for one key of a client in two modes is an error, as is an invalid lock; both are
// reported before any key is taken. A key that ctx holds already follows the rules
// of Reentrant.
//
// Each lease keeps its lock's options: while Lock waits for the rest, those it
// has are renewed, unless NoRenew; MaxHold counts once it has all. If one of them
// is lost, the wait ends with ErrLost.
func (ls Locks) Lock(ctx context.Context) (*Leases, error) {
	return ls.acquire(ctx, "lock", true, nil)
}

// TryLock asks once for each, in the order of Lock, and holds all or none of them.
// The error is that of the first one it could not have: ErrHeld (as *HeldError) when
// another owner holds the key or waits for it.
func (ls Locks) TryLock(ctx context.Context) (*Leases, error) {
	return ls.acquire(ctx, "try lock", false, nil)
}

// Do holds all of them while f runs, as Mutex.Do does. An Observe that panics when the keys are released ends the process.
func (ls Locks) Do(ctx context.Context, f func(ctx context.Context, leases *Leases) error) error {
	if f == nil {
		panic("hasp: the function to run is nil")
	}
	_, err := ls.acquire(ctx, "lock", true, f)
	return err
}

// part is one of the keys of Locks.
type part struct {
	*lock
	lease *Lease
}

// acquire returns the leases; f, unless nil, runs with them first, and Close waits for it.
func (ls Locks) acquire(ctx context.Context, op string, wait bool, f func(context.Context, *Leases) error) (s *Leases, err error) {
	mustHave(ctx)
	given, parts, err := plan(op, ls)
	if err != nil {
		return nil, err
	}
	if len(parts) > 1 {
		op += " " + strconv.Itoa(len(parts)) + " keys,"
	}
	for _, p := range parts { // Close waits until what we have is given back
		if !p.c.calls.Enter() {
			return nil, p.c.fail(op, p.key, ErrClosed)
		}
		defer p.c.calls.Leave()
	}
	defer func() {
		if s == nil { // also when the observer panicked
			giveUpAll(ctx, parts)
		}
	}()
	if err := takeAll(ctx, op, wait, parts); err != nil {
		return nil, err
	}
	s = &Leases{}
	for _, p := range parts {
		p.lease.h.begin(p.c.now())
		s.parts = append(s.parts, p.lease)
	}
	for _, p := range given {
		s.all = append(s.all, p.lease)
	}
	if f != nil {
		err = s.do(ctx, f)
	}
	return s, err
}

// plan returns the part of each item, and the parts in the order in which to
// take them.
func plan(op string, items []Locker) (given, parts []*part, err error) {
	if len(items) == 0 {
		return nil, nil, newMistake(op, "no keys were named")
	}
	byKey := map[holdKey]*part{}
	for i, item := range items {
		if item == nil {
			return nil, nil, newMistake(op, "item %d is nil", i)
		}
		l := item.handle()
		l.mustBeMade()
		if l.err != nil {
			return nil, nil, l.c.fail(op, l.key, l.err)
		}
		p := byKey[l.holdKey]
		if p == nil {
			p = &part{lock: l}
			byKey[l.holdKey] = p
			parts = append(parts, p)
		}
		if p.mode != l.mode || p.limit != l.limit {
			return nil, nil, l.c.fail(op, l.key, mistake{errors.New("the key is named twice, in different modes: name it once, in the one that excludes more")})
		}
		given = append(given, p)
	}
	slices.SortStableFunc(parts, func(a, b *part) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.c.traits.Engine, b.c.traits.Engine))
	})
	return given, parts, nil
}

// takeAll takes the parts: those that count up first, since that needs no
// store. After an error some of them have leases.
func takeAll(ctx context.Context, op string, wait bool, parts []*part) (err error) {
	closed, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := closed // ends also when a lease that we have is lost
	for _, p := range parts {
		defer context.AfterFunc(p.c.calls.Open, func() { cancel(ErrClosed) })()
		if p.lease, err = p.ready(ctx); err != nil {
			return p.c.fail(op, p.key, err)
		}
		if p.lease != nil {
			watch = p.lease.Context(watch) //nolint:fatcontext // one for each lease
		}
	}
	for _, p := range parts {
		if p.lease != nil {
			continue
		}
		if p.lease, err = p.lock.lease(watch, op, wait, true); err != nil {
			if lost := lostOf(op, parts, p); lost != nil && ctx.Err() == nil {
				return lost
			}
			return err
		}
		p.lease.h.setCaller(ctx)       // watch would keep the leases before it, also when all were dropped
		watch = p.lease.Context(watch) //nolint:fatcontext // one for each lease
	}
	return lostOf(op, parts, nil)
}

// lostOf returns the loss of one of the parts that we have, while we waited for
// another.
func lostOf(op string, parts []*part, waited *part) error {
	for _, p := range parts {
		if p.lease == nil {
			continue
		}
		if err := p.lease.h.checkDeadline(); err != nil {
			err = errors.Unwrap(err) // what an Error says of key and engine stays the same
			if waited != nil {
				err = fmt.Errorf("while waiting for %s: %w", quoteKey(waited.key), err)
			}
			return p.c.fail(op, p.key, err)
		}
	}
	return nil
}

// giveUpAll gives back what an acquire has. Once ctx has ended it waits for no
// more than a moment.
func giveUpAll(ctx context.Context, parts []*part) {
	var given sync.WaitGroup
	for _, p := range parts {
		if p.lease == nil {
			continue
		}
		p.c.calls.EnterLate()
		given.Go(func() {
			defer p.c.calls.Leave()
			_ = p.lease.release(false, driver.EndFinished) // no caller is left to be told; the TTL ends what stays
		})
	}
	all := make(chan struct{})
	go func() { given.Wait(); close(all) }()
	select {
	case <-all:
		return
	case <-ctx.Done():
	}
	limit := time.NewTimer(moment)
	defer limit.Stop()
	select {
	case <-all:
	case <-limit.C:
	}
}

// All returns the leases in the order of the arguments; one for each, so that
// an item that was given twice has the same lease twice.
func (s *Leases) All() []*Lease { return slices.Clone(s.all) }

// Err returns nil while all leases can be relied on, or the error of a lease that
// cannot; see Lease.Err. After an error Done is closed.
func (s *Leases) Err() error {
	for _, l := range s.parts {
		if err := l.Err(); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.over != nil {
				s.over() // the goroutine that found the loss may not have come to it yet
			}
			return err
		}
	}
	return nil
}

// Deadline returns the earliest deadline of the leases; see Lease.Deadline.
func (s *Leases) Deadline() time.Time {
	first := s.parts[0].Deadline()
	for _, l := range s.parts[1:] {
		if d := l.Deadline(); d.Before(first) {
			first = d
		}
	}
	return first
}

// Context returns a context that ends with parent, and as soon as one of the
// leases ends; see Lease.Context.
func (s *Leases) Context(parent context.Context) context.Context {
	for _, l := range s.parts {
		parent = l.Context(parent) //nolint:fatcontext // one for each lease
	}
	return parent
}

// Done is closed as soon as one of the leases is lost, released, or its client
// closed.
func (s *Leases) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done == nil {
		base, over := context.WithCancel(context.Background()) // no caller's: it ends with the leases
		s.done, s.over = s.Context(base), over
	}
	return s.done.Done()
}

// Wanted is closed once another owner waits for one of the keys; see Lease.Wanted.
func (s *Leases) Wanted() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted == nil {
		s.wanted, s.want = context.WithCancel(context.Background())
		for _, l := range s.parts {
			s.unwish = append(s.unwish, context.AfterFunc(l.h.wish(), s.want))
		}
	}
	return s.wanted.Done()
}

// do runs f with the leases, and releases them.
func (s *Leases) do(ctx context.Context, f func(context.Context, *Leases) error) (err error) {
	ran := map[*Lease]bool{}
	end := driver.EndUnused
	defer func() {
		err = errors.Join(err, s.release(func(l *Lease) error { return besides(err, l.release(ran[l], end)) }))
	}()
	for _, l := range s.parts {
		if err := l.h.run(); err != nil {
			return err
		}
		ran[l] = true
	}
	end = driver.EndUnfinished // if f panics
	err = f(s.Context(ctx), s)
	end = driver.EndFinished
	return err
}

// Release gives all keys back at once, each as Lease.Release does, and joins
// the errors. Releasing twice is harmless.
func (s *Leases) Release() error { return s.release((*Lease).Release) }

// Abandon is Release of work that was not finished; see Lease.Abandon.
func (s *Leases) Abandon() error { return s.release((*Lease).Abandon) }

func (s *Leases) release(one func(*Lease) error) error {
	s.mu.Lock()
	for _, stop := range s.unwish {
		stop()
	}
	s.unwish = nil
	s.mu.Unlock()
	errs := make([]error, len(s.parts))
	var given sync.WaitGroup
	for i, l := range s.parts {
		given.Go(func() { errs[i] = one(l) })
	}
	given.Wait()
	return errors.Join(errs...)
}
