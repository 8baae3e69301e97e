// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"

	"github.com/hasplock/hasp/internal/lifetime"
)

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
		if h.req.Wanted == nil && h.c.traits.TellsWanted { // otherwise it was asked
			h.life.Listen()
		}
	}
	ctx, ask := s.wishCtx, h.life.Asking()
	h.mu.Unlock()
	if ask {
		h.c.renewer.Again(h, h.c.now())
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

// holdKey asks a context for a client's hold of a key.
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
	if k == any(holdKey{x.lease.h.c, x.lease.h.req.Key}) && !x.lease.gone() {
		return x.lease.h
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

func (l *Lease) gone() bool {
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
