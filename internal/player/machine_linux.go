// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// shared is a clock that goes on while the machine sleeps.
const shared = unix.CLOCK_BOOTTIME

// attributes are those of a worker: Ctrl-C at the terminal is not for it, and
// the kernel kills it with its parent, also when it is stopped.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
