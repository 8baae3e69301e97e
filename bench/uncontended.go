// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// pairs are the metrics of keys that none waits for.
var pairs = []metric{
	{"pairs", "pairs/s", number, higher, true},
	{"p50", "p50", seconds, lower, false},
	{"p99", "p99", seconds, lower, false},
	{"allocs", "allocs", number, lower, false},
	{"bytes", "allocated", bytes, lower, false},
	{"client_cpu", "client CPU", seconds, lower, false},
	{"server_cpu", "server CPU", seconds, lower, false},
	{"commands", "commands", number, lower, false},
}

// s1 measures uncontended locks.
var s1 = scenario{
	name:     "s1",
	metrics:  pairs,
	variants: counts("goroutine", 1, 64, 512),
	takes:    func(_ *env, p *peer) bool { return p.differs == 0 || p.differs == keeping },
	run: func(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
		return e.uncontended(ctx, p, load{to: e.target, goroutines: v.n, lasts: 800 * time.Millisecond})
	},
	curves: []curve{{"pairs", "Uncontended: lock and release, pairs a second", "goroutines over one client"}},
	bars: []bar{
		atMost(1.2, "1 goroutine: p50 at most 1.2 times the floor's", 1, "p50", "floor"),
		atLeast(1, "1 goroutine: pairs/s at least those of redislock and redsync", 1, "pairs", uncontendedRivals...),
		atLeast(1.5, "64 goroutines: pairs/s at least 1.5 times the best of redislock and redsync", 64, "pairs", uncontendedRivals...),
		atLeast(2, "512 goroutines: pairs/s at least twice the best of redislock and redsync", 512, "pairs", uncontendedRivals...),
		atLeast(1, "64 goroutines: ahead of rueidislock", 64, "pairs", "rueidislock", "rueidislock majority 2"),
		atLeast(1.3, "512 goroutines: pairs/s at least 1.3 times rueidislock's", 512, "pairs", "rueidislock", "rueidislock majority 2"),
		atMost(3, "1 goroutine: server CPU a pair at most 3 times the floor's", 1, "server_cpu", "floor"),
		atMost(3, "64 goroutines: server CPU a pair at most 3 times the floor's", 64, "server_cpu", "floor"),
		atMost(2.5, "512 goroutines: server CPU a pair at most 2.5 times the floor's", 512, "server_cpu", "floor"),
		within(kept, "with Keep, 1 goroutine: at least 300,000 pairs/s", 1, "pairs", least(300_000)),
		within(kept, "with Keep, 1 goroutine: less than 0.1 commands a pair", 1, "commands", less(0.1)),
		within(kept, "with Keep, 64 goroutines: less than 0.1 commands a pair", 64, "commands", less(0.1)),
	},
}

var uncontendedRivals = slices.Concat(oneServer, fiveServers)

// s16 is S1 and S8, of one goroutine and one key after the other, with a network in between. A variant's n is its round trip in microseconds.
var s16 = scenario{
	name:     "s16",
	metrics:  only(pairs, "pairs", "p50", "p99"),
	variants: []variant{{"loopback", 0}, {"round trips of 0.5 ms", 500}, {"round trips of 2 ms", 2000}},
	takes:    func(_ *env, p *peer) bool { return p.on == onRedis && (p.differs == 0 || p.differs == trailing) },
	run: func(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
		return e.uncontended(ctx, p, load{to: e.slow(time.Duration(v.n) * time.Microsecond), goroutines: 1, keys: 64, lasts: time.Second})
	},
	bars: []bar{
		atLeast(0.98, "0.5 ms: pairs/s at least 0.98 times those of redislock and redsync", 500, "pairs", oneServer...),
		atLeast(0.98, "2 ms: pairs/s at least 0.98 times those of redislock and redsync", 2000, "pairs", oneServer...),
		against(behind, "with ReleaseBehind, loopback: pairs/s at least 1.15 times redsync's", 0, "pairs", least(1.15), "redsync", "redsync fail-fast"),
		against(behind, "with ReleaseBehind, 2 ms: pairs/s at least 1.15 times redsync's", 2000, "pairs", least(1.15), "redsync", "redsync fail-fast"),
		against(redlock, "five nodes, 2 ms: pairs/s at least 0.98 times redsync's over the same nodes", 2000, "pairs", least(0.98), fiveServers...),
	},
}

var (
	oneServer   = []string{"redislock", "redislock 5ms", "redsync", "redsync fail-fast"}
	fiveServers = []string{"redsync 5 nodes", "redsync 5 nodes fail-fast"}
)

// load is goroutines over one client, each with keys of its own, which it locks in turn; 0 keys: one.
type load struct {
	to               target
	goroutines, keys int
	lasts            time.Duration
	fault            func() // if not nil, happens after the warm-up; then what the servers use cannot be measured
}

