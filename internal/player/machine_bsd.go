// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package player

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const shared = unix.CLOCK_MONOTONIC

// attributes are those of a worker: Ctrl-C at the terminal is not for it. In a
// group of its own it is also not left behind when it is stopped and its parent
// ends: POSIX sends SIGHUP and SIGCONT to such a group.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
