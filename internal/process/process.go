// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package process says of a process that another one described whether it has
// ended.
package process

import "strings"

// Self, with its id, names this process among all that ever ran anywhere; empty
// where that cannot be known. It is opaque, and has at most 40 bytes.
func Self() string { return self() }

// Ended says whether the process that was named so, and had this id, is known to
// have ended. It is false for processes of other machines and other containers,
// and wherever nothing is known.
func Ended(name string, pid int) bool {
	world, start, ok := strings.Cut(name, "-")
	own, _, _ := strings.Cut(Self(), "-")
	return ok && world != "" && world == own && pid > 0 && ended(pid, start)
}
