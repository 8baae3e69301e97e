// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package run

import (
	"errors"
	"os"
	"syscall"
)

// lockFolder locks an open folder until it is closed. It reports false while another has the lock, and true
// where the file system has no locks.
func lockFolder(d *os.File) bool {
	err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR)
}
