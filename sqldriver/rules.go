// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"math"
	"time"

	"github.com/hasplock/hasp/driver"
)

// rules are those of the lock (who is granted a key, who waits, what a release leaves
// behind), within a transaction in which nobody else changes the rows that they look at.
// They are the same for all kinds of databases.
type rules struct {
	table
	reading         // of the store's clock, no older than the right to change the rows
	node     string // Result.Node
	rowsMade int    // rows that were made, more or less
}

// A table is the rows of the keys that a transaction may change. Moments are on the
// store's clock.
type table interface {
	// view is what a claim has to know of its key.
	view(c driver.Claim) (*view, error)
	// choose returns the fence of a grant, and how many the grant has with those
	// just below it, which nobody else had.
	choose(v *view, r driver.VoteRequest) (fence int64, fences int, err error)

	// hold makes an owner the holder; whatever row it had is this one now.
	hold(c driver.Claim, fence int64, until time.Duration, mark bool) error
	// shares makes an owner the last of those who share the key, as hold does.
	shares(c driver.Claim, r row) error
	// setKey writes the key's own row. wrote is the largest fence granted Exclusive.
	setKey(key string, r row, wrote int64) error
	// prolong moves the expiry of a row, and its fence, to what is the later. No
	// owner: the key's own row.
	prolong(key, owner string, until time.Duration, fence int64) error
	// queue puts an owner at the end of the queue; whatever row it had is this one now.
	queue(c driver.Claim, until time.Duration) error

	// endHolders deletes the rows of holders whose leases have expired.
	endHolders(key string) error
	// endSharers deletes those of them that share the key and whose end leaves a
	// mark, and reports whether there were any.
	endSharers(key string) (bool, error)
	// remember makes the row of a holder whose lease has expired the key's own, with a mark.
	remember(key string) error
	// left brings the key's own row up to date when one who shared it, until the given
	// moment, has gone.
	left(key string, until time.Duration, mark bool) error

	// renewLease moves the expiry of a lease to the later of what it is and until.
	renewLease(r driver.RenewRequest, until time.Duration) (lease prolonged, ok bool, err error)
	// end takes away what an owner has, and returns what that was. Unless it is
	// settled the owner is remembered, also when it had nothing.
	end(r driver.WithdrawRequest) (was departed, ok bool, err error)
}

// prolonged is a lease that was prolonged.
type prolonged struct {
	expires time.Duration
	wanted  bool
	mode    driver.Mode
}

// departed is what a lease was, or a place, which has no fence.
type departed struct {
	key string
	row
}

// after is the moment d later. A TTL may be as long as anybody likes.
func (now reading) after(d time.Duration) time.Duration {
	return now.up + min(d, math.MaxInt64-now.up)
}
