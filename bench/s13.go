// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"
)

// s13 is what a key that is kept costs where it must not be: the case against LockOptions.Keep.
var s13 = scenario{
	name:  "s13",
	title: "two clients that take turns on a key, one after the other",
	about: "Two clients with connections of their own lock and release one key, always the one and then the other; none waits, unless " +
		"the other client keeps the key (LockOptions.Keep), which it then has to give back. A pair is one lock and one release.",
	metrics: []metric{
		{name: "pairs", head: "pairs/s", better: higher, main: true},
		{name: "p50", head: "p50", unit: seconds, better: lower},
		{name: "p99", head: "p99", unit: seconds, better: lower},
		{name: "commands", head: "commands", better: lower},
	},
	variants: func(bool) []variant { return []variant{{"2 clients", 2}} },
	field: func(_ *env, all []*peer) []*peer {
		return slices.DeleteFunc(all, func(p *peer) bool { return p.name != baseline && !p.keeps })
	},
	run: runAlternate,
	bars: []bar{
		against(kept, "with Keep: at least 0.9 of the pairs/s without", 2, "pairs", []string{baseline}, func(ratio float64) bool { return ratio >= 0.9 }),
	},
}

func runAlternate(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	c := &workers{}
	defer c.close()
	if err := c.open(ctx, p, e.target, v.n); err != nil {
		return nil, err
	}
	g := new(guard)
	for _, l := range c.opened {
		c.list = append(c.list, &worker{locker: l, key: hotKey, guard: g})
	}
	if err := c.warm(ctx, 2, v.n); err != nil {
		return nil, err
	}
	before, err := e.serverLoad(ctx, p)
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
	used, err := e.serverLoad(ctx, p)
	if err != nil {
		return nil, err
	}
	var times hist
	for _, w := range c.list {
		times.join(&w.pairs)
	}
	return figures{
		"pairs":    float64(times.count) / took.Seconds(),
		"p50":      times.quantile(0.5),
		"p99":      times.quantile(0.99),
		"commands": used.minus(before).commands / float64(times.count),
	}, nil
}
