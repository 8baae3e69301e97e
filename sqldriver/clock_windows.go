// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"syscall"
	"time"

	"github.com/hasplock/hasp/sqldriver/internal/rules"
)

var tickCount = syscall.NewLazyDLL("kernel32.dll").NewProc("GetTickCount64")

// system reads the milliseconds since the boot, sleep included. They advance
// in steps of 10 to 16 ms. Windows does not name its boots.
func system() (reading, error) {
	if err := tickCount.Find(); err != nil {
		return reading{}, err
	}
	low, high, _ := tickCount.Call()
	ms := uint64(low)
	if ^uintptr(0)>>32 == 0 { // a 32-bit system returns two halves
		ms |= uint64(high) << 32
	}
	return reading{Now: rules.Now{At: time.Duration(ms) * time.Millisecond}}, nil
}
