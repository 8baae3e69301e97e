// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // a sandbox that forbids it: Mono and Wall remain
	}
	return time.Duration(ts.Nano())
}
