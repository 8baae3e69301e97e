// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "github.com/hasplock/hasp/driver"

// Mode is how a key is held. The zero value is Exclusive.
type Mode = driver.Mode

// The modes.
const (
	Exclusive = driver.Exclusive // one holder
	Shared    = driver.Shared    // readers, or the holders of a semaphore's slots
)

// Info describes a key in the store, as Inspect and List return it:
//
//	Key      string         // what is locked
//	Held     bool           // somebody holds it
//	Holder   Holder         // of several, the one that came first
//	Fence    uint64         // of that lease; 0 when not known
//	Left     time.Duration  // of that lease, without renewal; negative when it never expires
//	Holds    int            // how many leases there are on the key
//	Holders  []driver.Lease // all of them, in order: each has Holder, Fence and Left (Inspect only)
//	Waiters  int            // how many live places the queue has
//	Queue    []Holder       // the waiters in order (Inspect only)
//	ByHand   []string       // statements of the store's own that show the key (Inspect only)
//	Free     []string       // such that free a key whose foreign holder never expires (Inspect only)
type Info = driver.Info

// Holder is somebody who holds a key or waits for it:
//
//	Owner   string    // 26 characters, as Lease.Owner; empty for a foreign holder
//	Label   string    // what it says of itself, as stored: treat it as hostile
//	Foreign bool      // another program's value: respected, and never changed
//	Since   time.Time // when the key was granted, by the store's clock; zero when not known
//	Mode    Mode      // how it holds the key, or wants to
//	Limit   int       // of a semaphore: its n
//	Slot    int       // of a semaphore's holder: its slot
//
// String names it in one line that is safe to print; Describe returns its Label
// in parts.
type Holder = driver.Holder

// Label is what an owner says of itself, for people. All of it is hostile text:
//
//	Host    string
//	PID     int
//	User    string
//	Reason  string    // LockOptions.Reason
//	Process string    // with PID, names the process among all of that host; opaque
//	Since   time.Time // when the acquisition began, or was granted where the store says so
type Label = driver.Label
