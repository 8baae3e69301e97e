// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package store

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// foreign names the owner of a file, when that is neither this user nor root.
func foreign(info os.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid() {
		return ""
	}
	id := strconv.Itoa(int(stat.Uid))
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return fmt.Sprintf("the user %s", id)
}

func othersWrite(info os.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// limitNewFiles lets new files have no more permissions than these, until the
// function that it returns is called.
func limitNewFiles(perm os.FileMode) (undo func()) {
	before := unix.Umask(int(^perm & 0o777))
	return func() { unix.Umask(before) }
}
