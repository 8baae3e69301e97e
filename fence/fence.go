// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package fence is the storage's side of fencing tokens: it refuses what comes with a
// smaller fence than a write before.
//
// A lock with a time limit can be lost while its holder is stopped, and what the holder
// writes when it goes on comes late: after the writes of a later holder, which has a larger
// fence. Only the storage can tell. So each storage keeps the largest fence that it was
// written with, and compares in the same atomic step as it writes:
//
//	Table, Column    rows of a database, in the caller's own transaction
//	Memory           what one process keeps in memory
//	File             a file, replaced as a whole
//	Handler          what a server of HTTP keeps, for clients that send a fence with Transport
//
// A fence as large as the newest is accepted, since a holder may write more than once. A read
// is refused below the largest fence of a write, and raises nothing: over Redlock readers have no order
// among themselves.
//
// Fences of one storage must be those of one key of one store of locks. The algorithm is
// that of Martin Kleppmann, "How to do distributed locking" (2016).
package fence

import (
	"errors"
	"fmt"
	"math"
)

// ErrStale is what a guard's refusal is, by errors.Is: a later holder has written. A caller that
// gets it has lost its lease, and should stop.
var ErrStale = errors.New("a later holder of the lock has written")

// StaleError is the refusal of a guard. It is an [ErrStale].
type StaleError struct {
	Resource string // what was to be written or read
	Fence    uint64 // that of the caller
	Newest   uint64 // the largest that it was written with
}

// Error says what happened, and what to do.
func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: %q was written with fence %d: fence %d comes too late, its lock was lost; stop, and write nothing", e.Resource, e.Newest, e.Fence)
}

// Is makes it an [ErrStale].
func (*StaleError) Is(target error) bool { return target == ErrStale }

// Check compares a fence with the largest that a resource was written with: for guards of
// storage that this package does not know. It returns a *[StaleError], or an error if the fence is none:
// 0, or more than databases can keep.
func Check(resource string, fence, newest uint64) error {
	switch {
	case fence == 0 || fence > math.MaxInt64:
		return fmt.Errorf("fence: %q: %d is no fence: it must be 1 to %d; take that of the lease", resource, fence, uint64(math.MaxInt64))
	case fence < newest:
		return &StaleError{resource, fence, newest}
	}
	return nil
}
