// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"math/rand/v2"
	"time"

	"github.com/hasplock/hasp/internal/player"
)

// fault is something that is done to a client.
type fault struct {
	at   time.Duration // since all clients are at work
	stop time.Duration // how long it stands still; 0: it is killed
	held bool          // to a client that holds a key, if there is one
	pick uint64        // which of the clients that qualify
}

// leastRest is the least time from one fault to the next: a process that is
// killed has to be started again.
const leastRest = 300 * time.Millisecond

// plan returns the faults of a run. They follow from the seed.
func plan(o *Options) (faults []fault) {
	r := rand.New(rand.NewPCG(o.Seed, 1))
	rest := max(o.TTL/2, leastRest)
	at := time.Duration(0)
	for {
		at += between(r, rest, 3*rest)
		if at >= o.For {
			return faults
		}
		f := fault{at: at, held: r.IntN(2) == 0, pick: r.Uint64()}
		beyond := between(r, o.TTL*11/10, o.TTL*16/10) // any lease's deadline
		if r.IntN(2) == 0 && player.CanPause {
			f.stop = beyond
		}
		faults = append(faults, f)
	}
}

// shortHold is the longest of most holds, and of all after the faults.
const shortHold = 20 * time.Millisecond

// next draws the next order of a run. They follow from the seed, too; who is
// given which depends on timing.
func next(r *rand.Rand, o *Options) player.Order {
	want := player.Want{Key: o.key(r.IntN(o.Keys))}
	next := player.Order{Hold: between(r, time.Millisecond, shortHold), Bare: o.Bare}
	if r.IntN(30) == 0 { // through a renewal or two
		next.Hold = between(r, o.TTL*2/5, o.TTL)
	}
	want.Shared = o.Shares && r.IntN(3) == 0
	if r.IntN(8) == 0 {
		next.Limit = between(r, 5*time.Millisecond, 50*time.Millisecond)
	}
	next.Wants = []player.Want{want}
	return next
}

// between returns a random time.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}
