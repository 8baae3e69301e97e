// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package doctor examines a store: does it answer, what does it promise, and
// what about its configuration endangers that.
//
// Whatever a server says is hostile text: findings have it escaped.
package doctor

import (
	"time"

	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/people"
)

// The levels of a finding.
const (
	OK   = operator.LevelOK
	Warn = operator.LevelWarn
	Fail = operator.LevelFail
)

// Finding is the result of one check.
type Finding struct {
	Level operator.Level `json:"level"`
	Node  string         `json:"node,omitempty"` // the server's address; empty for the store as a whole
	Check string         `json:"check"`          // what was looked at, in a word
	Text  string         `json:"text"`           // what was found, and what to do about it

	Left         people.Seconds `json:"left_seconds,omitempty"`  // of a server that is held back
	Took         people.Seconds `json:"took_seconds,omitempty"`  // of a trial: what it measured
	FencesRepeat bool           `json:"fences_repeat,omitempty"` // as operator.Finding has it
}

// Vote is whether a server votes, by its own account.
type Vote struct {
	Err     error
	Record  bool          // it keeps a node record; without it, it always votes
	Voting  bool          // it grants locks
	Refuses error         // with Voting: why it grants none with a fence of now
	Left    time.Duration // of the wait, when it is held back
	MaxTTL  time.Duration // the longest lease it was admitted for
	Run     string        // names the present run of the server; empty when not known
}

// Asked is how a server is used.
type Asked struct {
	MaxTTL time.Duration // of the store's URL; 0: no node record
	Enough bool          // a majority votes without this one
	// Cluster: it is one of the masters of a Redis Cluster.
	Cluster  bool
	Replicas int  // that must confirm a lock
	Redisson bool // locks are in the layout of Redisson, which has no record and waits for no replicas
	// Command is the command line that has the server carry out a statement.
	Command func(statement string) string
	// Says is what to say of an error of the server: a sentence about "it".
	Says func(err error) string
}
