// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package player

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Now reads a clock that all processes of the machine share.
func Now() Mono {
	var ts unix.Timespec
	if err := unix.ClockGettime(shared, &ts); err != nil {
		panic(err) // every such system has it
	}
	return Mono(time.Duration(ts.Nano()))
}

// CanPause says whether processes can be stopped here.
const CanPause = true

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
