// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"time"

	"github.com/hasplock/hasp/verify/internal/child"
)

// job is the configuration of a process.
type job struct {
	Kind   Kind
	Store  string
	Slots  int
	TTL    time.Duration
	Seed   uint64
	Broken string
}

// what is the kind of an event.
type what string

// The events that a process reports, in the order of a turn.
const (
	asked    what = "asked"    // before it tries to acquire
	failed   what = "failed"   // nothing was granted
	granted  what = "granted"  // all that was asked for
	renewed  what = "renewed"  // a deadline moved
	lowered  what = "lowered"  // before Downgrade: from now on it only reads
	ended    what = "ended"    // before Release: the hold is over
	released what = "released" // Release returned
	saw      what = "saw"      // Observe reported a leader
	bye      what = "bye"      // the client is closed
)

// event is a line that a process writes.
type event struct {
	What      what       `json:"what"`
	At        child.Mono `json:"at"`
	Leases    []lease    `json:"leases,omitempty"` // of granted and ended; of renewed and saw, one
	Keys      []string   `json:"keys,omitempty"`   // of asked
	Shared    bool       `json:"shared,omitempty"` // of asked: see asking.shared
	Abandoned bool       `json:"abandoned,omitempty"`
	Lost      bool       `json:"lost,omitempty"`      // of ended: it was over before
	Cancelled bool       `json:"cancelled,omitempty"` // of failed
	Err       string     `json:"err,omitempty"`
}

// lease is one of the leases of a turn.
type lease struct {
	Key       string     `json:"key"`
	Owner     string     `json:"owner"`
	Fence     uint64     `json:"fence"`
	Shared    bool       `json:"shared,omitempty"`
	Limit     int        `json:"limit,omitempty"`
	Slot      int        `json:"slot,omitempty"`
	Abandoned bool       `json:"abandoned,omitempty"`
	Deadline  child.Mono `json:"deadline"` // as known now
}

// order is a line that a process reads: it has to end after its turn.
type order struct {
	Stop bool `json:"stop"`
}
