// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"os"
	"syscall"
)

// oPath is O_PATH: such a descriptor keeps an inode, so that its number is given
// to no other file, and is no use of it. Closing it gives up no locks.
const oPath = 0x200000

// keep opens a file so that isOpen can tell it from every later one.
func keep(path string) (*os.File, error) {
	return os.OpenFile(path, oPath|syscall.O_NOFOLLOW, 0)
}

// uses says whether a descriptor is more than a keep.
func uses(fd int, _ *syscall.Stat_t) bool {
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	return errno == 0 && flags&oPath == 0
}
