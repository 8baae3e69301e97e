// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sqldriver

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// links is how many names a file has.
func links(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Nlink) //nolint:unconvert // another type on other systems
	}
	return 1
}

// isOpen says whether this process has a file open; where that cannot be known,
// it has.
func isOpen(info os.FileInfo) bool {
	want, ok := info.Sys().(*syscall.Stat_t)
	names, err := filepath.Glob("/dev/fd/*")
	if !ok || err != nil || len(names) == 0 {
		return true
	}
	for _, name := range names {
		var is syscall.Stat_t
		fd, err := strconv.Atoi(filepath.Base(name))
		if err == nil && syscall.Fstat(fd, &is) == nil && is.Dev == want.Dev && is.Ino == want.Ino && uses(fd, &is) {
			return true
		}
	}
	return false
}

// openPlain opens a file for writing, and follows no symbolic link.
func openPlain(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
}
