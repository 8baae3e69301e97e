// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "context"

// RWMutex is a key with either one writer or any number of readers. Whoever comes
// first is served first: consecutive readers are admitted together, and those who
// come after a waiting writer wait for it, so that neither side starves.
//
// A Lock or RLock whose context comes from a lease of the same client and key
// follows these rules. With Reentrant, a read within a write or a read, and a
// write within a write, count up the same hold: it keeps its mode, deadline and
// renewal until the last of them is released. A write within a read is refused
// (ErrHeld): two who read and wait to write would wait for each other for ever.
// Take the write first, and Downgrade it.
//
// Like a Mutex it is a handle without state. A Mutex or an Election of the same
// key is a writer.
type RWMutex struct{ w, r lock }

// RWMutex returns the read-write lock of a key of 1 to 512 bytes. nil options
// mean the defaults; Cohort must be 0. An invalid key or option, or an engine that
// cannot share a key (ErrUnsupported), is reported on first use.
func (c *Client) RWMutex(key string, o *LockOptions) *RWMutex {
	return &RWMutex{
		w: c.lock(key, o, Exclusive, 0).noTurns(),
		r: c.lock(key, o, Shared, 0).noTurns(),
	}
}

// Lock waits until the key can be written and returns a lease, as Mutex.Lock
// does.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) {
	return m.w.acquire(ctx, "lock", true)
}

// TryLock asks once to write, as Mutex.TryLock does.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.w.acquire(ctx, "try lock", false)
}

// Do holds the key to write while f runs, as Mutex.Do does.
func (m *RWMutex) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	_, err := m.w.do(ctx, "lock", f)
	return err
}

// RLock waits until the key can be read and returns a lease, as Mutex.Lock
// does.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.r.acquire(ctx, "read lock", true)
}

// TryRLock asks once to read. It returns ErrHeld (as *HeldError) when somebody
// writes or waits.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.r.acquire(ctx, "try read lock", false)
}

// RDo holds the key to read while f runs, as Mutex.Do does.
func (m *RWMutex) RDo(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	_, err := m.r.do(ctx, "read lock", f)
	return err
}

// RLocker returns the read side, for LockAll.
func (m *RWMutex) RLocker() Locker { return &reader{m.r} }

func (m *RWMutex) handle() *lock { return &m.w }

// reader is the read side of an RWMutex.
type reader struct{ l lock }

func (r *reader) Lock(ctx context.Context) (*Lease, error) {
	return r.l.acquire(ctx, "read lock", true)
}

func (r *reader) TryLock(ctx context.Context) (*Lease, error) {
	return r.l.acquire(ctx, "try read lock", false)
}

func (r *reader) handle() *lock { return &r.l }
