// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Now reads a clock that all processes of the machine share, and that goes on
// while the machine sleeps.
func Now() Mono {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err) // every Linux has it
	}
	return Mono(time.Duration(ts.Nano()))
}

// attributes are those of a worker: Ctrl-C at the terminal is not for it, and
// the kernel kills it with its parent, also when it is stopped.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// CanPause says whether processes can be stopped here.
const CanPause = true

func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
