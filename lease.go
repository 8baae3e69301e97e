// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/internal/wait"
)

// Lease is the right to a key until it is released or lost. It is renewed in the
// background unless NoRenew was set. All methods may be called by many goroutines
// at once.
//
// A lease that is dropped without Release is no longer renewed once the garbage
// collector has taken it, and expires with its TTL; event.Forgotten reports it. It
// counts as in use while one of its contexts has not ended, and for good after
// Done or Wanted was called.
//
// A lease has a time limit, so it cannot protect data by itself: a process that
// was paused does not know that it lost the lease until it runs again. What a
// lease protects should compare Fence.
//
// A Lease must not be copied: go vet finds a copy, and its Release panics.
type Lease struct {
	_        noCopy
	h        *hold
	mode     Mode   // guarded by h.mu, as released
	released bool   // as mode
	next     *Lease // of handles.fresh
	taken    *origin
	left     bool // by another holder of the same work (Once)
}

// noCopy has go vet find what is copied.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// hold is what the lease is of.
func (l *Lease) hold() *hold {
	if l == nil || l.h == nil {
		panic("hasp: this Lease was not taken: use the pointer that Lock or TryLock returned")
	}
	return l.h
}

// Key returns the key.
func (l *Lease) Key() string { return l.hold().req.Key }

// Owner returns the 26 characters that name this acquisition in the store, and
// that Operator.Break and Adopt ask for.
func (l *Lease) Owner() string { return l.hold().req.Owner }

// Fence returns the fencing token: larger for each later holder of the key.
// Storage that remembers the largest it saw, and refuses smaller ones, is safe from
// holders that lost the key without knowing. Leases that share the key have
// fences above those of all that held it Exclusive before; over a quorum they have
// no order among themselves, and may be equal.
func (l *Lease) Fence() uint64 { return l.hold().req.Fence }

// Mode says what the lease is for: Exclusive to write, Shared to read or to have a
// slot. A read within a write of the same context is Shared, though no other owner
// can have the key meanwhile.
func (l *Lease) Mode() Mode {
	h := l.hold()
	h.mu.Lock()
	defer h.mu.Unlock()
	return l.mode
}

// Slot returns which of a Semaphore's n slots this is: 0 to n-1, the smallest that
// was free. At any instant no two holders have the same one, so that it can
// name a shard or a port. 0 for a lease of another kind.
func (l *Lease) Slot() int { return l.hold().grant.slot }

// Abandoned says that a previous holder did not release the key: it died, lost
// the lease, or its client was closed before it was done; or a waiter was handed the key and
// vanished, and may have begun its work. What the key protects
// may need repair. Readers see the mark but do not clear it; any other holder
// that saw it clears it by releasing or downgrading its lease. It is never true
// of an adopted lease.
func (l *Lease) Abandoned() bool { return l.hold().grant.abandoned || l.left }

// Wanted returns a channel that is closed once a waiter is in the queue for the
// key, so that a long holder can finish early. It stays closed. Where the engine can
// ([driver.TellsWanted]) the first call has the lease renewed at once, and from then on the
// store tells within a round trip; if its message is lost, or the engine cannot, it is
// learned at a renewal, up to a third of the TTL later. With NoRenew nothing is asked before
// Extend is called. Waiters for a turn in this lease's own cohort do not count.
func (l *Lease) Wanted() <-chan struct{} { return l.hold().wish().Done() }

// Deadline returns the instant after which the lease may not be relied on, as of
// now: renewal moves it. It is before the store gives the key to another, while the store keeps
// its data and its clock is not stepped (docs/guarantees.md#what-breaks-exclusion),
// and can be compared only with this process's clock. After a wait it may be less than the TTL ahead at
// first, half a second with Redis: until the first renewal, ten milliseconds later.
func (l *Lease) Deadline() time.Time {
	h := l.hold()
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.life.Left(h.c.now()))
}

// Err returns nil while the lease can be relied on. It checks the clock, not the
// store: a process that just woke up learns the truth before it acts. Otherwise
// the error is ErrLost (and also ErrNotHeld when the store said that the key is
// another's), ErrClosed when the client was closed, or ErrNotHeld alone after
// Release.
func (l *Lease) Err() error {
	h := l.hold()
	h.mu.Lock()
	released := l.released
	h.mu.Unlock()
	if released {
		return l.hold().c.fail("hold", l.hold().req.Key, fmt.Errorf("%w: this lease was released", ErrNotHeld))
	}
	return l.hold().checkDeadline()
}

