// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/wait"
)

// Locker is a lock that Locks can hold together with others: a *Mutex, an *RWMutex (its write side), what its RLocker returns, a *Semaphore,
// or an *Election. Only this package implements it: in tests, use a Client on a memdriver.Store (docs/testing.md).
type Locker interface {
	Lock(ctx context.Context) (*Lease, error)
	TryLock(ctx context.Context) (*Lease, error)
	handle() *lock
}

// lock is what all lock types are: a key, and how it is to be held. It never changes, also when its handle is overwritten.
type lock struct {
	holdKey
	opts   settings
	mode   Mode
	enters bool // a waiter enters on a handover
	limit  int
	from   source
	err    error // what is wrong with the key or the options: each call returns it
}

func (client *Client) lock(key string, o *LockOptions, mode Mode, limit int) *lock {
	c := client.made()
	l := &lock{holdKey: holdKey{c, key}, mode: mode, limit: limit, from: lockCall.direct}
	if err := l.opts.set(o, c.traits); err != nil {
		l.err = mistake{err}
	} else if mode == Shared {
		l.err = c.unshared(limit)
	}
	switch {
	case l.opts.Keep > 0:
		l.from = lockCall.keeping
	case l.opts.Cohort > 0:
		l.from = lockCall.turning
	}
	l.opts.waits = wait.Terms{TTL: l.opts.TTL, Lead: l.opts.Lead, Patience: min(l.opts.TTL, maxPatience), Call: tryLimit,
		Silence: c.maxSilence, Grace: c.maxFaulty}
	l.enters = c.traits.Tells.Has(driver.TellsHandover) && mode == Exclusive && !l.opts.NoRenew && l.opts.Lead <= min(mostLead, l.opts.TTL/4) &&
		l.opts.Keep == 0 && l.opts.Cohort == 0 // a handover has no fences for turns
	if err := driver.CheckKey(key); err != nil {
		l.err = mistake{err}
	}
	return l
}

// mostLead is the largest Lead with which a waiter enters on a handover, if it is also at most a quarter of the TTL: a larger
// one leaves too little of the time in which to claim. Nor does it enter for a lease that is not renewed.
const mostLead = 100 * time.Millisecond

// noTurns refuses the options that are Mutex's alone.
func (l *lock) noTurns() *lock {
	switch {
	case l.err != nil:
	case l.opts.Cohort > 0:
		l.err = mistake{errors.New("only a Mutex can have a cohort: set Cohort to 0")}
	case l.opts.Keep > 0:
		l.err = mistake{errors.New("only a Mutex can be kept: set Keep to 0")}
	}
	return l
}

// acquire is Lock, or TryLock, of every lock type.
func (l *lock) acquire(ctx context.Context, op string, wait bool) (*Lease, error) {
	lease, err := l.ready(ctx)
	if lease != nil || err != nil {
		return lease, l.c.fail(op, l.key, err)
	}
	return l.lease(ctx, op, wait, false)
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
	if h, ok := ctx.Value(&l.holdKey).(*hold); ok {
		return h.reenter(l.mode, l.limit, l.opts.Reentrant)
	}
	return nil, nil //nolint:nilnil // neither: ask the store
}

// lease has the source give a lease. partly: it is worth nothing until others are held, too.
func (l *lock) lease(ctx context.Context, op string, waits, partly bool) (*Lease, error) {
	if !l.c.calls.Enter() {
		return nil, l.c.fail(op, l.key, ErrClosed)
	}
	defer l.c.calls.Leave()
	if err := l.c.awaitBehind(ctx, l.key); err != nil {
		return nil, l.c.fail(op, l.key, err)
	}
	return l.from(lockCall{l, ctx, op, waits, partly})
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
		_ = lease.release(false, driver.EndUnused) // which says the same
		return errors.Is(err, ErrLost), err
	}
	end := driver.EndUnfinished // if f panics
	defer func() { err = errors.Join(err, besides(err, lease.release(true, end))) }()
	err = f(lease.Context(ctx), lease)
	end = driver.EndFinished
	return errors.Is(lease.h.checkDeadline(), ErrLost), err
}

// besides returns more, unless err has that very error: a function of Do may return why its context ended.
func besides(err, more error) error {
	if errors.Is(err, more) {
		return nil
	}
	return more
}

// mustBeMade panics for a lock that no Client made.
func (l *lock) mustBeMade() {
	if l == nil {
		panic("hasp: this lock was not made by a Client: use Client.Mutex, RWMutex, Semaphore or Election")
	}
}

// Mutex is a key with one holder at a time. It is a handle without state: any
// number of goroutines may use one, or many for the same key, and each Lock is an
// acquisition of its own.
type Mutex struct{ l *lock }

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
// ctx and Options.MaxSilence allow; event.Trouble or event.HeldBack reports it.
//
// So it does, by Error.Class (of [driver.Class]), for a store that answers with an error:
//   - driver.ClassReadOnly, driver.ClassFull, once this client had a good answer of the store; before, for Options.MaxFaulty;
//   - driver.ClassLogin, and, once there was a good answer, driver.ClassDenied and driver.ClassMisconfigured, for Options.MaxFaulty;
//   - driver.ClassUnknown, which the engine cannot classify, for the TTL, 5 s at least.
//
// driver.ClassImpossible ends Lock at once, and so do driver.ClassDenied and driver.ClassMisconfigured before the first good answer.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.l.acquire(ctx, "lock", true)
}

// TryLock asks once. It returns ErrHeld (as *HeldError) when another owner holds the
// key or waits for it. If another client only keeps the key (LockOptions.Keep), TryLock
// asks that client for it, and waits for 5 ms and a few round trips.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.l.acquire(ctx, "try lock", false)
}

