// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// s1 measures uncontended locks.
var s1 = scenario{
	name:  "s1",
	title: "uncontended: lock and release, a key for each goroutine",
	about: "Goroutines of one process share one client. Each locks and releases a key of its own, over and over, and none waits. " +
		"A pair is one lock and one release; its time is that of both. Allocations and the client's CPU are the process's, " +
		"the server's CPU and commands (those within scripts included) are those of all servers that the peer uses. " +
		"Before it is measured, each goroutine makes two pairs, which open connections and load scripts.",
	metrics: []metric{
		{name: "pairs", head: "pairs/s", better: higher, main: true},
		{name: "p50", head: "p50", unit: seconds, better: lower},
		{name: "p99", head: "p99", unit: seconds, better: lower},
		{name: "allocs", head: "allocs", better: lower},
		{name: "bytes", head: "allocated", unit: bytes, better: lower},
		{name: "client_cpu", head: "client CPU", unit: seconds, better: lower},
		{name: "server_cpu", head: "server CPU", unit: seconds, better: lower},
		{name: "commands", head: "commands", better: lower},
	},
	variants: func(bool) []variant { return goroutines(1, 64, 512) },
	field: func(e *env, all []*peer) []*peer {
		return slices.DeleteFunc(available(e, all), func(p *peer) bool { return p.patience || p.turns })
	},
	run:    runS1,
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
		within(kept, "with Keep, 1 goroutine: at least 300,000 pairs/s", 1, "pairs", func(v float64) bool { return v >= 300_000 }),
		within(kept, "with Keep, 1 goroutine: less than 0.1 commands a pair", 1, "commands", func(v float64) bool { return v < 0.1 }),
		within(kept, "with Keep, 64 goroutines: less than 0.1 commands a pair", 64, "commands", func(v float64) bool { return v < 0.1 }),
	},
}

var uncontendedRivals = []string{
	"redislock", "redislock 5ms", "redsync", "redsync fail-fast", "redsync 5 nodes", "redsync 5 nodes fail-fast",
}

func goroutines(counts ...int) (vs []variant) {
	for _, n := range counts {
		s := "s"
		if n == 1 {
			s = ""
		}
		vs = append(vs, variant{fmt.Sprintf("%d goroutine%s", n, s), n})
	}
	return vs
}

func runS1(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	l, err := p.open(ctx, e.target)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	c := &workers{}
	for i := range v.n {
		c.list = append(c.list, &worker{locker: l, key: fmt.Sprintf("key/%03d", i), guard: new(guard)})
	}
	if err := c.warm(ctx, 2, 64); err != nil {
		return nil, err
	}
	before, err := e.tally(ctx, p)
	if err != nil {
		return nil, err
	}
	took, err := c.work(ctx, e.lasts(800*time.Millisecond), nil)
	if err != nil {
		return nil, err
	}
	used, err := e.tally(ctx, p)
	if err != nil {
		return nil, err
	}
	used = used.minus(before)
	var times hist
	for _, h := range c.list {
		times.join(&h.pairs)
	}
	pairs := float64(times.count)
	f := figures{
		"pairs":      pairs / took.Seconds(),
		"p50":        times.quantile(0.5),
		"p99":        times.quantile(0.99),
		"allocs":     used.allocs / pairs,
		"bytes":      used.bytes / pairs,
		"client_cpu": used.client.Seconds() / pairs,
	}
	if !p.local {
		f["server_cpu"] = used.cpu.Seconds() / pairs
		f["commands"] = used.commands / pairs
	}
	return f, nil
}

// tally is the use of resources so far, by the servers of a peer and by this process.
type tally struct {
	load
	client        time.Duration
	allocs, bytes float64
}

func (e *env) tally(ctx context.Context, p *peer) (tally, error) {
	l, err := e.serverLoad(ctx, p)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return tally{l, processCPU(), float64(m.Mallocs), float64(m.TotalAlloc)}, err
}

func (t tally) minus(o tally) tally {
	return tally{t.load.minus(o.load), t.client - o.client, t.allocs - o.allocs, t.bytes - o.bytes}
}
