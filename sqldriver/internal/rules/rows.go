// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package rules decides what becomes of a request: which owner is granted a key, which waits,
// and what a release leaves behind. It is given the rows of a key as a driver read them, and
// says how they are to be written. It has no SQL, no clock and no I/O, and is the same for all
// kinds of databases. A driver carries a Plan out in the transaction that read the View, or in one
// that finds, before it writes, that the View still holds.
package rules

import (
	"math"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// The kinds of rows.
const (
	Held   = "held"  // holds the key
	Queued = "queue" // has a place in the queue
	Gone   = "gone"  // was released: a late Try is refused
)

const (
	// GoneFor is how long a released owner is refused: longer than a request of its can be
	// under way.
	GoneFor = driver.MaxTransit
	// KeepFence is how long the newest fence of a key is remembered after the key was held: a
	// minute, and as much longer as it may be ahead of the clock. The mark of a lease that was
	// not released lasts as long.
	KeepFence = time.Minute + voting.MaxFenceSkew
)

// Now is a reading of the store's clock, no older than the right to change the rows.
type Now struct {
	At   time.Duration // what the times of rows are compared with
	Wall int64         // the wall clock in microseconds
}

// After is the moment d later. A TTL may be as long as a caller likes.
func (now Now) After(d time.Duration) time.Duration {
	return now.At + min(d, math.MaxInt64-now.At)
}

// Row is one owner's row of a key; the zero value is no row. A key that is shared has a row of
// its own, without an owner, where an exclusive holder has its lease: so the two cannot be there
// at once, and an owner that wants the key alone needs to look at one row. It ends when the last
// lease of those that share the key ends, whose rows stand beside it.
type Row struct {
	Kind, Owner, Label string
	Fence              int64
	Since, Expires     time.Duration // on the store's clock
	Mode               driver.Mode
	Limit              int // Claim.Limit; of the key's own row, the smallest of those that share it
	Slot               int
	Mark               bool // its owner was granted an abandoned key; of the key's own row, the key is abandoned
}

// Live reports whether the row is there, and has not expired.
func (r Row) Live(now time.Duration) bool { return r.Kind != "" && r.Expires > now }

// WorthWriting reports whether a sign of life of a place is worth a write, which costs a sync of
// the disk: a quarter of the place's patience has passed since the last.
func (r Row) WorthWriting(patience, now time.Duration) bool {
	return r.Expires-now < patience-patience/4
}

// Holder describes the row's owner. The store's clock has no date: the wall clock of today
// stands in, for people to read.
func (r Row) Holder(now Now) driver.Holder {
	h := driver.Holder{Owner: r.Owner, Label: r.Label, Mode: r.Mode, Limit: r.Limit}
	if r.Kind == Held {
		h.Since, h.Slot = time.UnixMicro(now.Wall).Add(r.Since-now.At), r.Slot
	}
	return h
}

// Holding describes the row of a holder.
func (r Row) Holding(now Now) driver.Holding {
	return driver.Holding{Holder: r.Holder(now), Fence: uint64(r.Fence), Left: r.Expires - now.At}
}

// View is all that a Try needs to know of a key.
type View struct {
	Floors Floors        // zero where no fence is proposed
	Run    string        // Result.Run
	Holder Row           // its lease may be over; of a shared key, the key's own row
	Own    Row           // the asking owner's, which may be over
	Gone   int64         // the largest fence that was given up
	Ahead  int           // live places before its own
	Hints  bool          // its place gets hints
	Hears  bool          // its owner hears them, so a place that is written now gets them
	Behind bool          // another waiter of the client, whose turn comes before, wakes it
	Took   time.Duration // what it took to ask, a wait for a connection included; 0 of a file

	// Of a Try that would share the key:
	Barred bool  // an owner before it in the queue wants the key alone
	Least  int   // the smallest limit of those before it and of its own, 0: none
	Wrote  int64 // the largest fence granted Exclusive
	Ended  bool  // leases that shared the key are over, and their end leaves a mark
	// Beside are the owners that share the key: all where their number decides, else one to
	// be named.
	Beside []Row
}

// Shared reports whether the holder's row is the key's own.
func (v *View) Shared() bool { return v.Holder.Kind != "" && v.Holder.Owner == "" }

// Mode is how an owner holds the key, if it does.
func (v *View) Mode(owner string) driver.Mode {
	if v.Holder.Owner == owner {
		return driver.Exclusive
	}
	return driver.Shared
}

// Needs is how many of those that share the key c must know, -1 for all.
func (v *View) Needs(c driver.Claim, now time.Duration) int {
	switch {
	case !v.Shared() || !v.Holder.Live(now):
		return 0
	case c.Mode == driver.Shared && (v.Least > 0 || v.Holder.Limit > 0):
		return -1
	case c.Mode == driver.Shared && !v.Barred: // it is granted the key
		return 0
	}
	return 1
}

// abandoned reports whether the key has the mark of Result.Abandoned. Of leases that are over
// the key's own row says only that some of them leave one.
func (v *View) abandoned(now time.Duration) bool {
	h := v.Holder
	return h.Mark && v.Shared() || h.Kind != "" && !h.Live(now) && (h.Owner != "" || h.Limit > 0)
}

// admits reports whether c can have the key beside its holders. Waiters before it that can have
// it too, and have not asked yet, do not delay it: they count as holders.
func (v *View) admits(c driver.Claim, now time.Duration) bool {
	if c.Mode != driver.Shared {
		return v.Ahead == 0 && !v.Holder.Live(now)
	}
	return !v.Barred && (v.Shared() || !v.Holder.Live(now)) && room(v.Beside, v.Ahead, v.Least)
}

// room reports whether another owner can share a key, with so many others that are about to.
// Where no owner has a limit, those that share it need not be known.
func room(beside []Row, others, limit int) bool {
	limit = least(beside, limit)
	return limit == 0 || len(beside)+others < limit
}

// least returns the smallest limit.
func least(beside []Row, limit int) int {
	for _, h := range beside {
		limit = Smaller(limit, h.Limit)
	}
	return limit
}

// Smaller returns the smaller limit, where 0 is none.
func Smaller(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// freeSlot is the smallest number that no holder has. It is below the limit where there is room.
func freeSlot(beside []Row, limit int) int {
	if limit == 0 {
		return 0
	}
	taken := make([]bool, len(beside)+1)
	for _, h := range beside {
		if h.Limit > 0 && h.Slot < len(taken) {
			taken[h.Slot] = true
		}
	}
	return slices.Index(taken, false)
}
