// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "time"

// What a store tells before it is asked. No engine needs any of it to grant locks.

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

// Handover is a lease that the store gave to a waiter's place, as a hint tells it where Traits.Enters is true. A waiter that
// asked with TryRequest.Enters (with Queue, and Exclusive) may enter at once, and claims the key behind, with RenewRequest.Entered.
// Any client that may write to the engine's channel can forge one: the waiter tells by Result.At and Result.Fence of its latest
// refusal whether to rely on it. A handover from before the Watch is never told.
//
// So an owner that neither claims the key then nor releases it Unused may have begun to work. A Try says that the
// owner did not enter.
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
