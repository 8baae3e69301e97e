// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/process"
	"github.com/hasplock/hasp/internal/wait"
)

// Locker is what LockAll takes: a *Mutex, an *RWMutex (its write side), what its
// RLocker returns, a *Semaphore, or an *Election.
type Locker interface {
	Lock(ctx context.Context) (*Lease, error)
	TryLock(ctx context.Context) (*Lease, error)
	handle() *lock
}

// lock is what all lock types are: a key, and how it is to be held. It never changes.
type lock struct {
	target
	from source
	err  error // what is wrong with all that: of the first use
}

func (c *core) lock(key string, o *LockOptions, mode Mode, limit int) lock {
	l := lock{target: target{c: c, key: key, mode: mode, limit: limit}, from: store{}}
	if l.opts, l.err = o.normal(c.traits); l.err == nil && mode == Shared {
		l.err = c.unshared(limit)
	}
	l.opts.waits = wait.Terms{TTL: l.opts.TTL, Lead: l.opts.Lead, Patience: min(l.opts.TTL, maxPatience), Call: tryLimit,
		Silence: c.maxSilence, Grace: c.maxRefused}
	l.enters = c.traits.Enters && mode == Exclusive && !l.opts.NoRenew && l.opts.Lead <= min(mostLead, l.opts.TTL/4)
	if err := driver.CheckKey(key); err != nil {
		l.err = err
	}
	return l
}

// mostLead is the largest Lead with which a waiter may enter on a handover: a larger one leaves too little of a claim time.
// Nor does it enter for a lease that nothing would claim.
const mostLead = 100 * time.Millisecond

// noTurns refuses the options that are Mutex's alone.
func (l lock) noTurns() lock {
	switch {
	case l.err != nil:
	case l.opts.Cohort > 0:
		l.err = errors.New("only a Mutex can have a cohort: set Cohort to 0")
	case l.opts.Keep > 0:
		l.err = errors.New("only a Mutex can be kept: set Keep to 0")
	}
	return l
}

// acquire is Lock, or TryLock, of every lock type.
func (l *lock) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	lease, err := l.ready(ctx)
	if lease != nil || err != nil {
		return lease, l.c.fail(op, l.key, err)
	}
	return l.ask(ctx, op, wait, false)
}

// ready returns what needs no store: a lease that counts up the one ctx comes
// from, or an error. Otherwise neither.
func (l *lock) ready(ctx context.Context) (*Lease, error) {
	l.mustBeMade()
	mustHave(ctx)
	if l.err != nil {
		return nil, l.err
	}
	if ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	if h, ok := ctx.Value(holdKey{l.c, l.key}).(*hold); ok {
		return h.again(l.mode, l.limit, l.opts.Reentrant)
	}
	return nil, nil //nolint:nilnil // neither: ask the store
}

