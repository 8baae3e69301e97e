// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"time"

	"github.com/hasplock/hasp/verify/internal/crew"
)

// Mono is an instant of a clock that all processes share.
type Mono = crew.Mono

func now() Mono { return crew.Now() }

// job is what a client process is told at its start.
type job struct {
	Library string // "hasp" or "redsync"
	Store   Store
	Broken  string // the variant of hasp; empty: as it is
	Addrs   []string
	MaxTTL  time.Duration
	Skew    time.Duration
	State   string        // the directory for waits, or empty
	Timeout time.Duration // of a node; 0: as package quorum has it
	Seed    uint64
	Strict  bool          // go-redis sends nothing twice and obeys contexts; else its defaults
	Long    int           // one hold in so many lasts for a renewal or more
	Longest time.Duration // of those
	Hasty   bool          // every other wait is a short one
}

// what says what an event is.
type what string

// The events that a client reports, in the order of one acquisition.
const (
	asked    what = "asked"    // before Lock or TryLock
	waiting  what = "waiting"  // it waits in the queue
	failed   what = "failed"   // it returned without a lease
	granted  what = "granted"  // it returned with one
	renewed  what = "renewed"  // the deadline moved
	lowered  what = "lowered"  // before Downgrade: from now on the client only reads
	shares   what = "shares"   // Downgrade returned
	ended    what = "ended"    // before Release: the hold is over
	gone     what = "gone"     // the store answered a release, also of what Lock left behind
	released what = "released" // Release returned
	read     what = "read"     // the register is asked for its value
	write    what = "write"    // the register is asked to take the next value
	look     what = "look"     // the register is asked whether it has the value still
	bye      what = "bye"      // the client has ended
)

// event is a line that a client writes.
type event struct {
	What     what   `json:"what"`
	At       Mono   `json:"at"`
	N        int    `json:"n"` // of the acquisition, from 1
	Key      string `json:"key,omitempty"`
	Try      bool   `json:"try,omitempty"`
	Shared   bool   `json:"shared,omitempty"` // of asked to granted: for reading; of read and write: the client may only read
	Fence    uint64 `json:"fence,omitempty"`
	Deadline Mono   `json:"deadline,omitempty"` // of the lease, as known now
	Most     Mono   `json:"most,omitempty"`     // the latest that the deadline may be; 0: nobody knows
	Lost     bool   `json:"lost,omitempty"`     // the lease was over before Release
	Stands   bool   `json:"stands,omitempty"`   // of ended: the lease says that it may be relied on
	Err      string `json:"err,omitempty"`
	Held     bool   `json:"held,omitempty"` // of failed: somebody else had the key
	Value    value  `json:"value,omitzero"`
	// Stood is what the machine took from this process so far.
	Stood time.Duration `json:"stood,omitempty"`
	// Slow is what its calls to the store took so far, beyond a few milliseconds each.
	Slow time.Duration `json:"slow,omitempty"`
}

// value is what both faces of the register hold.
type value struct {
	Fenced int `json:"fenced"`
	Bare   int `json:"bare"`
}

// answer is a line that a client reads.
type answer struct {
	Stop    bool  `json:"stop,omitempty"`
	Refused bool  `json:"refused,omitempty"`
	Value   value `json:"value,omitzero"`
}
