// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// s4 is many leases that one process holds for a long time.
var s4 = scenario{
	name:  "s4",
	title: "held leases of one process, renewed for a whole TTL",
	about: "One client locks many keys and holds them for a TTL, in which each has to be renewed two or three times in order not to expire. " +
		"Memory is the live heap and the stacks, for each lease; connections are opened before. CPU is that of this process and of the server, in percent of one core; " +
		"commands, including those within scripts, are the server's. A lease is lost when its release says so. " +
		"redislock and redsync do not renew: a goroutine for each lock does so every TTL/3, as their users write it. " +
		"rueidislock's Lock is called again after a second. etcd has one lease for all keys of a session, and renews nothing else. " +
		"The TTL is shorter where there are fewer leases.",
	metrics: []metric{
		{name: "memory", head: "memory", unit: bytes, better: lower, main: true},
		{name: "commands", head: "commands/s", better: lower},
		{name: "client_cpu", head: "client CPU", unit: percent, better: lower},
		{name: "server_cpu", head: "server CPU", unit: percent, better: lower},
		{name: "cpu", head: "CPU", unit: percent, better: lower, main: true},
		{name: "lost", head: "lost", better: lower},
	},
	variants: func(quick bool) []variant {
		if quick {
			return []variant{{"1,000 leases, TTL 3 s", 1_000}}
		}
		return []variant{{"1,000 leases, TTL 3 s", 1_000}, {"10,000 leases, TTL 9 s", 10_000}, {"100,000 leases, TTL 30 s", 100_000}}
	},
	field: func(e *env, all []*peer) []*peer {
		return slices.DeleteFunc(waiting(e, all), func(p *peer) bool { return !slices.Contains(holders, p.name) })
	},
	skip: func(_ *env, v variant, p *peer) string {
		if v.n >= 100_000 && p.name == "redsync 5 nodes" {
			return "to extend so many on five nodes every 10 s takes 100,000 commands a second; in a trial it had not locked all keys after 4 minutes"
		}
		return ""
	},
	rounds: 1, // of half a minute, over so many leases that a short stall does not matter
	run:    runPile,
	bars: []bar{
		under(1024, "100,000 leases: under 1 KiB each", 100_000, "memory"),
		under(15, "100,000 leases: under 15 % of one core on the client and on the server together", 100_000, "cpu"),
		under(0, "100,000 leases for three TTLs: none lost", 100_000, "lost"),
	},
}

// holders are one peer of each kind: how it waits does not matter here.
var holders = []string{baseline, "redislock", "redsync", "redsync 5 nodes", "rueidislock", "etcd"}

// pileTTL is the TTL of n leases: the fewer, the shorter, so that there is enough to
// measure.
func pileTTL(n int) time.Duration {
	switch {
	case n <= 1_000:
		return 3 * time.Second
	case n <= 10_000:
		return 9 * time.Second
	}
	return defaultTTL
}

// extender is a locker without renewal. extend sets the TTL
// again.
type extender interface {
	lockExtendable(ctx context.Context, key string) (extend, unlock func(context.Context) error, err error)
}

func (l *redislockLocker) lockExtendable(ctx context.Context, key string) (extend, unlock func(context.Context) error, err error) {
	lock, err := l.client.Obtain(ctx, key, l.ttl, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return lock.Refresh(ctx, l.ttl, nil) }, lock.Release, nil
}

func (l *redsyncLocker) lockExtendable(ctx context.Context, key string) (extend, unlock func(context.Context) error, err error) {
	m := l.rs.NewMutex(key, l.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, nil, err
	}
	// A node that does not answer gives an error in spite of success.
	majority := func(f func(context.Context) (bool, error)) func(context.Context) error {
		return func(ctx context.Context) error {
			ok, err := f(ctx)
			switch {
			case ok:
				return nil
			case err == nil:
				return errLost
			}
			return err
		}
	}
	return majority(m.ExtendContext), majority(m.UnlockContext), nil
}

// retryLock asks again after a second. rueidislock gives one command 20 ms; on a busy
// machine that sometimes passes, and then it waits for a notice that the key is free, which
// it deleted itself, and it gets no notices of its own deletions.
func (l rueidisLocker) retryLock(ctx context.Context, key string) (unlock func(context.Context) error, err error) {
	for {
		once, giveUp := context.WithCancel(ctx)
		stuck := time.AfterFunc(time.Second, giveUp)
		unlock, err := l.Lock(once, key)
		inTime := stuck.Stop()
		if err == nil && inTime {
			return func(ctx context.Context) error {
				defer giveUp()
				return unlock(ctx)
			}, nil
		}
		giveUp()
		if ctx.Err() != nil || inTime {
			return nil, err
		}
		if err == nil {
			_ = unlock(ctx) // granted at the last moment, and too late
		}
	}
}

