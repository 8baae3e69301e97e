// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"embed"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// The scripts are generated from lua/src: see layout.go.
//
//go:embed lua/*.lua
var sources embed.FS

// scripts are those that differ where a node record is kept.
type scripts struct{ batch, extend, keep *wire.Script }

var (
	plain = scripts{loadBatch("batch"), load("extend"), load("keep")}
	node  = scripts{loadBatch("batch_node"), load("extend_node"), load("keep_node")}

	bearScript    = load("bear")
	inspectScript = load("inspect")
	sweepScript   = load("sweep")
	recordScript  = load("record")
	admitScript   = load("admit")
)

func loadBatch(name string) *wire.Script {
	s := load(name)
	s.Batch = true
	if name == "batch_node" {
		s.Keys = []any{recordKey, proposedKey}
	}
	return s
}

func load(name string) *wire.Script {
	s := wire.Load(sources, name)
	s.Fault = dataError
	return s
}
