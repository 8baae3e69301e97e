// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// scripts are those that differ where a node record is kept.
type scripts struct{ batch, extend, keep *wire.Script }

var (
	plain = scripts{load("batch", false), load("extend", false), load("keep", false)}
	node  = scripts{load("batch", true), load("extend", true), load("keep", true)}

	bearScript    = load("bear", false)
	inspectScript = load("inspect", false)
	sweepScript   = load("sweep", false)
	recordScript  = load("record", true)
	admitScript   = load("admit", true)
)

// load returns a script, which is built when it is first used.
func load(name string, node bool) *wire.Script {
	s := wire.NewScript(func() string { return build(name, node) })
	s.Fault = dataError
	if s.Batch = name == "batch"; s.Batch && node {
		s.Keys = []any{recordKey, proposedKey}
	}
	return s
}
