// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package verify

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// now reads a clock that all processes of the machine share.
func now() Mono {
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

// canStop says whether processes can be stopped here.
const canStop = true

func stop(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

func goOn(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
