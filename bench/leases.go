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
	name: "s4",
	metrics: []metric{
		{"memory", "memory", bytes, lower, true},
		{"commands", "commands/s", number, lower, false},
		{"client_cpu", "client CPU", percent, lower, false},
		{"server_cpu", "server CPU", percent, lower, false},
		{"cpu", "CPU", percent, lower, true},
		{"lost", "lost", number, lower, false},
	},
	variants: []variant{{"1,000 leases, TTL 3 s", 1_000}, {"10,000 leases, TTL 9 s", 10_000}, {"100,000 leases, TTL 30 s", 100_000}},
	quick:    []variant{{"1,000 leases, TTL 3 s", 1_000}},
	takes: func(_ *env, p *peer) bool {
		// One of each kind: how it waits does not matter here.
		return slices.Contains([]string{baseline, overRueidis, "redislock", "redsync", "redsync 5 nodes", "rueidislock", "etcd"}, p.name)
	},
	skip: func(v variant, p *peer) string {
		if v.n >= 100_000 && p.name == "redsync 5 nodes" {
			return "to extend so many on five nodes every 10 s takes 100,000 commands a second; in a trial it had not locked all keys after 4 minutes"
		}
		return ""
	},
	rounds: 1, // of half a minute, over so many leases that a short stall does not matter
	limit:  4 * time.Minute,
	run:    runPile,
	bars: []bar{
		within(baseline, "100,000 leases: under 1 KiB each", 100_000, "memory", most(1024)),
		within(baseline, "100,000 leases: under 15 % of one core on the client and on the server together", 100_000, "cpu", most(15)),
		within(baseline, "100,000 leases for three TTLs: none lost", 100_000, "lost", most(0)),
	},
}

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

// extender is a locker without renewal. extend sets the TTL again.
type extender interface {
	lockExtendable(ctx context.Context, key string) (extend, unlock unlock, err error)
}

// pile is the leases that a client holds.
type pile struct {
	locker  locker
	ttl     time.Duration
	unlocks []unlock

	stop   context.CancelFunc // ends the goroutines that extend
	living context.Context
	keeper sync.WaitGroup
}

func runPile(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	to := e.target
	to.TTL = pileTTL(v.n)
	c, err := gather(ctx, p, to, 1, atOnce)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.warm(ctx, 2, atOnce); err != nil { // as many connections as will be used
		return nil, err
	}
	pile := &pile{locker: c.clients[0], ttl: to.TTL, unlocks: make([]unlock, v.n)}
	pile.living, pile.stop = context.WithCancel(ctx)
	defer pile.stop()

	before := inUse()
	if err := many(v.n, func(i int) (err error) {
		if pile.unlocks[i], err = pile.take(ctx, fmt.Sprintf("lease/%06d", i)); err != nil {
			return fmt.Errorf("lease %d: %w", i, err)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	memory := float64(inUse()-before) / float64(v.n)
	f, err := pile.hold(ctx, e, p)
	if err != nil {
		return nil, err
	}
	f["memory"] = memory

	pile.stop()
	pile.keeper.Wait()
	var lost atomic.Int64
	var last atomic.Pointer[error]
	_ = many(v.n, func(i int) error {
		if err := pile.unlocks[i](ctx); err != nil {
			lost.Add(1)
			last.Store(&err)
		}
		return nil
	})
	f["lost"] = float64(lost.Load())
	if lost.Load() > 0 && (family(p.name) == baseline || ctx.Err() != nil) {
		return nil, fmt.Errorf("%d of %d leases were lost: %w", lost.Load(), v.n, *last.Load())
	}
	return f, nil
}

// hold waits for a TTL, of hasp for three, and measures what that used.
func (p *pile) hold(ctx context.Context, e *env, on *peer) (figures, error) {
	span := p.ttl
	if family(on.name) == baseline {
		span *= 3
	}
	used, err := e.meter(ctx, on)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	if err := pause(ctx, span); err != nil {
		return nil, err
	}
	took := time.Since(start).Seconds()
	f, err := used()
	for name := range f {
		f[name] /= took
	}
	f["client_cpu"] *= 100
	f["server_cpu"] *= 100
	f["cpu"] = f["client_cpu"] + f["server_cpu"]
	return f, err
}

// take locks a key, which is renewed from then on.
func (p *pile) take(ctx context.Context, key string) (release unlock, err error) {
	var extend unlock
	switch l := p.locker.(type) {
	case extender:
		extend, release, err = l.lockExtendable(ctx, key)
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
	return release, nil
}

// inUse returns the bytes of live objects on the heap, and of stacks.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what the first one finalized
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
