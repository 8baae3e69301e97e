// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9"
)

// nodesOf makes a driver for each server, with a node record.
func nodesOf(conns []*redis.Client, maxTTL time.Duration) (all []member) {
	for _, c := range conns {
		all = append(all, redisdriver.NewNode(c, maxTTL, nil))
	}
	return all
}

// haspLocker is hasp on one server, or on a quorum of the nodes.
type haspLocker struct {
	conns  []io.Closer
	locks  *hasp.Client
	ttl    time.Duration
	skew   time.Duration
	report func(event) error

	seen *witness

	mu     sync.Mutex
	queued int                   // the latest turn that waits in the queue
	held   map[string]*haspLease // by owner
}

type haspLease struct {
	*hasp.Lease
	of  *haspLocker
	n   int
	key string
}

func openHasp(j *job, report func(event) error) (*haspLocker, error) {
	l := &haspLocker{ttl: j.MaxTTL, skew: j.Skew, report: report, held: map[string]*haspLease{}}
	l.seen = newWitness(func(e event) { _ = report(e) }) // a broken pipe ends the process elsewhere
	v, err := named(j.Broken)
	if err != nil {
		return nil, err
	}
	o := &hasp.Options{Observe: l.observe}
	d, err := l.connect(j, v, o)
	if err == nil {
		l.locks, err = hasp.New(d, o)
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(l.conns))
	}
	return l, nil
}

// connect makes the driver that a job names, with a safeguard removed.
func (l *haspLocker) connect(j *job, v *variant, o *hasp.Options) (driver.Driver, error) {
	switch j.Store {
	case Redlock, Redis, RedisNode:
	default:
		kind := engines.Kind(j.Store)
		if v.opens != "" {
			kind = v.opens
		}
		c, err := engines.Open(kind, j.Addrs)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, c)
		if n, ok := c.Driver.(member); ok {
			return v.alone(n, l.seen), nil
		}
		return v.over(c.Driver, l.seen), nil
	}
	conns := dial(j.Addrs, j.Strict)
	for _, c := range conns {
		l.conns = append(l.conns, c)
	}
	switch j.Store {
	case Redlock:
		return v.compose(nodesOf(conns, j.MaxTTL), j.Skew, &quorum.Options{Names: j.Addrs, NodeTimeout: j.Timeout, StateDir: j.State}, l.seen), nil
	case RedisNode:
		o.StateDir = j.State
		return v.alone(nodesOf(conns, j.MaxTTL)[0], l.seen), nil
	}
	session := j.Seed%2 == 0 // leases of some clients depend on sessions, and those of others do not
	return v.alone(redisdriver.New(conns[0], &redisdriver.Options{Session: session}), l.seen), nil
}

// observe reports each renewal, which moves a deadline, and the first refusal with a
// place in the queue.
func (l *haspLocker) observe(e hasp.Event) {
	t, _ := l.seen.of(e.Owner)
	l.mu.Lock()
	h := l.held[e.Owner]
	first := e.Kind == hasp.EventWaiting && l.queued != t.n
	if first {
		l.queued = t.n
	}
	l.mu.Unlock()
	switch { // a broken pipe ends the process elsewhere
	case e.Kind == hasp.EventRenewed && h != nil:
		renewal := event{What: renewed, At: now(), N: h.n, Key: h.key, Fence: h.fence(), Deadline: h.deadline()}
		renewal.Most = h.most()
		_ = l.report(renewal)
	case first:
		_ = l.report(t.event(waiting))
	}
}

func (l *haspLocker) lock(ctx context.Context, t *turn) (lease, error) {
	l.seen.takes(t)
	m := l.locks.RWMutex(t.key, &hasp.LockOptions{TTL: l.ttl})
	acquire := m.Lock
	switch {
	case t.try && t.read:
		acquire = m.TryRLock
	case t.try:
		acquire = m.TryLock
	case t.read:
		acquire = m.RLock
	}
	got, err := acquire(ctx)
	if err != nil {
		return nil, err
	}
	h := &haspLease{got, l, t.n, t.key}
	l.mu.Lock()
	l.held[got.Owner()] = h
	l.mu.Unlock()
	return h, nil
}

func (*haspLocker) shares() bool { return true }

func (l *haspLocker) slow() time.Duration { return time.Duration(l.seen.slow.Load()) }

func (l *haspLocker) close() error { return errors.Join(l.locks.Close(), closeAll(l.conns)) }

// fence returns the fence that the nodes know: a client with a wrong clock sees it
// shifted.
func (h *haspLease) fence() uint64 { return broken.Shift(h.Fence(), h.of.skew) }

func (h *haspLease) deadline() Mono {
	at := now()
	return at.Add(time.Until(h.Deadline())) // never later than the real one
}

func (h *haspLease) most() Mono {
	_, at := h.of.seen.of(h.Owner())
	return at
}

func (h *haspLease) err() error { return h.Err() }

func (h *haspLease) done() <-chan struct{} { return h.Done() }

func (h *haspLease) downgrade(ctx context.Context) error { return h.Downgrade(ctx) }

func (h *haspLease) release() error {
	h.of.mu.Lock()
	delete(h.of.held, h.Owner())
	h.of.mu.Unlock()
	return h.Release()
}
