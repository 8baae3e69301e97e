// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

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
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // POSIX
	}
	return Mono(time.Duration(ts.Nano()))
}

// attributes are those of a worker: Ctrl-C at the terminal is not for it. In a
// group of its own it is also not left behind when it is stopped and its parent
// ends: POSIX sends SIGHUP and SIGCONT to such a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// CanPause says whether processes can be stopped here.
const CanPause = true

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
