// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// Telling is a set of what a store tells before it is asked. No engine needs any of it to grant locks.
type Telling uint8

// What a store may tell.
const (
	TellsFree     Telling = 1 << iota // Watch gives hints to the next waiter in the queue
	TellsEarlier                      // Watch also tells what happened since its owner joined: so hasp joins with its first Try, and watches after it
	TellsHandover                     // hints tell of handovers: a waiter that is handed the key has it with the hint
	// TellsWanted: RenewRequest.Wanted of a lease is called at once; else Renewal.Wanted is all that tells. It is called when a waiter joins
	// the queue for the key, until the lease is released, or renewed without it; nil: the holder does not ask. A waiter that joins while
	// another waits need not be reported: Renewal.Wanted of the same Renew says whether one does, and none that joins after that is missed,
	// unless a message is lost. A call that is late, repeated or without a waiter is rare and does no harm. Wanted does not block, and may be
	// called by any goroutine until Close returns.
	TellsWanted
)

// Has reports whether t contains all of what.
func (t Telling) Has(what Telling) bool { return t&what == what }

// Send puts a hint into a channel with room for one, and does not block. A hint that the waiter has not received yet is replaced, and the
// newer of their handovers kept. Many goroutines may send at once.
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

// Handover is a lease that the store gave to a waiter's place, as a hint tells it with TellsHandover. A waiter that asked with
// TryRequest.Enters (with Queue, and Exclusive) may enter at once, and claims the key behind, with RenewRequest.Entered. Any client that
// may write to the engine's channel can forge one: the waiter tells by Result.At and Result.Fence of its latest refusal whether to rely on
// it. A handover from before the Watch is never told.
//
// So an owner that neither claims the key then nor releases it EndUnused may have begun to work. A Try says that the owner did not enter.
type Handover struct {
	// Fence is above Result.Fence of a refusal to an owner that Enters, which is the newest of the key; else the handover is
	// of before.
	Fence uint64
	// At is when the lease began, on the clock of Result.At: the store's own, from an arbitrary moment on. A waiter must Try
	// if its refusal has At 0.
	At        time.Duration
	TTL       time.Duration // how long it lasts, unless it is renewed
	Abandoned bool          // as Result.Abandoned
}

// A Teller is a Driver that hears by itself that a lease is over: by a watch, a message, or the end of its session. hasp ends the lease
// then, and does not wait for the next renewal.
type Teller interface {
	// Tell has lost called for each lease that this driver was granted and that the store says is over, although this driver did not release
	// it: it expired, was broken or was revoked. fence is the lease's; 0 without Traits.Fencing. A lease that the store has not said to be
	// over must not be reported; an end before the lease's first Renew, or while the store cannot be reached, need not be. lost does not
	// block, and may be called by any goroutine until Close returns. hasp calls Tell once, before any method but Traits and Check.
	Tell(lost func(id ID, fence uint64))
}