// Done returns a channel that is closed when the hold ends: lost (Lead before the
// deadline), released (re-entrant leases share it: by the last Release), or its
// client closed.
func (l *Lease) Done() <-chan struct{} {
	return l.hold().end(true)
}

// Extend sets the lease to last at least ttl from now, and asks the store once. A ttl
// larger than the lease's becomes its TTL for renewals. ErrNotHeld and ErrLost say
// that the lease has ended; on any other error the outcome is unknown, and the
// lease stands as it was.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	h := l.hold()
	if err := l.Err(); err != nil {
		return err
	}
	if ttl == 0 { // in options that means the default
		return h.c.fail("extend", h.req.Key, mistake{errors.New("the TTL is 0: it must be positive")})
	}
	if err := new(settings).set(&LockOptions{TTL: ttl, Lead: h.opts.Lead}, h.c.traits); err != nil {
		return h.c.fail("extend", h.req.Key, mistake{err})
	}
	ctx, done, err := h.c.calls.During(ctx)
	if err != nil {
		return h.c.fail("extend", h.req.Key, err)
	}
	defer done()
	return h.c.fail("extend", h.req.Key, h.extend(ctx, ttl))
}

// Release gives the key back, even when every context has ended. It takes at most
// 5 seconds, and tells the store that the lease has ended even when it was lost;
// then the error is ErrLost, and after 0.3 seconds that goes on in the background. If the store does not confirm that, the error says so
// (or event.Released, with LockOptions.ReleaseBehind), and the key is free when the TTL is over. Releasing twice is harmless.
func (l *Lease) Release() error { return l.giveBack(driver.EndFinished) }

// Abandon is Release for work that was not finished, as that of a process which died: the next
// holder is told (Abandoned), where the engine can.
func (l *Lease) Abandon() error { return l.giveBack(driver.EndUnfinished) }

func (l *Lease) giveBack(end driver.End) error {
	if !l.hold().c.calls.Enter() { // Close releases
		return cmp.Or(l.Err(), l.hold().c.fail("release", l.hold().req.Key, ErrClosed))
	}
	defer l.hold().c.calls.Leave()
	return l.release(false, end)
}

// takenHere notes that the caller takes a lease that was another's turn.
func (l *Lease) takenHere() {
	if o := l.h.c.origin(); o != nil {
		l.h.mu.Lock()
		l.taken = o
		l.h.mu.Unlock()
	}
}

// Downgrade makes a write lease a read lease, with no moment in which the key is
// free; its fence, contexts and renewal stay. Waiting readers are admitted. It
// asks the store until ctx ends, but no longer than the TTL (5 s at least), and
// counts as an Extend to the TTL. A lease that is Shared already needs nothing: nil.
// While another write lease of the same hold stands (Reentrant), it is refused with
// ErrHeld.
//
// ErrLost says that the lease has ended; ErrUnsupported, before the store is asked,
// that the engine cannot share a key. On any other error the store may or may not
// know: the lease is Shared all the same, so that nothing may be written under it
// any more, and another Downgrade asks again.
func (l *Lease) Downgrade(ctx context.Context) error {
	h := l.h
	err := l.Err()
	if err == nil {
		err = h.c.unshared(0)
	}
	if err != nil {
		return h.c.fail("downgrade", h.req.Key, err)
	}
	ctx, done, err := h.c.calls.During(ctx)
	if err != nil {
		return h.c.fail("downgrade", h.req.Key, err)
	}
	defer done()
	if ctx.Err() != nil {
		return h.c.fail("downgrade", h.req.Key, endOf(ctx))
	}
	ask, err := l.beginConversion()
	if ask {
		err = h.c.fail("downgrade", h.req.Key, h.convert(ctx))
		h.emit(event.Downgraded, func(e *event.Event) { e.Err = err })
	}
	return h.c.fail("downgrade", h.req.Key, err)
}

