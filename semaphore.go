// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"fmt"
)

// Semaphore is a key with up to n holders at a time, each with a slot of its own
// (Lease.Slot). Like a Mutex it is a handle without state.
//
// n belongs to the caller, not to the key. Where callers differ, the smallest n
// among the holders and the one who asks counts: a smaller n applies at once to
// all who come, a larger one once the holders with the smaller n are gone.
//
// With Reentrant, a Lock whose context comes from a lease of the same client, key
// and n counts that one up, with its slot. Readers of an RWMutex of the same key
// count as holders.
type Semaphore struct{ l lock }

// Semaphore returns the semaphore of a key of 1 to 512 bytes, with n slots. nil
// options mean the defaults; Cohort must be 0. An invalid key or option, an n
// below 1, or an engine without slots (ErrUnsupported) is reported on first use.
func (c *Client) Semaphore(key string, n int, o *LockOptions) *Semaphore {
	l := c.lock(key, o, Shared, n).noTurns()
	if n < 1 {
		l.err = fmt.Errorf("the semaphore has %d slots: it needs at least 1", n)
	}
	return &Semaphore{l}
}

// Lock waits for a slot and returns a lease, as Mutex.Lock does.
func (s *Semaphore) Lock(ctx context.Context) (*Lease, error) {
	return s.l.acquire(ctx, "lock", true)
}

// TryLock asks once. It returns ErrHeld (as *HeldError, with one of the holders)
// when no slot is free or somebody waits.
func (s *Semaphore) TryLock(ctx context.Context) (*Lease, error) {
	return s.l.acquire(ctx, "try lock", false)
}

// Do holds a slot while f runs, as Mutex.Do does.
func (s *Semaphore) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	_, err := s.l.do(ctx, "lock", f)
	return err
}

func (s *Semaphore) handle() *lock { return &s.l }
