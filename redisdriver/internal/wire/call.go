// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync"
	"sync/atomic"
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

// Run is a run of the script that the client may send again: keys are the first nkeys of args.
func (s *Script) Run(ctx context.Context, c Client, nkeys int, args ...any) (any, error) {
	cmds := []Command{Plain(append([]any{"evalsha", s.sha(), nkeys}, args...)...)}
	if err := c.Run(ctx, cmds); err != nil && Says(err, "NOSCRIPT") {
		cmds[0].Args[0], cmds[0].Args[1] = "eval", s.Text()
		_ = c.Run(ctx, cmds)
	}
	return cmds[0].Reply, cmds[0].Err
}

// Call is one run of a script, or one request of a batch script.
type Call struct {
	Script *Script
	Mark   any // of a batch script: its first key, which its requests share
	Keys   []any
	Args   []any
	Once   bool // its caller cannot make it twice
	Reply  any
	Err    error
	Life   string // of a batch script with Keys: what it says behind its answers

	ctx    context.Context // the caller's; nil in an Exec, which has one for all
	report func(*Call)     // called once, when Reply and Err stand; nil in a Do, which waits for done
	done   chan struct{}
	alone  [1]*Call // itself, for a pipeline of one

	taken bool         // by a lane; guarded by Sender.mu
	fate  atomic.Int32 // whether it goes out: unsent, sent or void
}

// The fates of a call. Until the client asks what to write nothing was sent, and
// what was made void never is.
const (
	unsent = iota
	sent
	void
)

// Again is the same request once more.
func (c *Call) Again() *Call {
	return &Call{Script: c.Script, Mark: c.Mark, Keys: c.Keys, Args: c.Args}
}

// voids makes sure that a call is never sent, if it was not yet.
func (c *Call) voids() bool { return c.fate.CompareAndSwap(unsent, void) }

// ends tells the caller of the call: Reply and Err stand.
func (c *Call) ends() {
	if c.report != nil {
		c.report(c)
	} else {
		close(c.done)
	}
}

// Reply reads a script's answer field by field, and remembers whether one was
// missing or of another kind.
type Reply struct {
	Fields []any
	Bad    bool
}

// NewReply returns the reader of an answer.
func NewReply(v any) *Reply {
	fields, ok := v.([]any)
	return &Reply{Fields: fields, Bad: !ok}
}

// Next returns the next field, or the zero value where it is missing or of another type.
func Next[T any](r *Reply) (v T) {
	ok := false
	if len(r.Fields) > 0 {
		v, ok = r.Fields[0].(T)
		r.Fields = r.Fields[1:]
	}
	r.Bad = r.Bad || !ok
	return v
}
