// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"time"

	"github.com/hasplock/hasp"
)

// Mono is an instant of a clock that all processes of this machine share.
type Mono time.Duration

func (m Mono) add(d time.Duration) Mono { return m + Mono(d) }

func (m Mono) sub(n Mono) time.Duration { return time.Duration(m - n) }

// Job is a worker's first input. It comes through a pipe and not on the command line,
// since a URL may contain a password.
type Job struct {
	Store string // what --store was
	Given bool   // and whether it was given; otherwise the environment counts
	TTL   time.Duration
}

// order is what a worker is to do next.
type order struct {
	Stop bool `json:"stop,omitempty"`
	// Key is acquired, if Shared to read only, and held for Hold. A Limit above 0
	// cancels the wait.
	Key    string        `json:"key,omitempty"`
	Shared bool          `json:"shared,omitempty"`
	Hold   time.Duration `json:"hold,omitempty"`
	Limit  time.Duration `json:"limit,omitempty"`

	// The answer to a request for the register.
	Refused bool `json:"refused,omitempty"`
	Value   int  `json:"value,omitempty"`
}

// what says what an event is.
type what string

// The events that a worker reports, in the order of one acquisition.
const (
	ready    what = "ready"    // it asks for an order
	asked    what = "asked"    // before Lock
	failed   what = "failed"   // Lock returned without a lease
	granted  what = "granted"  // it returned with one
	renewed  what = "renewed"  // the deadline moved
	read     what = "read"     // the register is asked for its value
	write    what = "write"    // the register is asked to take another
	look     what = "look"     // the register is asked whether it has the value still
	ended    what = "ended"    // before Release: the hold is over
	released what = "released" // Release returned
	bye      what = "bye"      // the worker has closed its client
)

// event is a line that a worker writes.
type event struct {
	What     what   `json:"what"`
	At       Mono   `json:"at,omitempty"`
	Waited   bool   `json:"waited,omitempty"` // of granted: the key was not free at once
	Fence    uint64 `json:"fence,omitempty"`
	Deadline Mono   `json:"deadline,omitempty"` // of the lease, as known now
	Value    int    `json:"value,omitempty"`    // for the register
	Lost     bool   `json:"lost,omitempty"`     // of ended: the lease was over before
	Kind     string `json:"kind,omitempty"`     // of an error, in a word
	Err      string `json:"err,omitempty"`      // in words
}

// NotHeld is the kind of error by which the store said that a key is not its
// owner's any more.
const NotHeld = "not-held"

// The other kinds of error that are no trouble of the store.
const (
	cancelled = "cancelled" // the wait was cancelled
	expired   = "expired"   // the lease was lost by the clock
)

// troubles are the words for the classes of trouble with a store.
var troubles = map[hasp.Class]string{
	hasp.ClassUnknown: "unknown", hasp.ClassUnreachable: "unreachable", hasp.ClassDenied: "denied",
	hasp.ClassMisconfigured: "misconfigured", hasp.ClassFull: "full", hasp.ClassReadOnly: "read-only",
	hasp.ClassLogin: "login", hasp.ClassImpossible: "impossible",
}

// classOf is the class that a word stands for.
func classOf(kind string) hasp.Class {
	for c, word := range troubles {
		if word == kind {
			return c
		}
	}
	return hasp.ClassUnknown
}
