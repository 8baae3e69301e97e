// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "context"

// Mutex is a key with one holder at a time. It is a handle without state: any
// number of goroutines may use one, or many for the same key, and each Lock is an
// acquisition of its own.
type Mutex struct{ l lock }

// Mutex returns the lock of a key of 1 to 512 bytes. nil options mean the
// defaults. An invalid key or option is reported on first use.
func (c *Client) Mutex(key string, o *LockOptions) *Mutex {
	return &Mutex{c.lock(key, o, Exclusive, 0)}
}

// Lock waits for its turn and returns a lease.
//
// ctx bounds the wait, not the hold. If it ends first, the error is its error
// joined with what kept Lock waiting, both found with errors.Is and errors.As, and
// whatever this attempt left in the store is cleaned up, in the background if need
// be. Lock also waits for a store that is unreachable or held back, as long as
// ctx and Options.MaxSilence allow; EventTrouble or EventHeldBack reports it.
//
// So it does, by Error.Class, for a store that answers with an error:
//   - ClassReadOnly, ClassFull, once this client had a good answer of the store; before, for Options.MaxRefused;
//   - ClassLogin, and, once there was a good answer, ClassDenied and ClassMisconfigured, for Options.MaxRefused;
//   - ClassUnknown, which the engine cannot classify, for the TTL, 5 s at least.
//
// ClassImpossible ends Lock at once, and so do ClassDenied and ClassMisconfigured before the first good answer.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.l.acquire(ctx, "lock", true)
}

// TryLock asks once. It returns ErrHeld (as *HeldError) when somebody holds the
// key or waits for it. Only a key that another client keeps for nobody (LockOptions.Keep) is asked
// for, and waited for as long as that client may need to give it back: 5 ms and a few round trips.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.l.acquire(ctx, "try lock", false)
}

// Do holds the key while f runs. f's context ends when ctx does, when the lease
// may be lost, and when the client is closed; the key is released only after f
// has returned. The error joins f's, the loss of the lease, and that of the
// release. If f panics, the next holder is told (Lease.Abandoned).
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	_, err := m.l.do(ctx, "lock", f)
	return err
}

func (m *Mutex) handle() *lock { return &m.l }
