// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package screen

import "golang.org/x/sys/unix"

// drain waits until a terminal has shown all that was written.
func drain(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCDRAIN, 0) }
