// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "context"

// Mutex is a key that one holder has at a time. It is a handle without state:
// any number of goroutines may use one, or many for the same key, and each
// Lock is an acquisition of its own.
type Mutex struct{ l lock }

// Mutex returns the lock of a key of 1 to 512 bytes. nil options mean the
// defaults. What is wrong with either is the error of the first use.
func (c *Client) Mutex(key string, o *LockOptions) *Mutex {
	return &Mutex{c.lock(key, o, Exclusive, 0)}
}

// Lock waits for its turn and returns a lease.
//
// ctx bounds the wait, not the hold. When it ends first, the error is its
// error and what kept Lock waiting, both found with errors.Is and errors.As,
// and nothing of this attempt stays in the store. A store that is away
// or held back is waited for, too, as long as ctx (and Options.MaxSilence) says;
// EventTrouble tells of it. One that refuses for good (Error.Class
// ClassDenied, ClassMisconfigured, ClassFull, ClassReadOnly) ends Lock at once, errors
// that the engine does not know (ClassUnknown) after the TTL, 5 s at least.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.l.acquire(ctx, "lock", true)
}

// TryLock asks once. It returns ErrHeld (as *HeldError) when somebody holds
// the key, or stands in line for it.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.l.acquire(ctx, "try lock", false)
}

// Do holds the key while f runs. f's context ends when ctx does, when the
// lease may be lost, and when the client is closed; the key is released only
// after f returned. The error joins f's, the loss of the lease, and the
// release's. If f panics, the next holder is told (Lease.Abandoned).
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	return m.l.do(ctx, "lock", f)
}

func (m *Mutex) asked() *lock { return &m.l }
