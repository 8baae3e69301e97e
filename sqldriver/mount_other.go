// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sqldriver

// isMountPoint: only Linux mounts a file at another path.
func isMountPoint(string) (bool, error) { return false, nil }
