// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

// Script is Lua that Redis runs as one step.
type Script struct {
	Batch bool  // carries requests of many
	Keys  []any // of a batch script: what stands behind the mark
	// Fault makes more of an error of the server, nil: nothing.
	Fault func(c *Call, err error) error

	whole func() (text string, sha any) // sha is a string; as any once, since each call needs it so
}

// NewScript returns a script that builds its text when it is first used.
func NewScript(build func() string) *Script {
	return &Script{whole: sync.OnceValues(func() (string, any) {
		text := build()
		sum := sha1.Sum([]byte(text)) // not a safeguard
		return text, hex.EncodeToString(sum[:])
	})}
}

// Load returns a script of some parts, in the folder lua of files. They are read when it is
// first sent: a program that runs other scripts, or none, begins without.
func Load(files interface {
	ReadFile(name string) ([]byte, error)
}, parts ...string) *Script {
	return NewScript(func() (text string) {
		for _, part := range parts {
			b, err := files.ReadFile("lua/" + part + ".lua")
			if err != nil {
				panic(err) // embedded: it is there or nothing builds
			}
			text += string(b)
		}
		return text
	})
}

// Text is what Redis runs.
func (s *Script) Text() string {
	text, _ := s.whole()
	return text
}

// sha is the name that Redis gives it.
func (s *Script) sha() any {
	_, sha := s.whole()
	return sha
}
