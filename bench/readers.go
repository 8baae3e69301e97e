// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// s9 is one key that is read far more often than it is written.
var s9 = scenario{
	name: "s9",
	metrics: []metric{
		{"grants", "grants/s", number, higher, true},
		{"p50", "wait p50", seconds, lower, false},
		{"p99", "wait p99", seconds, lower, true},
		{"writes", "write p99", seconds, lower, false},
		{"commands", "commands", number, lower, false},
		{"never", "never granted", number, lower, false},
	},
	variants: counts("goroutine", 64),
	// The local mutex of the other scenarios is replaced by a mutex that can be shared.
	takes: func(e *env, p *peer) bool { return waiting(e, p) && p.on != inProcess && p.differs != patient },
	own: []*peer{
		{
			name:   exclusive,
			config: "as hasp, with a Mutex also for reads",
			open: func(ctx context.Context, to target) (locker, error) {
				l, err := haspPeers[0].open(ctx, to)
				return struct{ locker }{l}, err // hides RLock
			},
		},
		etcdRWPeer,
		{
			name:   "sync.RWMutex",
			config: "Go's own, in this process",
			on:     inProcess,
			open:   func(context.Context, target) (locker, error) { return localRW{}, nil },
		},
	},
	run: contest{shared: true, hold: time.Millisecond, lasts: 2 * time.Second, set: func(i int, w *worker) {
		w.reads = func(turn int) bool { return (turn+i)%10 > 0 }
	}}.run,
	bars: []bar{
		atLeast(2, "grants/s at least twice those of hasp's own Mutex", 64, "grants", exclusive),
		atLeast(1, "more grants/s than any peer, including those that hand nothing off", 64, "grants",
			"redislock", "redsync", "redsync fail-fast", "rueidislock", "rueidislock majority 2", "etcd", etcdRWPeer.name),
		atMost(1, "a write waits no longer (p99) than under hasp's own Mutex", 64, "writes", exclusive),
	},
}

// exclusive is hasp without its read-write lock.
const exclusive = baseline + " Mutex"