func (e *env) uncontended(ctx context.Context, p *peer, l load) (figures, error) {
	c, err := gather(ctx, p, l.to, 1, l.goroutines)
	if err != nil {
		return nil, err
	}
	defer c.close()
	for i, w := range c.list {
		w.key, w.keys, w.guard = fmt.Sprintf("key/%03d", i), l.keys, new(guard)
	}
	if err := c.warm(ctx, 2, 64); err != nil {
		return nil, err
	}
	used := func() (figures, error) { return nil, nil }
	if l.fault == nil {
		used, err = e.meter(ctx, p)
	} else {
		l.fault()
		// The first to meet the fault detects it, and is not measured; a lock
		// that fails because of it does not fail the round.
		_ = c.warm(ctx, 1, 64)
		err = pause(ctx, time.Second)
	}
	if err != nil {
		return nil, err
	}
	took, err := c.work(ctx, e.lasts(l.lasts), nil)
	if err != nil {
		return nil, err
	}
	return c.pairs(took, used)
}

// pairs returns the figures of all pairs; none if there was no pair.
func (c *workers) pairs(took time.Duration, used func() (figures, error)) (figures, error) {
	f, err := used()
	var times hist
	for _, w := range c.list {
		times.join(&w.pairs)
	}
	if times.count == 0 || err != nil {
		return nil, err
	}
	count := float64(times.count)
	all := figures{"pairs": count / took.Seconds(), "p50": times.quantile(0.5), "p99": times.quantile(0.99)}
	for name, v := range f {
		all[name] = v / count
	}
	return all, nil
}

// s8 is Redlock while nodes fail.
var s8 = scenario{
	name:    "s8",
	metrics: only(pairs, "pairs", "p50", "p99", "client_cpu", "server_cpu"),
	variants: []variant{
		{"1 goroutine, all nodes healthy", 1}, {"64 goroutines, all nodes healthy", 64},
		{"1 goroutine, one node hangs", hangs + 1}, {"64 goroutines, one node hangs", hangs + 64},
		{"1 goroutine, two nodes down", gone + 1}, {"64 goroutines, two nodes down", gone + 64},
	},
	takes: func(_ *env, p *peer) bool { return strings.Contains(p.name, "5 nodes") },
	run:   runRedlock,
	bars: []bar{
		aheadOfRedsync("1 goroutine", 1), aheadOfRedsync("64 goroutines", 64),
		fast("1 goroutine, one node hangs", hangs, 1), fast("64 goroutines, one node hangs", hangs, 64),
		fast("1 goroutine, two nodes down", gone, 1), fast("64 goroutines, two nodes down", gone, 64),
		prompt("1 goroutine, one node hangs", hangs, 1), prompt("64 goroutines, one node hangs", hangs, 64),
		prompt("1 goroutine, two nodes down", gone, 1), prompt("64 goroutines, two nodes down", gone, 64),
	},
}

// The states of the nodes. A variant's n is the goroutines, and so much more.
const (
	hangs = 1000
	gone  = 2000
)

func aheadOfRedsync(text string, n int) bar {
	return against(redlock, text+", all nodes healthy: pairs/s ahead of redsync over the same nodes", n, "pairs",
		func(ratio float64) bool { return ratio > 1 }, fiveServers...)
}

func fast(text string, state, n int) bar {
	return growth(redlock, text+": pairs/s at least 0.8 of those with all nodes healthy", "pairs", n, state+n, least(0.8))
}

func prompt(text string, state, n int) bar {
	return growth(redlock, text+": p99 at most twice that with all nodes healthy", "p99", n, state+n, most(2))
}

func runRedlock(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	var fault func()
	switch {
	case v.n >= gone:
		fault = func() {
			for _, s := range e.redis[3:] {
				s.Kill()
			}
		}
		defer e.redis[3].Restart()
		defer e.redis[4].Restart()
	case v.n >= hangs:
		fault = e.redis[0].Stop
		defer e.redis[0].Cont()
	}
	return e.uncontended(ctx, p, load{to: e.target, goroutines: v.n % hangs, lasts: 2 * time.Second, fault: fault})
}

// s13 is what a key that is kept costs where it must not be: the case against LockOptions.Keep.
var s13 = scenario{
	name:     "s13",
	metrics:  only(pairs, "pairs", "p50", "p99", "commands"),
	variants: counts("client", 2),
	takes:    func(_ *env, p *peer) bool { return p.name == baseline || p.differs == keeping },
	run:      runAlternate,
	bars: []bar{
		against(kept, "with Keep: at least 0.9 of the pairs/s without", 2, "pairs", least(0.9), baseline),
	},
}

func runAlternate(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	c, err := gather(ctx, p, e.target, v.n, v.n)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if err := c.warm(ctx, 2, v.n); err != nil {
		return nil, err
	}
	used, err := e.meter(ctx, p)
	if err != nil {
		return nil, err
	}
	waits, stop := context.WithCancel(ctx) // it ends with the round: a Lock is never cancelled
	defer stop()
	begin := time.Now()
	var took time.Duration
	for lasts := e.lasts(time.Second); took < lasts; took = time.Since(begin) {
		for _, w := range c.list {
			if err := w.turn(ctx, waits, 0); err != nil {
				return nil, err
			}
		}
	}
	return c.pairs(took, used)
}
