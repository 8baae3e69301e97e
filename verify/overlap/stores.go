// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// redlockNodes is how many nodes a quorum has.
const redlockNodes = 5

// start starts its store. The servers have the clock, which may be nil; of a quorum so many as are stepped.
func (s *subject) start(t testing.TB, clock *testserver.Clock) *engines.Store {
	var env []string
	if clock != nil {
		env = clock.Env()
	}
	if s.store != engines.Redlock {
		return engines.Start(t, s.store, env...)
	}
	all := &engines.Store{Kind: s.store}
	for i := range redlockNodes {
		of := env
		if i < redlockNodes-s.stepped {
			of = nil
		}
		all.Servers = append(all.Servers, testserver.RedisIn(t, of))
	}
	return all
}
