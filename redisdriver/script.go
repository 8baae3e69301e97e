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
	batchScript   = load("batch")
	extendScript  = load("extend")
	keepScript    = load("keep")
	inspectScript = load("inspect")
)

// load reads an embedded script, with the parts that it asks for.
func load(name string) *script {
	text := read(name)
	for _, part := range []string{"clock", "line", "grant", "try", "release"} {
		text = strings.Replace(text, "--@ "+part+".lua\n", read(part), 1)
	}
	sum := sha1.Sum([]byte(text)) // the name Redis gives a script, not a safeguard
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

func read(name string) string {
	b, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // embedded: it is there or nothing builds
	}
	return string(b)
}
