// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed lua
var sources embed.FS

// script is Lua that Redis runs as one step.
type script struct {
	text, sha string
	batch     bool    // carries requests of many
	keys      []any   // of the batch script of a node: what stands behind the mark
	lone      *script // of that, for one request that nobody is in the way of
}

// scripts are those that differ where a node record is kept.
type scripts struct{ batch, extend, keep *script }

var (
	plain = scripts{load("batch", false), load("extend", false), load("keep", false)}
	node  = scripts{load("batch", true), load("extend", true), load("keep", true)}

	inspectScript = load("inspect", false)
	recordScript  = load("record", true)
	admitScript   = load("admit", true)
)

// load reads an embedded script, with the parts that it asks for.
func load(name string, node bool) *script {
	s := named(script{text: expand(name, node), batch: name == "batch"})
	if node && s.batch {
		s.keys = []any{recordKey, proposedKey}
		s.lone = load("lone", true)
	}
	return s
}

// named is a script with the name that Redis gives it.
func named(s script) *script {
	sum := sha1.Sum([]byte(s.text)) // not a safeguard
	s.sha = hex.EncodeToString(sum[:])
	return &s
}

// expand reads a script for a node or for another server. A line that begins with
// --+ is part of a node's scripts, one with --- of the others, and --@ names a file
// that stands there. It runs at every start of a program: a regular expression
// would take ten times as long as all the rest of the start.
func expand(name string, node bool) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there or nothing builds
	}
	ours, others := "--- ", "--+ "
	if node {
		ours, others = others, ours
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, others) {
			continue
		}
		line = strings.TrimPrefix(line, ours)
		if part, ok := strings.CutPrefix(line, "--@ "); ok {
			line = expand(strings.TrimSuffix(part, ".lua\n"), node)
		}
		text.WriteString(line)
	}
	return text.String()
}
