// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package child

import (
	"time"

	"golang.org/x/sys/unix"
)

// Mono is an instant of CLOCK_MONOTONIC: one clock for all processes of this
// machine.
type Mono time.Duration

// Now reads the clock.
func Now() Mono {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return Mono(ts.Nano())
}

// Add returns the instant that comes so much later.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Time returns the instant on a wall clock that began with the machine.
func (m Mono) Time() time.Time { return time.Unix(0, int64(m)).UTC() }

// Sub returns the time from n to m.
func (m Mono) Sub(n Mono) time.Duration { return time.Duration(m - n) }
