// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqldriver

import (
	"math"
	"os"
	"syscall"
)

// links is how many names a file has.
func links(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // another type on other systems
	}
	return 1
}

// maxFile is how large a file this process may write.
func maxFile() int64 {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &l); err != nil || uint64(l.Cur) > math.MaxInt64 { //nolint:unconvert // another type on other systems
		return math.MaxInt64
	}
	return int64(l.Cur)
}
