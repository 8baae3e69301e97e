// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// s2 is one key that many processes contend for; each client represents one.
var s2 = scenario{
	name:  "s2",
	title: "one hot key, clients with connections of their own, held for 1 ms",
	about: "Each client, a goroutine with a client object and connections of its own, locks the one key, holds it for 1 ms (a sleep, " +
		"which takes a little longer) and releases it, over and over. A wait is the time of one Lock; those that have not ended " +
		"by the end count with the time waited so far: a p99 as long as the run means that more than one Lock in a hundred was never granted. " +
		"A handoff is a grant to a different client from the one before; a client that acquires the key again at once, past the waiters, " +
		"adds to grants/s only. Commands are those that the servers ran for each grant, including those within scripts (for etcd, the messages that it received). " +
		"Fairness is the largest number of grants of one client divided by its fair share; the last column is the number of clients that were never granted the key. " +
		"Each client is connected, by a lock of another key, before it begins.",
	metrics: contended,
	variants: func(bool) (vs []variant) {
		for _, n := range []int{2, 16, 128, 512} {
			vs = append(vs, variant{fmt.Sprintf("%d clients", n), n})
		}
		return vs
	},
	field: waiting,
	run:   runS2,
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
		flat(1.2, "commands a handoff: flat, 512 clients to 2", "commands", 2, 512),
		under(1.3, "128 clients: no client more than 1.3 times its fair share", 128, "fairness"),
		under(1.3, "512 clients: no client more than 1.3 times its fair share", 512, "fairness"),
	},
}

// contended are the metrics of a hot key.
var contended = []metric{
	{name: "handoffs", head: "handoffs/s", better: higher, main: true},
	{name: "grants", head: "grants/s", better: higher},
	{name: "p50", head: "wait p50", unit: seconds, better: lower},
	{name: "p99", head: "wait p99", unit: seconds, better: lower, main: true},
	{name: "longest", head: "longest", unit: seconds, better: lower},
	{name: "commands", head: "commands", better: lower},
	{name: "fairness", head: "fairness", unit: factor, better: lower},
	{name: "never", head: "never granted", better: lower},
}

// contests are for how long a number of clients contend: for several turns of each,
// where one takes 1.5 to 2 ms, and longer than most would wait without a queue.
var contests = map[int]time.Duration{
	2:   500 * time.Millisecond,
	16:  time.Second,
	128: 2500 * time.Millisecond,
	512: 9 * time.Second,
}

// hotKey is the key that all contend for.
const hotKey = "hot"

func runS2(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	return runHot(ctx, e.target, e, v, p)
}

// runHot is S2 with clients of a target.
func runHot(ctx context.Context, to target, e *env, v variant, p *peer) (figures, error) {
	g := new(guard)
	c := &workers{hold: time.Millisecond}
	defer c.close()
	if err := c.open(ctx, p, to, v.n); err != nil {
		return nil, err
	}
	for _, l := range c.opened {
		c.list = append(c.list, &worker{locker: l, key: hotKey, guard: g})
	}
	return c.contend(ctx, e, p, e.lasts(contests[v.n]))
}

// contend makes the workers contend, and returns the figures.
func (c *workers) contend(ctx context.Context, e *env, p *peer, lasts time.Duration) (figures, error) {
	if err := c.warm(ctx, 1, 16); err != nil {
		return nil, err
	}
	before, err := e.serverLoad(ctx, p)
	if err != nil {
		return nil, err
	}
	var used load
	took, err := c.work(ctx, lasts, func() (err error) {
		used, err = e.serverLoad(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	used = used.minus(before)
	var waits hist
	var grants []int
	handoffs := 0
	for _, h := range c.list {
		waits.join(&h.waits)
		grants = append(grants, h.grants)
		handoffs += h.handoffs
	}
	f := contest(took, &waits, grants, handoffs)
	if !p.local {
		f["commands"] = used.commands / (f["grants"] * took.Seconds())
	}
	return f, nil
}

// contest returns the figures of those that contended. grants has the number of each.
func contest(took time.Duration, waits *hist, grants []int, handoffs int) figures {
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
