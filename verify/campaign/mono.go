// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"time"

	"golang.org/x/sys/unix"
)

// Mono is an instant of CLOCK_MONOTONIC: one clock for all processes of this
// machine.
type Mono time.Duration

// now reads the clock.
func now() Mono {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return Mono(ts.Nano())
}

func (m Mono) add(d time.Duration) Mono { return m + Mono(d) }

func (m Mono) sub(n Mono) time.Duration { return time.Duration(m - n) }
