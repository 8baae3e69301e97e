// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
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

// A line that begins with --+ is part of a node's scripts, one with --- of the
// others, and --@ names a file that stands there.
var (
	ours   = map[bool]*regexp.Regexp{true: regexp.MustCompile(`(?m)^--\+ `), false: regexp.MustCompile(`(?m)^--- `)}
	others = map[bool]*regexp.Regexp{true: regexp.MustCompile(`(?m)^--- .*\n`), false: regexp.MustCompile(`(?m)^--\+ .*\n`)}
	parts  = regexp.MustCompile(`(?m)^--@ (\w+)\.lua\n`)
)

func expand(name string, node bool) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there or nothing builds
	}
	text := others[node].ReplaceAllString(string(b), "")
	text = ours[node].ReplaceAllString(text, "")
	return parts.ReplaceAllStringFunc(text, func(line string) string {
		return expand(parts.FindStringSubmatch(line)[1], node)
	})
}