// pile is the leases that a client holds.
type pile struct {
	locker  locker
	ttl     time.Duration
	unlocks []func(context.Context) error

	stop   context.CancelFunc // ends the goroutines that extend
	living context.Context
	keeper sync.WaitGroup
}

func runPile(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	ctx, cancel := limited(ctx, 4*time.Minute)
	defer cancel()
	to := e.target
	to.TTL = pileTTL(v.n)
	l, err := p.open(ctx, to)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	pile := &pile{locker: l, ttl: to.TTL, unlocks: make([]func(context.Context) error, v.n)}
	pile.living, pile.stop = context.WithCancel(ctx)
	defer pile.stop()
	if err := connect(ctx, l); err != nil {
		return nil, err
	}

	before := inUse()
	if err := pile.each(func(i int) (err error) {
		pile.unlocks[i], err = pile.take(ctx, fmt.Sprintf("lease/%06d", i))
		return err
	}); err != nil {
		return nil, err
	}
	f := figures{"memory": float64(inUse()-before) / float64(v.n)}
	if err := pile.hold(ctx, e, p, f); err != nil {
		return nil, err
	}

	pile.stop()
	pile.keeper.Wait()
	var lost atomic.Int64
	var last atomic.Pointer[error]
	_ = pile.each(func(i int) error {
		if err := pile.unlocks[i](ctx); err != nil {
			lost.Add(1)
			last.Store(&err)
		}
		return nil
	})
	f["lost"] = float64(lost.Load())
	if lost.Load() > 0 && (p.name == baseline || ctx.Err() != nil) {
		return nil, fmt.Errorf("%d of %d leases were lost: %w", lost.Load(), v.n, *last.Load())
	}
	return f, nil
}

// connect opens as many connections as a pile will use.
func connect(ctx context.Context, l locker) error {
	c := &workers{}
	for range lockers {
		c.list = append(c.list, &worker{locker: l})
	}
	return c.warm(ctx, 2, lockers)
}

// hold waits for a TTL, of hasp for three, and measures what that used.
func (p *pile) hold(ctx context.Context, e *env, on *peer, f figures) error {
	lasts := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	span := p.ttl
	if on.name == baseline {
		span *= 3
	}
	server, err := e.serverLoad(ctx, on)
	if err != nil {
		return err
	}
	client, start := processCPU(), time.Now()
	if err := lasts(span); err != nil {
		return err
	}
	took := time.Since(start).Seconds()
	f["client_cpu"] = 100 * (processCPU() - client).Seconds() / took
	used, err := e.serverLoad(ctx, on)
	if err != nil {
		return err
	}
	used = used.minus(server)
	f["server_cpu"] = 100 * used.cpu.Seconds() / took
	f["commands"] = used.commands / took
	f["cpu"] = f["client_cpu"] + f["server_cpu"]
	return nil
}

// lockers is how many goroutines take and release a pile: so few that no
// peer's time-outs are what is measured.
const lockers = 32

// each calls f for each index, from several goroutines, until one fails.
func (p *pile) each(f func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, 1)
	for range lockers {
		all.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(p.unlocks); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					next.Store(int64(len(p.unlocks)))
					select {
					case failed <- fmt.Errorf("lease %d: %w", i, err):
					default:
					}
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// take locks a key, which is renewed from then on.
func (p *pile) take(ctx context.Context, key string) (unlock func(context.Context) error, err error) {
	var extend func(context.Context) error
	switch l := p.locker.(type) {
	case extender:
		extend, unlock, err = l.lockExtendable(ctx, key)
	case rueidisLocker:
		return l.retryLock(ctx, key)
	default:
		return l.Lock(ctx, key)
	}
	if err != nil {
		return nil, err
	}
	p.keeper.Go(func() {
		tick := time.NewTicker(p.ttl / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = extend(p.living) // tried again at the next tick; unlock reports a loss
			case <-p.living.Done():
				return
			}
		}
	})
	return unlock, nil
}

// inUse returns the bytes of live objects on the heap, and of stacks.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what the first one finalized
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
