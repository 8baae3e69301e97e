// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

const clockBoottime = 7 // CLOCK_BOOTTIME; package unix has it, and is initialized late, as strings is: see the command's starter

// boottime counts since the machine was booted, also while it sleeps.
func boottime() time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
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
	if end := slices.Index(id, '\n'); end >= 0 {
		id = id[:end]
	}
	return string(id)
}
