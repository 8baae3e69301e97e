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
type script struct{ text, sha string }

var (
	tryScript     = load("try")
	releaseScript = load("release")
	extendScript  = load("extend")
	keepScript    = load("keep")
	inspectScript = load("inspect")
)

// load reads an embedded script, with the shared part where the script asks
// for it.
func load(name string) *script {
	return compose(read(name), read("line"))
}

func read(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there or nothing builds
	}
	return string(b)
}

func compose(text, shared string) *script {
	text = strings.Replace(text, "--@ line.lua\n", shared, 1)
	sum := sha1.Sum([]byte(text)) // the name Redis gives a script, not a safeguard
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}
