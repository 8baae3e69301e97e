// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package sqldriver

import (
	"os"
	"syscall"
)

// keep: to open the file for it would give up locks when it is closed.
func keep(string) (*os.File, error) { return nil, nil }

// uses says whether a descriptor is of a file that was deleted: another one may
// have its inode by now, but has a name.
func uses(_ int, stat *syscall.Stat_t) bool { return stat.Nlink == 0 }
