// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// Traits is what an engine promises, as data: the suite, hasp, the documents'
// table and the command read this one struct. The zero value of a field is the
// least that an engine can promise.
type Traits struct {
	Engine        string // "redis", "sqlite", "memory": for error texts and HASP_STORE_KIND
	Queue         QueueKind
	Hints         bool          // Watch tells whoever is next in line
	Fencing       bool          // grants carry strictly rising fences
	Shared        bool          // honours Mode
	Slots         bool          // honours Limit and numbers Slot
	AbandonedOnce bool          // Result.Abandoned is said to one holder; else perhaps to another after it, too
	MinTTL        time.Duration // smallest TTL that means something here
	MaxTTL        time.Duration // 0: no bound
	Survives      Fault         // faults that never lead to two holders
}

// A Checker is a Driver that can tell without I/O that it was configured in a
// way that cannot work. hasp.New fails with the error.
type Checker interface{ Check() error }

// QueueKind says how waiting works.
type QueueKind uint8

// The kinds of line.
const (
	QueueNone    QueueKind = iota // no line: waiters race
	QueueHint                     // a line; its first is told that the key is free
	QueueHandoff                  // a line; a release makes its first the owner at once
)

// Fault is a set of faults.
type Fault uint8

// Faults that a held lease may survive: no second holder while it lasts.
const (
	StoreRestart Fault = 1 << iota // the store's process is killed and comes back with its data
	StoreLoss                      // the store forgets everything
	ClockStep                      // the clock that ends leases is stepped
)

// Class is the kind of trouble behind an error: all that hasp and the
// command's exit codes know of it.
type Class uint8

// The classes. Only ClassUnknown and ClassUnreachable are worth asking again.
const (
	ClassUnknown       Class = iota
	ClassUnreachable         // no answer, or too few nodes
	ClassDenied              // wrong password, missing permission
	ClassMisconfigured       // the store cannot do this; the key holds something else
	ClassFull                // the store takes no more data
	ClassReadOnly            // a replica, or a read-only file
)
