// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"time"

	"github.com/hasplock/hasp/internal/player"
)

// Mono is an instant of the clock that all processes share.
type Mono = player.Mono

func now() Mono { return player.Now() }

// job is the configuration of a client process.
type job struct {
	Library string // "hasp" or "redsync"
	Store   Store
	Broken  string // the variant of hasp; empty: hasp as it is
	Addrs   []string
	MaxTTL  time.Duration
	Skew    time.Duration
	State   string        // the directory for waits, or empty
	Timeout time.Duration // of a node; 0: package quorum's default
	Seed    uint64
	Strict  bool          // go-redis never sends a command twice, and obeys contexts; otherwise its defaults
	Long    int           // one hold in so many lasts for a renewal or more
	Longest time.Duration // of these holds
	Hasty   bool          // every other wait is short
	Polls   bool          // all are a TryLock
}

// what is the kind of an event.
type what string

// The events that a client reports, in the order of one acquisition.
const (
	asked    what = "asked"    // before Lock or TryLock
	waiting  what = "waiting"  // it waits in the queue
	failed   what = "failed"   // Lock or TryLock returned without a lease
	granted  what = "granted"  // Lock or TryLock returned a lease
	renewed  what = "renewed"  // the deadline moved
	lowered  what = "lowered"  // before Downgrade: from now on the client only reads
	shares   what = "shares"   // Downgrade returned
	ended    what = "ended"    // before Release: the hold is over
	gone     what = "gone"     // the store answered a release, also one that Lock left to the background
	released what = "released" // Release returned
	read     what = "read"     // the register is asked for its value
	write    what = "write"    // the register is asked to take the next value
	look     what = "look"     // the register is asked whether it still has the value
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
	// Stood is for how long this process has not got to run so far.
	Stood time.Duration `json:"stood,omitempty"`
	// Slow is how much longer than usual its calls to the store took so far.
	Slow time.Duration `json:"slow,omitempty"`
}

// value is both numbers of a register.
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