// beginConversion makes the lease, and the hold, count as Shared. That comes before the
// store is asked: the answer may be lost. ask is false when there is nothing to
// ask for.
func (l *Lease) beginConversion() (ask bool, err error) {
	h := l.h
	h.mu.Lock()
	if ask, err = h.life.Convert(l.mode == Exclusive, l.released); !ask {
		h.mu.Unlock()
		return false, err
	}
	l.mode, h.req.Mode = Shared, Shared
	if h.req.Wanted != nil { // its cohort hears of it no more
		h.req.Wanted, h.req.Keeps = nil, false
		if h.signals.wishCtx != nil {
			h.life.Listen()
		}
	}
	after := h.takeAfter() // the next call writes
	h.mu.Unlock()
	if after != nil {
		after.over()
	}
	return true, nil
}

// convert tells the store of a downgrade, until it answers.
func (h *hold) convert(ctx context.Context) error {
	bears := time.Now().Add(max(h.opts.TTL, tryLimit))
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for {
		err := h.convertOnce(ctx)
		if err == nil {
			return nil
		}
		if h.c.trouble(err) != wait.Permanent && time.Now().Before(bears) {
			timer := time.NewTimer(pause.Next())
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
			case <-h.end(false):
			}
			timer.Stop()
		}
		if end := h.checkStands(); end != nil {
			return end
		}
		if ctx.Err() != nil {
			err = &WaitError{End: endOf(ctx), Why: err}
		}
		return fmt.Errorf("the lease counts as shared from now on, but the store may not know; call Downgrade again to tell it: %w", err)
	}
}

func (h *hold) convertOnce(ctx context.Context) error {
	h.mu.Lock()
	req := driver.TryRequest{Claim: h.req.Claim, TTL: h.life.TTL(), Convert: true, Fence: h.req.Fence}
	h.mu.Unlock()
	limit := min(req.TTL/3, tryLimit)
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := h.c.now()
	res, storeErr, err := h.c.tryStore(own, req)
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		err = &silentError{limit: limit}
	}
	if err = cmp.Or(err, storeErr); err == nil && !res.Granted {
		h.lose(ErrNotHeld)
		return h.checkStands()
	}
	if err != nil {
		return cmp.Or(h.checkStands(), err)
	}
	now := h.c.now()
	h.mu.Lock()
	h.life.Converted(start, now, res.TTL)
	h.mu.Unlock()
	h.c.renewer.Reschedule(h, now)
	return h.checkStands()
}

// signals are what the callers that share a hold hear of: its end, and that a
// waiter has joined the queue. The hold's mu guards them.
type signals struct {
	done    chan struct{} // closed at the end; made on demand
	ctxs    map[*leaseCtx]struct{}
	wishCtx context.Context // ends then; made on demand
	wishEnd context.CancelFunc
}

func (s *signals) add(x *leaseCtx) {
	if s.ctxs == nil {
		s.ctxs = make(map[*leaseCtx]struct{})
	}
	s.ctxs[x] = struct{}{}
}

// take removes and returns the contexts of one lease, or all; endAll must then
// end them.
func (s *signals) take(of *Lease) []*leaseCtx {
	var taken []*leaseCtx
	for x := range s.ctxs {
		if of == nil || x.lease == of {
			taken = append(taken, x)
			delete(s.ctxs, x)
		}
	}
	return taken
}

// end closes the channel of the end.
func (s *signals) end() {
	if s.done != nil {
		close(s.done)
	}
}

// told returns what tells that a waiter stands in the queue, to be called without the hold's
// mu; nil when there is nothing to tell.
func (s *signals) told(wanted bool) context.CancelFunc {
	if wanted {
		return s.wishEnd
	}
	return nil
}

// wish returns a context that ends once another owner waits for the key. The first call has
// the store asked to tell of it, by a renewal that is sent now.
func (h *hold) wish() context.Context {
	h.mu.Lock()
	h.handles.pinned = true
	s := &h.signals
	if s.wishCtx == nil {
		s.wishCtx, s.wishEnd = context.WithCancel(context.Background())
		if h.life.Wanted() {
			s.wishEnd()
		}
		if h.req.Wanted == nil && h.c.traits.Tells.Has(driver.TellsWanted) { // otherwise it was asked
			h.life.Listen()
		}
	}
	ctx, ask := s.wishCtx, h.life.Asking()
	h.mu.Unlock()
	if ask {
		h.c.renewer.Reschedule(h, h.c.now())
	}
	return ctx
}

