// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package process tells whether a process, as another process described it, has ended.
package process

import "strings"

// Self identifies, together with its id, this process among all processes; empty where
// that is not possible. It is opaque, and has at most 40 bytes.
func Self() string { return self() }

// Of is Self of a process of this machine that can be seen from here.
func Of(pid int) string { return of(pid) }

// Ended reports whether the process with this name and id is known to have ended. It is
// false for processes of other machines and other containers, and wherever nothing is
// known.
func Ended(name string, pid int) bool {
	world, start, ok := strings.Cut(name, "-")
	own, _, _ := strings.Cut(Self(), "-")
	return ok && world != "" && world == own && pid > 0 && ended(pid, start)
}

// OwnProc reports whether /proc shows the processes by the numbers that they have here.
// Within another namespace of process ids, the /proc from outside names others by them.
func OwnProc() bool { return ownProc() }
