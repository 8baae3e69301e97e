// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha1"
	"encoding/hex"
)

// Script is Lua that Redis runs as one step.
type Script struct {
	Text  string
	Batch bool  // carries requests of many
	Keys  []any // of a batch script: what stands behind the mark
	// Fault makes more of an error of the server, nil: nothing.
	Fault func(c *Call, err error) error

	sha any // a string; as any once, since each call needs it so
}

// NewScript returns a script with the name that Redis gives it.
func NewScript(text string) *Script {
	sum := sha1.Sum([]byte(text)) // not a safeguard
	return &Script{Text: text, sha: hex.EncodeToString(sum[:])}
}
