// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// boottime counts since the machine was booted, also while it sleeps.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0 // a sandbox that forbids it: Mono and Wall remain
	}
	return time.Duration(ts.Nano())
}

// BootID names this boot of the machine; empty where that is not known.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
