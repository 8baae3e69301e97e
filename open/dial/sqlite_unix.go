// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package dial

import "golang.org/x/sys/unix"

// unwritable says whether this user may see a file, and not write it.
func unwritable(path string) bool {
	return unix.Access(path, unix.F_OK) == nil && unix.Access(path, unix.W_OK) != nil
}
