// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package clock measures how much of a lease has passed, and errs on the side
// of too much.
package clock

import "time"

// Instant is one reading of every clock that a machine has. Only differences of
// readings have a meaning.
type Instant struct {
	Mono time.Duration // Go's monotonic clock: stands still while the machine sleeps
	Wall time.Duration // the wall clock, which can be stepped
	Boot time.Duration // counts suspended time; 0 where the system has no such clock
}

// Add returns the moment d later on each clock.
func (i Instant) Add(d time.Duration) Instant {
	i.Mono, i.Wall = i.Mono+d, i.Wall+d
	if i.Boot != 0 {
		i.Boot += d
	}
	return i
}

// Sub returns the time from earlier to i: the largest that any clock shows. A
// machine that slept is seen by Boot and Wall, and a forward step of the wall
// clock counts as elapsed, which is the safe direction; a step backward does
// nothing.
func (i Instant) Sub(earlier Instant) time.Duration {
	return max(i.Mono-earlier.Mono, i.Wall-earlier.Wall, i.Boot-earlier.Boot)
}

// A Clock reads the clocks now.
type Clock func() Instant

// base makes Mono a duration. Within a testing/synctest bubble, where times
// carry no monotonic reading, both Mono and Wall follow the fake clock.
var base = time.Now()

// System is the machine's clock, or a bubble's.
func System() Instant {
	now := time.Now()
	i := Instant{Mono: now.Sub(base), Wall: time.Duration(now.UnixNano())}
	if now != now.Round(0) { // it has a monotonic reading: this is no bubble
		i.Boot = boottime()
	}
	return i
}
