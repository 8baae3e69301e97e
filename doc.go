// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package hasp gives a program distributed locks: one holder at a time, or as
// many as may share a key, served in order where the store has a queue. A timeout frees
// the key when its holder crashes, and each lease has a number that a storage system can check (a fence).
//
//	locks, err := hasp.New(redisdriver.New(rdb, nil), nil)
//	...
//	err = locks.Mutex("orders/42", nil).Do(ctx, func(ctx context.Context, lease *hasp.Lease) error {
//		return save(ctx, order, lease.Fence())
//	})
//
// Do waits for its turn, holds the key while the function runs, ends the function's
// context before the key can go to another (see below), and releases the key afterwards. Where a
// lease has to outlive a function, Lock returns it:
//
//	lease, err := locks.Mutex("orders/42", nil).Lock(ctx)
//	...
//	defer lease.Release()
//	err = save(lease.Context(ctx), order, lease.Fence())
//	return errors.Join(err, lease.Err()) // ErrLost, if it was lost
//
// # A lease, not a mutex
//
// What Lock returns is the right to a key for a limited time, so that a crash
// of the holder frees the key. It is renewed in the background, every third of
// its TTL, and can still be lost: the store is unreachable for too long, or the
// process is paused. Then the lease's contexts end with the cause ErrLost,
// before the store gives the key to another, whatever the network does: while the
// store keeps its data, and its clock is not stepped (docs/guarantees.md#what-breaks-exclusion).
//
// That is enough for efficiency, where work done twice costs money. For
// correctness, where it corrupts data, no lock with a time limit is enough, on no
// store: a process can be paused between checking and writing. Give lease.Fence to
// whatever stores the data, and let it refuse a smaller fence than the largest
// it saw. docs/guarantees.md says what each engine promises, and has a guard for
// SQL to copy.
//
// # Lock types
//
// A Mutex has one holder, an RWMutex one writer or many readers, a Semaphore n
// holders with a slot each, an Election a leader. Locks hold several of them,
// or none. A write lease can be downgraded; each lease says whether the previous
// holder failed to release it (Abandoned), and whether a waiter is queued (Wanted).
//
// # Three contexts
//
// The context given to Lock bounds the wait, not the hold. The context from
// Lease.Context ends with the lease. Release needs none: it works
// after both have ended, and has a limit of its own.
//
// # Errors
//
// errors.Is finds ErrHeld, ErrLost, ErrNotHeld, ErrUnsupported, ErrClosed, and
// the error of a context that ended a wait, in the *Error that every operation
// returns. Its Class says what kind of trouble a store is in. [event.LogTo] logs what
// happens in the background.
//
// # Engines
//
// Each engine that needs a client library is a module of its own: redisdriver,
// etcddriver, zkdriver, sqldriver; open takes a URL of any. Package quorum combines
// several drivers, and package memdriver is for tests. This module needs the standard
// library and golang.org/x/sys only.
package hasp
