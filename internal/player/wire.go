// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package player tries a store with clients that are processes of this very program: what they
// are told to do, what they report, and the book of it. hasp verify and the proving ground
// (verify) have it in common; internal/history judges what the book says.
package player

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// Mono is an instant of a clock that all processes of this machine share.
type Mono time.Duration

// Add returns the instant that comes so much later.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Sub returns the time from n to m.
func (m Mono) Sub(n Mono) time.Duration { return time.Duration(m - n) }

// Time returns the instant on a wall clock that began with the machine.
func (m Mono) Time() time.Time { return time.Unix(0, int64(m)).UTC() }

// Job is a client's first input. It comes through a pipe and not on the command line,
// since a URL may contain a password.
type Job struct {
	Store  string // what --store was
	Given  bool   // and whether it was given; otherwise the environment counts
	TTL    time.Duration
	Broken string          // the fault of its driver, where one is tried
	Extra  json.RawMessage // what else the program's own clients need
}

// Want is a key that is wanted, if Shared to read only.
type Want struct {
	Key    string `json:"key"`
	Shared bool   `json:"shared,omitempty"`
}

// Order is what a client is to do next.
type Order struct {
	Stop bool `json:"stop,omitempty"`
	// Wants are acquired, together when they are several, and held for Hold. A Limit above 0
	// cancels the wait. Try: the one key is acquired at once or not at all.
	Wants []Want        `json:"wants,omitempty"`
	Try   bool          `json:"try,omitempty"`
	Hold  time.Duration `json:"hold,omitempty"`
	Limit time.Duration `json:"limit,omitempty"`
	// The one key is a semaphore with so many Slots; or an election, and the client observes its
	// leaders from then on; or it is downgraded after Hold, and held for as long again.
	Slots     int  `json:"slots,omitempty"`
	Campaign  bool `json:"campaign,omitempty"`
	Downgrade bool `json:"downgrade,omitempty"`
	// Rest is for how long the client does nothing afterwards.
	Rest time.Duration `json:"rest,omitempty"`
	// Bare: no register is used under the lease.
	Bare bool `json:"bare,omitempty"`

	// The answer to a request for the register.
	Refused  bool `json:"refused,omitempty"`
	Value    int  `json:"value,omitempty"`
	Unfenced int  `json:"unfenced,omitempty"` // of a register that compares no fences
}

// What says what an event is.
type What string

// The events that a client reports, in the order of one acquisition. Of several keys, each is granted
// and ended by an event of its own.
const (
	Ready    What = "ready"    // it asks for an order
	Asked    What = "asked"    // before Lock
	Waiting  What = "waiting"  // it waits in the queue
	Failed   What = "failed"   // Lock returned without a lease
	Granted  What = "granted"  // it returned with one
	Renewed  What = "renewed"  // the deadline moved
	Read     What = "read"     // the register is asked for its value
	Write    What = "write"    // the register is asked to take another
	Lowered  What = "lowered"  // before Downgrade: from now on it only reads
	Shares   What = "shares"   // Downgrade returned
	Look     What = "look"     // the register is asked whether it has the value still
	Ended    What = "ended"    // before Release: the hold is over
	Gone     What = "gone"     // the store answered a release, also a release that Lock left to the background
	Released What = "released" // Release returned
	Saw      What = "saw"      // a leader was observed
	Bye      What = "bye"      // the client is closed
)

// Event is a line that a client writes.
type Event struct {
	What      What   `json:"what"`
	At        Mono   `json:"at,omitempty"`     // never 0
	N         int    `json:"n,omitempty"`      // of the order that it is about, from 1
	Waited    bool   `json:"waited,omitempty"` // of granted: the key was not free at once
	Key       string `json:"key,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Fence     uint64 `json:"fence,omitempty"`
	Shared    bool   `json:"shared,omitempty"`
	Slot      int    `json:"slot,omitempty"`
	Abandoned bool   `json:"abandoned,omitempty"` // a previous holder did not release the key
	Deadline  Mono   `json:"deadline,omitempty"`  // of the lease, as known now
	Value     int    `json:"value,omitempty"`     // for the register
	Unfenced  int    `json:"unfenced,omitempty"`  // for a register that compares no fences
	Lost      bool   `json:"lost,omitempty"`      // of ended: the lease was over before
	Closed    Mono   `json:"closed,omitempty"`    // of ended: when the holder was told of that, if it was
	Kind      string `json:"kind,omitempty"`      // of an error, in a word
	Err       string `json:"err,omitempty"`       // in words

	// Most is the latest that the deadline may be; 0: it is not known.
	Most Mono `json:"most,omitempty"`
	// Stood is for how long the process did not get to run so far, Slow how much longer than
	// usual its calls to the store took.
	Stood time.Duration `json:"stood,omitempty"`
	Slow  time.Duration `json:"slow,omitempty"`
	// Stalled is for how long the process that hears it did not get to run so far.
	Stalled time.Duration `json:"stalled,omitempty"`
}

// NotHeld is the kind of error by which the store said that a key is not its
// owner's any more.
const NotHeld = "not-held"

// The other kinds of error that are no trouble of the store.
const (
	Cancelled = "cancelled" // the wait was cancelled
	Held      = "held"      // of a try: another owner has the key
	Expired   = "expired"   // the lease was lost by the clock
)

// ClassOf is the class that a word stands for.
func ClassOf(kind string) driver.Class {
	for c := range driver.ClassImpossible + 1 {
		if c.String() == kind {
			return c
		}
	}
	return driver.ClassUnknown
}

// kindOf classifies an error in a word.
func kindOf(err error) string {
	var e *hasp.Error
	switch {
	case errors.Is(err, hasp.ErrNotHeld):
		return NotHeld
	case errors.Is(err, hasp.ErrLost):
		return Expired
	case errors.As(err, &e):
		return e.Class.String()
	}
	return driver.ClassUnknown.String()
}
