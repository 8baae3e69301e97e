// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"sync/atomic"
	"time"
)

const (
	fresh = 100 * time.Millisecond // how long a reading of boottime is gone on with
	slept = time.Millisecond       // by how much the wall clock must be ahead or behind then
)

// Cheap returns the machine's clock, which asks for suspended time, a system call,
// only now and then. It goes on from the latest answer for a moment, provided that the wall
// clock and the monotonic one have gone on together: the kernel adds a sleep to the wall clock
// as well. It may be used by many goroutines, within one testing/synctest bubble or outside.
func Cheap() Clock { return cheap(System, wakeful) }

// wakeful is System without Boot.
func wakeful() Instant {
	now := time.Now()
	return Instant{Mono: now.Sub(base), Wall: time.Duration(now.UnixNano())}
}

func cheap(all, some Clock) Clock {
	var latest atomic.Pointer[Instant]
	return func() Instant {
		if was := latest.Load(); was != nil {
			now := some()
			passed := now.Mono - was.Mono
			if passed >= 0 && passed < fresh && (now.Wall-was.Wall-passed).Abs() < slept {
				if was.Boot != 0 {
					now.Boot = was.Boot + passed
				}
				return now
			}
		}
		now := all()
		latest.Store(&now)
		return now
	}
}
