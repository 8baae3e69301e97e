// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// Traits is what an engine promises, as data: the suite, hasp, the command and the
// table in the documents are all based on this struct. The zero value of a field is
// the least that an engine can promise.
type Traits struct {
	Engine        string // "redis", "sqlite", "memory": for error texts and HASP_STORE_KIND
	Queue         QueueKind
	Hints         bool          // Watch gives hints to whoever is next in the queue
	JoinFirst     bool          // Watch gives a hint, too, for what happened since its owner joined: so hasp joins with its first Try, and watches after it
	TellsWanted   bool          // RenewRequest.Wanted is called at once; else Renewal.Wanted is all that tells
	Enters        bool          // hints tell of handovers: a waiter whose place is handed the key has it with the hint
	Fencing       bool          // grants carry strictly increasing fences
	Shared        bool          // honours Mode
	Slots         bool          // honours Limit and assigns Slot
	Abandons      bool          // Result.Abandoned is set where it should be
	AbandonedOnce bool          // exactly one holder gets Result.Abandoned; else perhaps later ones, too
	MinTTL        time.Duration // the shortest TTL that the engine can keep
	MaxTTL        time.Duration // 0: no limit
	SessionTTL    time.Duration // what a process that dies held may last for about so long, even if its TTL is shorter; 0: no longer than its TTL
	Survives      Fault         // faults that never lead to two holders
}

// A Teller is a Driver that hears by itself that a lease is over: by a watch, a message, or the
// end of its session. hasp ends the lease then, and does not wait for the next renewal.
type Teller interface {
	// Tell has lost called for each lease that this driver was granted and that the store
	// says is over, although this driver did not release it: it expired, was broken or was
	// revoked. fence is the lease's; 0 without Traits.Fencing. A lease that the store has not
	// said to be over must not be reported; an end before the lease's first Renew, or while the store cannot
	// be reached, need not be. lost does not block, and may be called by any goroutine until Close
	// returns. hasp calls Tell once, before any method but Traits and Check.
	Tell(lost func(id ID, fence uint64))
}

// QueueKind says how an engine's waiters queue.
type QueueKind uint8

// The kinds of queue.
const (
	QueueNone    QueueKind = iota // none: waiters compete in no order
	QueueHint                     // the first gets a hint when the key is free
	QueueHandoff                  // a release makes the first the holder at once
)

// Fault is a set of faults.
type Fault uint8

// Faults that a held lease may survive: no second holder while it lasts.
const (
	StoreRestart Fault = 1 << iota // the store's process is killed and comes back with its data
	StoreLoss                      // the store loses all its data
	ClockStep                      // the clock by which leases expire is stepped
	Failover                       // another replica or leader answers in place of the one that granted
)

// Class is the kind of trouble behind an error. hasp decides by it whether to ask
// again, and the command which exit code to use.
type Class uint8

// The classes. What is asked again after which is in the table of docs/command.md ("Trouble with the store").
const (
	ClassUnknown       Class = iota
	ClassUnreachable         // no answer, or too few nodes
	ClassDenied              // missing permission
	ClassMisconfigured       // the store is not set up for this
	ClassFull                // the store takes no more data
	ClassReadOnly            // a replica, or a read-only file
	ClassLogin               // the store refused the login: wrong or rotated password, token, certificate
	ClassImpossible          // whatever the store does: the key holds something else, or the engine or the program's client cannot do this
)

// Hint says that now is a good moment for a waiter to Try again. Hints are lost, late and repeated, and
// whoever may write to the engine's channel can forge one.
type Hint struct {
	// Handover is the lease that the waiter's place was handed: a waiter that asked with TryRequest.Enters may enter
	// at once, and claim the key behind. It tells by Result.At and Result.Fence whether to rely on it. The zero
	// value says nothing.
	Handover Handover
}

// Send puts a hint into a channel with room for one, and does not block. A hint that the waiter has not received yet is
// replaced, and the newer of their handovers kept. Many goroutines may send at once.
func (h Hint) Send(to chan Hint) {
	for {
		select {
		case to <- h:
			return
		default:
		}
		select {
		case old := <-to:
			if old.Handover.Fence > h.Handover.Fence {
				h = old
			}
		default: // the waiter, or another sender, was faster
		}
	}
}

// Handover is a lease that the store gave to an owner's place.
type Handover struct {
	Fence     uint64
	At        time.Duration // when it began, on the clock of Result.At
	TTL       time.Duration // how long it lasts, unless it is renewed
	Abandoned bool          // as Result.Abandoned
}
