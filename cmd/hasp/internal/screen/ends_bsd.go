// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package screen

import (
	"os"

	"golang.org/x/sys/unix"
)

// drain waits until a terminal has shown all that was written.
func drain(fd int) error { return unix.IoctlSetInt(fd, unix.TIOCDRAIN, 0) }

// kernelEnds changes nothing here: Go has no call for it, so its own handler ends the process.
func kernelEnds([]os.Signal) (restore func()) { return func() {} }
