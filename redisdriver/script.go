// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
)

// The scripts are generated from lua/src: see layout.go.
//
//go:embed lua/*.lua
var sources embed.FS

// script is Lua that Redis runs as one step.
type script struct {
	text, sha string
	batch     bool  // carries requests of many
	keys      []any // of the batch script of a node: what stands behind the mark
}

// scripts are those that differ where a node record is kept.
type scripts struct{ batch, extend, keep *script }

var (
	plain = scripts{loadBatch("batch"), load("extend"), load("keep")}
	node  = scripts{loadBatch("batch_node"), load("extend_node"), load("keep_node")}

	bearScript    = load("bear")
	inspectScript = load("inspect")
	recordScript  = load("record")
	admitScript   = load("admit")
)

func loadBatch(name string) *script {
	s := load(name)
	s.batch = true
	if name == "batch_node" {
		s.keys = []any{recordKey, proposedKey}
	}
	return s
}

func load(name string) *script {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there or nothing builds
	}
	return named(script{text: string(text)})
}

// named is a script with the name that Redis gives it.
func named(s script) *script {
	sum := sha1.Sum([]byte(s.text)) // not a safeguard
	s.sha = hex.EncodeToString(sum[:])
	return &s
}
