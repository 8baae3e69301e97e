// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"time"

	"github.com/hasplock/hasp/internal/player"
)

// longHold: one hold in so many is long.
const longHold = 60

// between returns a random time.
func (r *run) between(from, to time.Duration) time.Duration {
	return from + time.Duration(r.rand.Int64N(int64(to-from)))
}

// draw draws what the next turn asks for, and how long it lasts. The last turn of a process
// waits until it is granted.
func (r *run) draw(last bool) player.Order {
	o := player.Order{Bare: true, Hold: r.between(0, 4*time.Millisecond)}
	switch n := r.rand.IntN(longHold); {
	case n == 0: // for longer than a renewal takes
		o.Hold = r.between(r.o.TTL/3, r.o.TTL*2/3)
	case n < 5:
		o.Hold = r.between(20*time.Millisecond, 80*time.Millisecond)
	}
	if !last && r.rand.IntN(10) == 0 { // gives up while it waits
		o.Limit = r.between(time.Millisecond, 50*time.Millisecond)
	}
	for _, key := range r.o.Kind.keys() {
		o.Wants = append(o.Wants, player.Want{Key: key})
	}
	switch r.o.Kind {
	case Semaphore:
		o.Slots, o.Wants[0].Shared = r.o.Slots, true
	case Election:
		o.Campaign = true
	case ReadWrite:
		o.Wants[0].Shared = r.rand.IntN(4) > 0
		o.Downgrade = !o.Wants[0].Shared && r.rand.IntN(3) == 0
	case LockAll: // two or three keys, in any order
		r.rand.Shuffle(len(o.Wants), func(i, j int) { o.Wants[i], o.Wants[j] = o.Wants[j], o.Wants[i] })
		o.Wants = o.Wants[:2+r.rand.IntN(2)]
		for i := range o.Wants {
			o.Wants[i].Shared = r.rand.IntN(4) == 0
		}
	}
	return o
}
