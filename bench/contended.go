// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"
)

// contended are the metrics of a hot key.
var contended = []metric{
	{"handoffs", "handoffs/s", number, higher, true},
	{"grants", "grants/s", number, higher, false},
	{"p50", "wait p50", seconds, lower, false},
	{"p99", "wait p99", seconds, lower, true},
	{"longest", "longest", seconds, lower, false},
	{"commands", "commands", number, lower, false},
	{"fairness", "fairness", factor, lower, false},
	{"never", "never granted", number, lower, false},
}

// s2 is one key that many processes contend for; each client represents one.
var s2 = scenario{
	name:     "s2",
	metrics:  contended,
	variants: counts("client", 2, 16, 128, 512),
	takes:    waiting,
	run:      contest{hold: time.Millisecond}.run,
	curves: []curve{
		{"handoffs", "One hot key held for 1 ms: handoffs a second", "clients"},
		{"p99", "One hot key held for 1 ms: 99th percentile of the wait", "clients"},
	},
	bars: []bar{
		atLeast(1, "128 clients: more handoffs/s than any peer", 128, "handoffs"),
		atLeast(1, "512 clients: more handoffs/s than any peer", 512, "handoffs"),
		atLeast(1, "128 clients: more grants/s than any peer, including those that hand nothing off", 128, "grants"),
		atLeast(1, "512 clients: more grants/s than any peer, including those that hand nothing off", 512, "grants"),
		atMost(0.25, "128 clients: p99 wait at most a quarter of the best peer's", 128, "p99"),
		atMost(0.25, "512 clients: p99 wait at most a quarter of the best peer's", 512, "p99"),
		growth(baseline, "commands a handoff: flat, 512 clients to 2", "commands", 2, 512, most(1.2)),
		within(baseline, "128 clients: no client more than 1.3 times its fair share", 128, "fairness", most(1.3)),
		within(baseline, "512 clients: no client more than 1.3 times its fair share", 512, "fairness", most(1.3)),
	},
}

// s3 is one key that the goroutines of one process contend for.
var s3 = scenario{
	name:     "s3",
	metrics:  contended,
	variants: counts("goroutine", 64),
	takes:    func(_ *env, p *peer) bool { return !p.fails && p.differs != keeping },
	run:      contest{shared: true, lasts: time.Second}.run,
	bars: []bar{
		atLeast(3, "handoffs/s at least 3 times the best peer's", 64, "handoffs"),
		against(turns, "with turns (Cohort, off by default): handoffs/s at least 3 times the best peer's", 64, "handoffs", least(3)),
		against(turns, "with turns: grants/s at least 3 times the best peer's, including those that hand nothing off", 64, "grants", least(3)),
	},
}

// s11 is S2 on ZooKeeper.
var s11 = scenario{
	name:     "s11",
	metrics:  contended,
	variants: counts("client", 16, 128),
	own:      zookeeperPeers,
	run:      contest{hold: time.Millisecond}.run,
	bars: []bar{
		atLeast(1, "128 clients: more handoffs/s than go-zookeeper's lock", 128, "handoffs", "go-zookeeper"),
		atMost(1, "128 clients: p99 wait at most that of go-zookeeper's lock", 128, "p99", "go-zookeeper"),
	},
}

// s14 is S2 with a network in between.
var s14 = scenario{
	name:     "s14",
	metrics:  contended,
	variants: counts("client", 16, 128),
	takes: func(_ *env, p *peer) bool {
		return slices.Contains([]string{baseline, "redislock 5ms", "redsync fail-fast", "rueidislock"}, p.name)
	},
	own: []*peer{claimsFirst},
	run: contest{hold: time.Millisecond, far: true}.run,
	bars: []bar{
		atLeast(1.8, "16 clients: handoffs/s at least 1.8 times those of waiters that claim first", 16, "handoffs", claimsFirst.name),
		atLeast(1.8, "128 clients: handoffs/s at least 1.8 times those of waiters that claim first", 128, "handoffs", claimsFirst.name),
		atLeast(1, "128 clients: more handoffs/s than any peer", 128, "handoffs", "redislock 5ms", "redsync fail-fast", "rueidislock"),
	},
}

// contest is workers that contend for the hot key.
type contest struct {
	shared bool // one client is all workers'; otherwise each has its own
	far    bool // over a network
	hold   time.Duration
	lasts  time.Duration            // 0: as long as contests says
	set    func(i int, own *worker) // what is particular to a worker; nil: nothing
}

// contests are for how long a number of clients contend: for several turns of each,
// where one takes 1.5 to 2 ms, and longer than most would wait without a queue.
var contests = map[int]time.Duration{
	2:   500 * time.Millisecond,
	16:  time.Second,
	128: 2500 * time.Millisecond,
	512: 9 * time.Second,
}

func (k contest) run(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	clients, to, lasts := v.n, e.target, k.lasts
	if k.shared {
		clients = 1
	}
	if k.far {
		to = e.slow(2 * time.Millisecond)
	}
	if lasts == 0 {
		lasts = contests[v.n]
	}
	c, err := gather(ctx, p, to, clients, v.n)
	if err != nil {
		return nil, err
	}
	defer c.close()
	c.hold = k.hold
	for i, w := range c.list {
		if k.set != nil {
			k.set(i, w)
		}
	}
	if err := c.warm(ctx, 1, 16); err != nil {
		return nil, err
	}
	meter, err := e.meter(ctx, p)
	if err != nil {
		return nil, err
	}
	var used figures
	took, err := c.work(ctx, e.lasts(lasts), func() (err error) {
		used, err = meter()
		return err
	})
	if err != nil {
		return nil, err
	}
	var waits, writes hist
	var grants []int
	handoffs := 0
	for _, w := range c.list {
		waits.join(&w.waits)
		writes.join(&w.writes)
		grants = append(grants, w.grants)
		handoffs += w.handoffs
	}
	f := outcome(took, &waits, grants, handoffs)
	f["writes"] = writes.quantile(0.99)
	if commands, ok := used["commands"]; ok {
		f["commands"] = commands / (f["grants"] * took.Seconds())
	}
	return f, nil
}

// outcome returns the figures of a contest. grants has the number of each worker.
func outcome(took time.Duration, waits *hist, grants []int, handoffs int) figures {
	sum, never := 0, 0
	for _, n := range grants {
		sum += n
		if n == 0 {
			never++
		}
	}
	return figures{
		"handoffs": float64(handoffs) / took.Seconds(),
		"grants":   float64(sum) / took.Seconds(),
		"p50":      waits.quantile(0.5),
		"p99":      waits.quantile(0.99),
		"longest":  waits.longest.Seconds(),
		"fairness": float64(slices.Max(grants)*len(grants)) / float64(max(sum, 1)),
		"never":    float64(never),
	}
}
