// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

// s9 is one key that is read far more often than it is written.
var s9 = scenario{
	name:  "s9",
	title: "read-mostly: one key, nine reads to a write, held for 1 ms",
	about: "64 goroutines share one client. Each locks the one key, holds it for 1 ms and releases it, over and over; every tenth time to write, " +
		"otherwise to read. hasp uses its RWMutex, in which consecutive readers in the queue are admitted together, and a waiting writer holds up those " +
		"after it; hasp Mutex is the same client without it; like it, peers without a read-write lock hold the key exclusively even to read. " +
		"A wait is the time of one Lock or RLock, counted as in S2; a write's p99 says whether readers keep writers out. " +
		"Every holder checks that no writer holds the key beside it, and a writer that it is alone.",
	metrics: []metric{
		{name: "grants", head: "grants/s", better: higher, main: true},
		{name: "p50", head: "wait p50", unit: seconds, better: lower},
		{name: "p99", head: "wait p99", unit: seconds, better: lower, main: true},
		{name: "writes", head: "write p99", unit: seconds, better: lower},
		{name: "commands", head: "commands", better: lower},
		{name: "never", head: "never granted", better: lower},
	},
	variants: func(bool) []variant { return goroutines(64) },
	field: func(e *env, all []*peer) []*peer {
		// The local mutex of the other scenarios is replaced by a mutex that can be shared.
		mutexes := slices.DeleteFunc(waiting(e, all), func(p *peer) bool { return p.local || p.patience })
		return slices.Concat(mutexes, available(e, slices.Clone(sharedPeers)))
	},
	run: runS9,
	bars: []bar{
		atLeast(2, "grants/s at least twice those of hasp's own Mutex", 64, "grants", exclusive),
		atLeast(1, "more grants/s than any peer, including those that hand nothing off", 64, "grants",
			"redislock", "redsync", "redsync fail-fast", "rueidislock", "rueidislock majority 2", "etcd", "etcd RWMutex"),
		atMost(1, "a write waits no longer (p99) than under hasp's own Mutex", 64, "writes", exclusive),
	},
}

// exclusive is hasp without its read-write lock.
const exclusive = baseline + " Mutex"

// sharedPeers take part in S9 only.
var sharedPeers = []*peer{
	{
		name:    exclusive,
		modules: haspPeers[0].modules,
		config:  "as hasp, with a Mutex also for reads",
		waits:   true,
		open: func(ctx context.Context, to target) (locker, error) {
			l, err := haspPeers[0].open(ctx, to)
			return struct{ locker }{l}, err // hides RLock
		},
	},
	{
		name:    "etcd RWMutex",
		modules: []string{"go.etcd.io/etcd/client/v3"},
		config:  "NewRWMutex of etcd's experimental/recipes over one client and one session of TTL 30 s",
		waits:   true,
		etcd:    true,
		open:    openEtcdRW,
	},
	{
		name:   "sync.RWMutex",
		config: "Go's own, in this process",
		waits:  true,
		local:  true,
		open:   func(context.Context, target) (locker, error) { return localRW{}, nil },
	},
}

func runS9(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	l, err := p.open(ctx, e.target)
	if err != nil {
		return nil, err
	}
	c := &workers{opened: []locker{l}, hold: time.Millisecond}
	defer c.close()
	g := new(guard)
	for i := range v.n {
		c.list = append(c.list, &worker{locker: l, key: hotKey, guard: g, reads: func(turn int) bool { return (turn+i)%10 > 0 }})
	}
	f, err := c.contend(ctx, e, p, e.lasts(2*time.Second))
	if err != nil {
		return nil, err
	}
	var writes hist
	for _, h := range c.list {
		writes.join(&h.writes)
	}
	f["writes"] = writes.quantile(0.99)
	return f, nil
}

// etcdRW is an etcd client with a session.
type etcdRW struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func openEtcdRW(_ context.Context, to target) (locker, error) {
	client, err := connectEtcd(to.Etcd)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(max(1, int(to.TTL/time.Second))))
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &etcdRW{client, session}, nil
}

// Lock does not end with its context: the recipe takes none.
func (l *etcdRW) Lock(_ context.Context, key string) (func(context.Context) error, error) {
	m := recipe.NewRWMutex(l.session, "/rw/"+key)
	return l.held(m.Lock(), m.Unlock)
}

func (l *etcdRW) RLock(_ context.Context, key string) (func(context.Context) error, error) {
	m := recipe.NewRWMutex(l.session, "/rw/"+key)
	return l.held(m.RLock(), m.RUnlock)
}

func (l *etcdRW) held(err error, unlock func() error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	return func(context.Context) error {
		select {
		case <-l.session.Done():
			return errLost
		default:
			return unlock()
		}
	}, nil
}

func (l *etcdRW) Close() error { return errors.Join(l.session.Close(), l.client.Close()) }

// localRWs has the *sync.RWMutex of each key.
var localRWs sync.Map

type localRW struct{}

func (localRW) of(key string) *sync.RWMutex {
	v, _ := localRWs.LoadOrStore(key, new(sync.RWMutex))
	return v.(*sync.RWMutex)
}

func (l localRW) Lock(_ context.Context, key string) (func(context.Context) error, error) {
	m := l.of(key)
	m.Lock()
	return func(context.Context) error { m.Unlock(); return nil }, nil
}

func (l localRW) RLock(_ context.Context, key string) (func(context.Context) error, error) {
	m := l.of(key)
	m.RLock()
	return func(context.Context) error { m.RUnlock(); return nil }, nil
}

func (localRW) Close() error { return nil }
