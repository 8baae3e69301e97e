// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// Traits is what an engine promises, as data: the suite, hasp, the command and the table in the documents are all based on this struct.
// The zero value of a field is the least that an engine can promise.
type Traits struct {
	Engine         string // "redis", "sqlite", "memory": for error texts and HASP_STORE_KIND
	Queue          QueueKind
	Tells          Telling       // what the store tells before it is asked
	Fencing        bool          // grants carry strictly increasing fences
	Shared         bool          // honours Mode
	Slots          bool          // honours Limit and assigns Slot
	MarksAbandoned bool          // Result.Abandoned is set where it should be; where several nodes grant, perhaps for a later holder, too
	MinTTL         time.Duration // the shortest TTL that the engine can keep
	MaxTTL         time.Duration // 0: no limit
	Survives       Fault         // faults that never lead to two holders
}

// QueueKind says how an engine's waiters queue.
type QueueKind uint8

// The kinds of queue.
const (
	QueueNone    QueueKind = iota // none: waiters compete in no order
	QueueHint                     // the first is granted the free key when it next asks
	QueueHandoff                  // a release makes the first the holder at once
)

// Fault is a set of faults.
type Fault uint8

// Faults that a held lease may survive: no second holder while it lasts.
const (
	StoreRestart Fault = 1 << iota // the store's process is killed and comes back with its data
	StoreLoss                      // the store loses all its data
	ClockStep                      // the clock by which leases expire is stepped
	Failover                       // another replica or leader answers in place of the granting one
)

// Class is the kind of trouble behind an error. hasp decides by it whether to ask
// again, and the command which exit code to use.
type Class uint8

// The classes. What is asked again after which is in the table of docs/errors.md ("Trouble with the store").
const (
	ClassUnknown       Class = iota
	ClassUnreachable         // no answer, or too few nodes
	ClassLogin               // the store refused the login: wrong or rotated password, token, certificate
	ClassDenied              // missing permission
	ClassReadOnly            // a replica, or a read-only file
	ClassFull                // the store takes no more data
	ClassMisconfigured       // the store is not set up for this
	ClassImpossible          // whatever the store does: the key holds something else, the engine or the program's client cannot do this, or the caller asked wrongly
)

var classNames = [...]string{"unknown", "unreachable", "login", "denied", "read-only", "full", "misconfigured", "impossible"}

// String names the class: unreachable, read-only.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return classNames[ClassUnknown]
}

// MarshalText is String, for JSON and logs. It never fails.
func (c Class) MarshalText() ([]byte, error) { return []byte(c.String()), nil }
