// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package screen

import "golang.org/x/sys/unix"

// drain waits until a terminal has shown all that was written.
func drain(fd int) error { return unix.IoctlSetInt(fd, unix.TCSBRK, 1) }
