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

// s4 is many leases that one process holds for long.
var s4 = scenario{
	name:  "s4",
	title: "held leases of one process, renewed for a whole TTL",
	about: "One client takes many keys and holds them for a TTL, in which each has to be renewed two or three times, or it would be over. " +
		"Memory is what is live on the heap, and the stacks, for each lease; connections are open before. CPU is that of this process and of the server, of one core; " +
		"commands, those within scripts included, are the server's. A lease is lost when its release says so. " +
		"redislock and redsync don't renew: a goroutine for each lock does, every TTL/3, as their users write it. " +
		"rueidislock's Lock is asked again after a second. etcd has one lease of its own for all keys of a session, and renews nothing else. " +
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
			return "to extend so many on five nodes every 10 s takes 100,000 commands a second; in a trial it had not taken all keys after 4 minutes"
		}
		return ""
	},
	rounds: 1, // of half a minute, over so many leases: no moment of the machine decides
	run:    runPile,
	bars: []bar{
		under(1024, "100,000 leases: under 1 KiB each", 100_000, "memory"),
		under(15, "100,000 leases: under 15 % of one core on the client and on the server together", 100_000, "cpu"),
		under(0, "100,000 leases: none lost", 100_000, "lost"),
	},
}

// holders are one of each kind: how a peer waits is not asked here.
var holders = []string{baseline, "redislock", "redsync", "redsync 5 nodes", "rueidislock", "etcd"}

// pileTTL is the TTL of so many leases: the fewer, the shorter, so that there is
// something to measure.
func pileTTL(n int) time.Duration {
	switch {
	case n <= 1_000:
		return 3 * time.Second
	case n <= 10_000:
		return 9 * time.Second
	}
	return defaultTTL
}

// lender is a locker whose locks do not renew themselves. extend sets the TTL
// again.
type lender interface {
	borrow(ctx context.Context, key string) (extend, unlock func(context.Context) error, err error)
}

func (l *redislockLocker) borrow(ctx context.Context, key string) (extend, unlock func(context.Context) error, err error) {
	lock, err := l.client.Obtain(ctx, key, l.ttl, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return lock.Refresh(ctx, l.ttl, nil) }, lock.Release, nil
}

func (l *redsyncLocker) borrow(ctx context.Context, key string) (extend, unlock func(context.Context) error, err error) {
	m := l.rs.NewMutex(key, l.options...)
	if err := m.LockContext(ctx); err != nil {
		return nil, nil, err
	}
	// One node that does not answer is an error beside success.
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

// insist asks again after a second. rueidislock gives one command 20 ms; on a busy
// machine that is over now and then, and then it waits for word that the key,
// which it deletes itself, is free, and does not hear of its own deletions.
func (l rueidisLocker) insist(ctx context.Context, key string) (unlock func(context.Context) error, err error) {
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
			_ = unlock(ctx) // it came in the last moment, and is over
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
	c := &crew{}
	for range fillers {
		c.hands = append(c.hands, &hand{locker: l})
	}
	return c.warm(ctx, 2, fillers)
}

// hold lets a TTL go by, and says what that took.
func (p *pile) hold(ctx context.Context, e *env, who *peer, f figures) error {
	server, err := e.serverLoad(ctx, who)
	if err != nil {
		return err
	}
	client, start := processCPU(), time.Now()
	select {
	case <-time.After(p.ttl):
	case <-ctx.Done():
		return ctx.Err()
	}
	took := time.Since(start).Seconds()
	f["client_cpu"] = 100 * (processCPU() - client).Seconds() / took
	used, err := e.serverLoad(ctx, who)
	if err != nil {
		return err
	}
	used = used.minus(server)
	f["server_cpu"] = 100 * used.cpu.Seconds() / took
	f["commands"] = used.commands / took
	f["cpu"] = f["client_cpu"] + f["server_cpu"]
	return nil
}

// fillers is how many goroutines take and release a pile: so few that nobody's
// time-outs are what is measured.
const fillers = 32

// each calls f for each index, from many goroutines, until one fails.
func (p *pile) each(f func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, 1)
	for range fillers {
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

// take takes a key that is renewed from now on.
func (p *pile) take(ctx context.Context, key string) (unlock func(context.Context) error, err error) {
	var extend func(context.Context) error
	switch l := p.locker.(type) {
	case lender:
		extend, unlock, err = l.borrow(ctx, key)
	case rueidisLocker:
		return l.insist(ctx, key)
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
				_ = extend(p.living) // asked again at the next tick; unlock says what came of it
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
	runtime.GC() // what the first one finalized
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
