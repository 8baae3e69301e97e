// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build darwin || freebsd

package store

import (
	"slices"

	"golang.org/x/sys/unix"
)

// sharedDisks are file systems that several machines may use at once, by the
// system's names.
var sharedDisks = []string{"nfs", "smbfs", "afpfs", "webdav", "fusefs", "macfuse", "osxfuse"}

// sharedDisk names the kind of file system that a folder is on, when it is one of
// those; empty when it is not, or cannot be known.
func sharedDisk(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return ""
	}
	name := unix.ByteSliceToString(s.Fstypename[:])
	if slices.Contains(sharedDisks, name) {
		return name
	}
	return ""
}

func layered(string) bool { return false }