// Do holds the key while f runs. f's context ends when ctx does, when the lease
// may be lost, and when the client is closed; the key is released only after f
// has returned, in at most 5 seconds; in 0.3 seconds if the lease was lost, as
// Lease.Release does. The error joins f's, the loss of the lease unless f's has it,
// and that of the release, if it was waited for. If f panics, the next holder is told (Lease.Abandoned).
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	_, err := m.l.do(ctx, "lock", f)
	return err
}

func (m *Mutex) handle() *lock { return m.l }

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
type RWMutex struct{ w, r *lock }

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

// RLocker returns the read side, for Locks.
func (m *RWMutex) RLocker() Locker { return &reader{m.r} }

func (m *RWMutex) handle() *lock { return m.w }

// reader is the read side of an RWMutex.
type reader struct{ l *lock }

func (r *reader) Lock(ctx context.Context) (*Lease, error) {
	return r.l.acquire(ctx, "read lock", true)
}

func (r *reader) TryLock(ctx context.Context) (*Lease, error) {
	return r.l.acquire(ctx, "try read lock", false)
}

func (r *reader) handle() *lock { return r.l }

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
type Semaphore struct{ l *lock }

// Semaphore returns the semaphore of a key of 1 to 512 bytes, with n slots. nil
// options mean the defaults; Cohort must be 0. An invalid key or option, an n
// below 1, or an engine without slots (ErrUnsupported) is reported on first use.
func (c *Client) Semaphore(key string, n int, o *LockOptions) *Semaphore {
	l := c.lock(key, o, Shared, n).noTurns()
	if n < 1 {
		l.err = mistake{fmt.Errorf("the semaphore has %d slots: it needs at least 1", n)}
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

func (s *Semaphore) handle() *lock { return s.l }

// observeEvery is how often Leaders asks the store.
const observeEvery = time.Second

// Election is a key whose holder leads. Candidates queue; the leader resigns by
// releasing its lease. Like a Mutex it is a handle without state, and a Mutex of
// the same key excludes the leader.
type Election struct{ l *lock }

// Election returns the election of a key of 1 to 512 bytes. nil options mean the
// defaults; Cohort must be 0. An invalid key or option is reported on first use.
//
// With LockOptions.Lead the leader's contexts end that long before another can
// lead; with MaxHold a leader's term is bounded.
func (c *Client) Election(key string, o *LockOptions) *Election {
	return &Election{c.lock(key, o, Exclusive, 0).noTurns()}
}

// Lock campaigns: it waits until it leads, as Mutex.Lock does. The lease's contexts end
// before another can lead, and its fence is larger than that of each earlier
// leader. Release resigns.
func (e *Election) Lock(ctx context.Context) (*Lease, error) {
	return e.l.acquire(ctx, "lock", true)
}

// TryLock leads if there is no leader and no waiter, as Mutex.TryLock does.
func (e *Election) TryLock(ctx context.Context) (*Lease, error) {
	return e.l.acquire(ctx, "try lock", false)
}

// Lead waits until it leads, as Lock does, and runs f while it leads. f's context ends when ctx does,
// before another can lead, and when the client is closed; Lead resigns only after
// f has returned.
//
// If the lease was lost before f returned, or before it began, f's result is dropped
// (event.Lost says why), and Lead waits again. Otherwise, and once ctx has ended, it returns
// f's error joined with that of the release. An error of Lock ends it, too.
func (e *Election) Lead(ctx context.Context, f func(ctx context.Context, lease *Lease) error) error {
	for {
		lost, err := e.l.do(ctx, "lock", f)
		if !lost || ctx.Err() != nil {
			return err
		}
	}
}

// Leader returns what the store knows of the key, whose Holder leads; ErrNotHeld when there is no leader. Holders
// that share the key do not lead. The answer may be out of date when it arrives: acting on it is safe only if you check the fence.
func (e *Election) Leader(ctx context.Context) (Info, error) {
	leader, err := e.leader(ctx)
	if err == nil && !leader.Held {
		err = ErrNotHeld
	}
	return leader, e.l.c.fail("leader", e.l.key, err)
}

func (e *Election) leader(ctx context.Context) (Info, error) {
	e.l.mustBeMade()
	mustHave(ctx)
	none := Info{Key: e.l.key}
	if e.l.err != nil {
		return none, e.l.err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	info, err := e.l.c.inspect(ctx, e.l.key)
	if err != nil || !info.Held || info.Holder.Mode != Exclusive {
		return none, err
	}
	return info, nil
}

// Leaders yields what Leader returns, at once and after each change; Info.Held is false when there is no leader. It asks the store every
// second, so a leader between two questions may be missed. After an error that Lock would wait through, the sequence goes on; any other
// error is its last element. It ends with ctx.
func (e *Election) Leaders(ctx context.Context) iter.Seq2[Info, error] {
	e.l.mustBeMade()
	mustHave(ctx)
	return func(yield func(Info, error) bool) {
		every := time.NewTicker(observeEvery)
		defer every.Stop()
		var last Info // of no key: different from any
		for ctx.Err() == nil {
			leader, err := e.leader(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				again := !errors.Is(err, ErrClosed) && e.l.c.trouble(err) != wait.Permanent
				if !yield(Info{Key: e.l.key}, e.l.c.fail("leaders", e.l.key, err)) || !again {
					return
				}
			case leader.Key != last.Key || leader.Holder.Owner != last.Holder.Owner ||
				leader.Holder.Label != last.Holder.Label || leader.Fence != last.Fence:
				if last = leader; !yield(leader, nil) {
					return
				}
			}
			select {
			case <-every.C:
			case <-ctx.Done():
			case <-e.l.c.calls.Open.Done():
			}
		}
	}
}

func (e *Election) handle() *lock { return e.l }