// ask has the source give a lease. partly: it is worth nothing until others are held, too.
func (l *lock) ask(ctx context.Context, op string, waits, partly bool) (*Lease, error) {
	if !l.c.calls.Enter() {
		return nil, l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.calls.Leave()
	return l.from.lease(call{&l.target, ctx, op, waits, partly})
}

// do holds the key while f runs. lost: the lease was lost before f returned.
func (l *lock) do(ctx context.Context, op string, f func(ctx context.Context, lease *Lease) error) (lost bool, err error) {
	l.mustBeMade()
	mustHave(ctx)
	if f == nil {
		panic("hasp: the function to run is nil")
	}
	if !l.c.calls.Enter() { // Close waits for f
		return false, l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.calls.Leave()
	lease, err := l.acquire(ctx, op, true)
	if err != nil {
		return false, err
	}
	if err := lease.h.run(); err != nil {
		_ = lease.release(false, driver.Unused) // which says the same
		return errors.Is(err, ErrLost), err
	}
	end := driver.Unfinished // if f panics
	defer func() { err = errors.Join(err, lease.release(true, end)) }()
	err = f(lease.Context(ctx), lease)
	end = driver.Finished
	return errors.Is(lease.h.checkDeadline(), ErrLost), err
}

// mustBeMade panics for a lock that no Client made.
func (l *lock) mustBeMade() {
	if l.c == nil {
		panic("hasp: this lock was not made by a Client: use Client.Mutex, RWMutex, Semaphore or Election")
	}
}

// mustHave panics without a context.
func mustHave(ctx context.Context) {
	if ctx == nil {
		panic("hasp: the context is nil")
	}
}

// Mutex is a key with one holder at a time. It is a handle without state: any
// number of goroutines may use one, or many for the same key, and each Lock is an
// acquisition of its own.
type Mutex struct{ l lock }

// Mutex returns the lock of a key of 1 to 512 bytes. nil options mean the
// defaults. An invalid key or option is reported on first use.
func (c *Client) Mutex(key string, o *LockOptions) *Mutex {
	m := &Mutex{c.made().lock(key, o, Exclusive, 0)}
	c.cohorts.stand(&m.l)
	return m
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

// TryLock asks once. It returns ErrHeld (as *HeldError) when another owner holds the
// key or waits for it. Only a key that another client keeps unused (LockOptions.Keep) is asked
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

// RWMutex is a key with either one writer or any number of readers. Owners are served
// in the order in which they came: consecutive readers are admitted together, and owners
// that come after a waiting writer wait for it, so that neither side starves.
//
// A Lock or RLock with a context from a lease of the same client and key
// follows these rules. With Reentrant, a read within a write or a read, and a
// write within a write, count up the same hold: it keeps its mode, deadline and
// renewal until the last of them is released. A write within a read is refused
// (ErrHeld): two readers that wait to write would wait for each other for ever.
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
		w: c.made().lock(key, o, Exclusive, 0).noTurns(),
		r: c.made().lock(key, o, Shared, 0).noTurns(),
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

// TryRLock asks once to read. It returns ErrHeld (as *HeldError) when another owner
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

// Semaphore is a key with up to n holders at a time, each with a slot of its own
// (Lease.Slot). Like a Mutex it is a handle without state.
//
// n belongs to the caller, not to the key. Where callers differ, the smallest n
// among the holders and the new request counts: a smaller n applies at once to
// all new requests, a larger one once the holders with the smaller n are gone.
//
// With Reentrant, a Lock with a context from a lease of the same client, key
// and n counts that one up, with its slot. Readers of an RWMutex of the same key
// count as holders.
type Semaphore struct{ l lock }

// Semaphore returns the semaphore of a key of 1 to 512 bytes, with n slots. nil
// options mean the defaults; Cohort must be 0. An invalid key or option, an n
// below 1, or an engine without slots (ErrUnsupported) is reported on first use.
func (c *Client) Semaphore(key string, n int, o *LockOptions) *Semaphore {
	l := c.made().lock(key, o, Shared, n).noTurns()
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
// when no slot is free or another owner waits.
func (s *Semaphore) TryLock(ctx context.Context) (*Lease, error) {
	return s.l.acquire(ctx, "try lock", false)
}

// Do holds a slot while f runs, as Mutex.Do does.
func (s *Semaphore) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	_, err := s.l.do(ctx, "lock", f)
	return err
}

func (s *Semaphore) handle() *lock { return &s.l }

// self is what labels say about this process.
var self = sync.OnceValue(func() driver.Label {
	l := driver.Label{PID: os.Getpid(), Process: process.Self()}
	l.Host, _ = os.Hostname() // a label without a host is still a label
	if u, err := user.Current(); err == nil {
		l.User = u.Username
	}
	return l
})

// labels makes the labels of a client's acquisitions.
type labels struct{ latest atomic.Pointer[labelText] }

// labelText is Label.Encode for one reason, but for the time.
type labelText struct{ reason, before, after string }

const labelTime = "2006-01-02T15:04:05.000Z"

// label describes an acquisition that begins now.
func (ls *labels) label(reason string) string {
	l := ls.latest.Load()
	if l == nil || l.reason != reason {
		ref := time.Date(2006, 1, 2, 15, 4, 5, int(time.Millisecond), time.UTC)
		who := self()
		who.Reason, who.Since = reason, ref
		l = &labelText{reason: reason}
		text := who.Encode()
		at := strings.LastIndex(text, ref.Format(labelTime)) // since comes last
		l.before, l.after = text[:at], text[at+len(labelTime):]
		ls.latest.Store(l)
	}
	b := make([]byte, 0, driver.MaxLabel) // of a fixed size, it stays on the stack
	b = time.Now().UTC().AppendFormat(append(b, l.before...), labelTime)
	return string(append(b, l.after...))
}
