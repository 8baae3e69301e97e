// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"
)

// s3 is one key that the goroutines of one process contend for.
var s3 = scenario{
	name:  "s3",
	title: "one hot key, the goroutines of one process, released at once",
	about: "64 goroutines share one client. Each locks the one key and releases it at once, over and over. " +
		"Waits, commands and fairness are counted as in S2, with goroutines in place of clients.",
	metrics:  contended,
	variants: func(bool) []variant { return goroutines(64) },
	field: func(e *env, all []*peer) []*peer {
		return slices.DeleteFunc(available(e, all), func(p *peer) bool { return !p.waits || p.keeps })
	},
	run: runS3,
	bars: []bar{
		atLeast(3, "handoffs/s at least 3 times the best peer's", 64, "handoffs"),
		against(turns, "with turns (Cohort, off by default): handoffs/s at least 3 times the best peer's", 64, "handoffs", nil,
			func(ratio float64) bool { return ratio >= 3 }),
		against(turns, "with turns: grants/s at least 3 times the best peer's, including those that hand nothing off", 64, "grants", nil,
			func(ratio float64) bool { return ratio >= 3 }),
	},
}

func runS3(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
	l, err := p.open(ctx, e.target)
	if err != nil {
		return nil, err
	}
	c := &workers{opened: []locker{l}}
	defer c.close()
	g := new(guard)
	for range v.n {
		c.list = append(c.list, &worker{locker: l, key: hotKey, guard: g})
	}
	return c.contend(ctx, e, p, e.lasts(time.Second))
}
