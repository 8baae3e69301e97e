// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// s14 is s2 with a network in between.
var s14 = scenario{
	name:  "s14",
	title: "one hot key, with a network in between: a millisecond each way",
	about: "As S2, with clients whose connections go by a link that holds up what each side sends for a millisecond, and a little longer, since " +
		"timers are late. hasp claims first is hasp whose waiters ask for the key that they were handed before they use it, as before.",
	metrics: contended,
	variants: func(bool) (vs []variant) {
		for _, n := range []int{16, 128} {
			vs = append(vs, variant{fmt.Sprintf("%d clients", n), n})
		}
		return vs
	},
	field: func(e *env, all []*peer) []*peer {
		names := []string{baseline, "redislock 5ms", "redsync fail-fast", "rueidislock"}
		few := slices.DeleteFunc(available(e, all), func(p *peer) bool { return !slices.Contains(names, p.name) })
		if i := slices.IndexFunc(few, func(p *peer) bool { return p.name == baseline }); i >= 0 {
			few = slices.Insert(few, i+1, claimsFirst)
		}
		return few
	},
	run: func(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
		return runHot(ctx, e.slow(), e, v, p)
	},
	bars: []bar{
		atLeast(1.8, "16 clients: handoffs/s at least 1.8 times those of waiters that claim first", 16, "handoffs", asks),
		atLeast(1.8, "128 clients: handoffs/s at least 1.8 times those of waiters that claim first", 128, "handoffs", asks),
		atLeast(1, "128 clients: more handoffs/s than any peer", 128, "handoffs", "redislock 5ms", "redsync fail-fast", "rueidislock"),
	},
}

// asks is the name of claimsFirst.
const asks = baseline + " claims first"

// claimsFirst is hasp over an engine with hints that do not say what was handed over.
var claimsFirst = haspOver(func(rdb *redis.Client) driver.Driver { return unsaid{redisdriver.New(rdb, nil)} },
	asks, hasp.LockOptions{}, "as hasp, but a waiter that was handed the key asks for it first")

type unsaid struct{ driver.Driver }

func (d unsaid) Traits() driver.Traits {
	t := d.Driver.Traits()
	t.Enters = false
	return t
}
