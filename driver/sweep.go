// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"iter"
	"time"
)

// A Sweeper is a Driver whose store may keep what no clock of its own will ever end: a lease whose expiry a
// person took away, a lock that another program wrote without one, what belonged to a lock
// that is gone. hasp leaks shows it, and removes it.
//
// What will end by itself, within its TTL, its patience or the minute for which the store remembers a key, is no leftover.
type Sweeper interface {
	// ListLeftovers yields what is left over of keys that start with prefix, in no particular order, possibly with
	// duplicates. It changes nothing. It must not slow other clients of the store down, and may take
	// its time for that. The sequence ends after the first error.
	//
	// held, unless it is nil, is called for each key that is held with an expiry, by the same goroutine, so that a large store is
	// walked only once: with the key and, of one holder, Holder, Fence and Left.
	ListLeftovers(ctx context.Context, prefix string, held func(Info)) iter.Seq2[Leftover, error]

	// RemoveLeftover removes exactly l, in one step with the comparison of what the store has now with what was listed.
	// It never removes what somebody renews. ErrNotHeld: it is no longer as it was listed, or it is
	// Live, and nothing was done. After any other error the outcome is unknown.
	//
	// stays is for how long it is kept nevertheless, 0: it is gone. What somebody may still need or
	// renew is given an expiry instead of being removed, and is a leftover no more.
	RemoveLeftover(ctx context.Context, l Leftover) (stays time.Duration, err error)
}

// Leftover is one thing that a Sweeper found. All of its texts are hostile.
type Leftover struct {
	Key  string // the lock's; "" of a LeftSidecar: not known
	Kind LeftoverKind
	Name string // what it is called in the store
	// Holder is who has the lease, or had the place; the zero value of a LeftSidecar.
	Holder Holder
	Fence  uint64 // of a lease, 0: not known
	// Live: a lease without an expiry whose holder renews it, and will release it. It is shown, since it stays
	// for ever if that holder dies, and never removed.
	Live bool
	// State is what RemoveLeftover compares. It is opaque, and valid for the driver's kind of store.
	State string
}

// Foreign reports whether another program than hasp wrote it: nobody here can know whether its holder lives. Such
// a leftover is to be removed only when a person named its very key.
func (l Leftover) Foreign() bool { return l.Kind == LeftLease && l.Holder.Foreign }

// LeftoverKind says what a leftover is.
type LeftoverKind string

// The kinds of leftovers.
const (
	LeftLease   LeftoverKind = "lease"   // it has no expiry
	LeftPlace   LeftoverKind = "place"   // in a queue, of a waiter whose patience has been over for a minute or more
	LeftSidecar LeftoverKind = "sidecar" // what belonged to a lock that is gone, without an expiry
)

// Rest waits between two calls of a [Sweeper], which the server's other clients should notice little of: for twice as long as the
// last one took, and for most at the longest. It returns ctx.Err() when ctx ends before that.
func Rest(ctx context.Context, took, most time.Duration) error {
	timer := time.NewTimer(min(2*took, most))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