// hear takes the store's message that a waiter joined the queue.
func (h *hold) hear() {
	if tell := h.noteWanted(); tell != nil {
		tell()
	}
}

// noteWanted notes that another owner waits, also for a turn that comes after this one, and returns what tells of it.
func (h *hold) noteWanted() context.CancelFunc {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.life.Stands() && h.life.State() != lifetime.Passing {
		return nil
	}
	return h.signals.told(h.life.Want(true))
}

// end returns a channel that is closed when the hold is over. pin: a goroutine
// may wait for it that keeps nothing else of the lease.
func (h *hold) end(pin bool) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles.pinned = h.handles.pinned || pin
	s := &h.signals
	if s.done == nil {
		s.done = make(chan struct{})
		if !h.life.Stands() {
			close(s.done)
		}
	}
	return s.done
}

// leaseCtx is a context that ends with its lease.
type leaseCtx struct {
	context.Context
	lease  *Lease
	cancel context.CancelCauseFunc
	stop   func() bool // forgets what watches the parent
}

// holdKey is a key of a client. A pointer to it asks a context for the client's hold of the key, without an allocation.
type holdKey struct {
	c   *core
	key string
}

// innermostKey asks a context for the innermost of the leases' contexts that it is.
type innermostKey struct{}

// Err looks at the clock, as Lease.Err does, and so do the leases' contexts that this one
// is within: a process that was stopped may ask before the renewer has run. The caller may
// hold mutexes of its own, so another goroutine tells the observer.
func (x *leaseCtx) Err() error {
	if err := x.Context.Err(); err != nil {
		return err // Done is closed, and a context that begins asks then, under the hold's lock
	}
	h := x.lease.h
	if h.expired() {
		if tell := h.declareLost(nil); tell != nil {
			go tell()
		}
	}
	if end := h.whyEnded(); end != nil {
		x.cancel(end) // the goroutine that declared it may not have come so far
	}
	if outer, ok := x.Context.Value(innermostKey{}).(*leaseCtx); ok {
		_ = outer.Err() // its end is this one's, too
	}
	return x.Context.Err()
}

// Value answers holdKey and innermostKey, and passes on the rest.
func (x *leaseCtx) Value(k any) any {
	if k == any(innermostKey{}) {
		return x
	}
	h := x.lease.h
	if k, ok := k.(*holdKey); ok && *k == (holdKey{h.c, h.req.Key}) && !x.lease.wasReleased() {
		return h
	}
	return x.Context.Value(k)
}

// Context returns a context that ends with parent, with Release of this lease
// (cause context.Canceled), with the client (ErrClosed), and Lead before the
// lease's deadline (ErrLost), whatever the store or the network does;
// context.Cause says which. Its own Err looks at the clock, as Lease.Err does; those of
// contexts derived from it do not. It costs memory until one of these happens.
func (l *Lease) Context(parent context.Context) context.Context {
	h := l.hold()
	mustHave(parent)
	ctx, cancel := context.WithCancelCause(parent)
	x := &leaseCtx{Context: ctx, lease: l, cancel: cancel}
	_ = h.checkDeadline()
	h.mu.Lock()
	end := h.life.Why()
	if l.released {
		end = context.Canceled
	}
	if end == nil {
		h.signals.add(x)
		x.stop = context.AfterFunc(parent, x.forget)
	}
	h.mu.Unlock()
	if end != nil {
		cancel(end)
	}
	return x
}

// forget frees what the lease keeps of a context once its parent has ended.
func (x *leaseCtx) forget() {
	h := x.lease.h
	h.mu.Lock()
	delete(h.signals.ctxs, x)
	h.mu.Unlock()
}

// wasReleased says that it was released, and not lost or closed before.
func (l *Lease) wasReleased() bool {
	l.h.mu.Lock()
	defer l.h.mu.Unlock()
	return l.released && l.h.life.Why() == nil
}

// endAll ends contexts with a cause. No mutex is held: functions that wait for
// them run.
func endAll(ctxs []*leaseCtx, cause error) {
	for _, x := range ctxs {
		x.stop()
		x.cancel(cause)
	}
}
