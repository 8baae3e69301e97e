// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"slices"

	"github.com/hasplock/hasp/verify/engines"
)

// key is the one that all want.
const key = "k"

// subject is a lock that is measured.
type subject struct {
	name    string
	signal  string       // what its holder asks whether it holds the key
	exact   bool         // it must not overlap, but for a stepped clock
	store   engines.Kind // Redlock: five Redis
	stepped int          // of the five: those whose clocks are stepped
	faults  []fault      // those it is measured under; nil: all that its store can have
	open    opener
}

// opener makes a client, with connections of its own.
type opener func(context.Context, job) (locker, error)

// locker acquires the key, and waits for it. holds asks the library whether it is still held.
type locker func(context.Context) (holds func() bool, err error)

var subjects = slices.Concat(haspSubjects, otherSubjects)

func find(name string) *subject {
	for _, s := range subjects {
		if s.name == name {
			return s
		}
	}
	return nil
}

// has reports whether it is measured under a fault.
func (s *subject) has(f fault) bool {
	switch {
	case s.faults != nil && !slices.Contains(s.faults, f):
		return false
	case f == partition:
		return s.store != engines.SQLite
	case f == clockStep:
		// A file is on the machine of its clients, whose monotonic clock decides. An etcd is a program in Go, whose clock
		// cannot be stepped for it alone.
		return s.store != engines.SQLite && s.store != engines.Etcd
	}
	return true
}
