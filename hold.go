// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

// hold is an owner that has a key: what a lease, and the re-entrant leases
// within it, stand for.
type hold struct {
	keepalive.Entry
	c     *core
	req   driver.RenewRequest // TTL, which renewals ask for, and what a Downgrade changes, are guarded by mu; the rest never changes
	grant grant               // what the store said

	mu      sync.Mutex // guards what follows
	state   state
	end     error // why it is lost or closed: *Error with ErrLost or ErrClosed
	term    term
	handles handles
	signals signals
	turn    turn
	settled bool // as driver.ReleaseRequest.Settled
	claims  bool // it entered, and its claim was not answered yet: see enter.go
}

// grant is what a hold has beside the key. It never changes.
type grant struct {
	slot      int           // as Lease.Slot
	abandoned bool          // as Lease.Abandoned
	marked    bool          // the store said so, to the first in a row of turns; or it may have, to another process
	handoff   time.Duration // as Event.Handoff
	entered   bool          // it began with a handover, without a request
}

// newHold returns a hold that was asked for at born. It is not granted yet.
func newHold(c *core, req driver.RenewRequest, opts *LockOptions, born clock.Instant) *hold {
	return &hold{c: c, req: req, term: term{opts: opts, born: born, longest: req.TTL}, turn: turn{behind: alone{}}}
}

// lease returns one more lease. h.mu is held, or h nobody else's yet.
func (h *hold) lease(mode Mode) *Lease {
	l := &Lease{h: h, mode: mode, taken: h.c.origin()}
	h.handles.add(l)
	return l
}

// begin gives the hold to a caller, who waited while it stood: for its turn, or
// for the other keys of a LockAll.
func (h *hold) begin(now clock.Instant) {
	h.mu.Lock()
	if !h.term.used {
		h.term.used, h.term.idle = true, h.term.held(now)
	}
	h.mu.Unlock()
	h.c.renewer.Again(h, now) // MaxHold may end it earlier than was planned
}

// run begins a function of Do.
func (h *hold) run() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end == nil {
		h.handles.running++
	}
	return h.end
}

// leftover is the error of a key that Close left to a function of Do; nil when it
// was released.
func (h *hold) leftover() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c.fail("close", h.req.Key, h.handles.left)
}

// tells notes whose context the events of this hold have.
func (h *hold) tells(ctx context.Context) {
	if h.c.observe == nil {
		return // or it would be kept for nobody
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles.caller = ctx //nolint:fatcontext // it is the first one
}

// emit reports an event of this hold.
func (h *hold) emit(kind EventKind, more func(e *Event)) {
	if h.c.observe == nil {
		return
	}
	e := h.event(kind)
	more(&e)
	h.c.emit(e)
}

// event returns what all events of this hold say.
func (h *hold) event(kind EventKind) Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Event{Kind: kind, Context: h.handles.caller, Key: h.req.Key, Owner: h.req.Owner, Fence: h.req.Fence, Mode: h.req.Mode, TTL: h.req.TTL,
		Slot: h.grant.slot, Leases: h.count(kind)}
}

// count returns Event.Leases of an event of this kind. It goes by the state, since the
// events of several goroutines may overtake one another: what was lost is ended by
// EventLost, also when the release is told first. h.mu is held.
func (h *hold) count(kind EventKind) int {
	switch {
	case kind == EventAcquired && h.state.stands():
		h.handles.counted = true
		return 1
	case h.handles.counted && (kind == EventLost || kind == EventReleased && h.state != lost):
		h.handles.counted = false
		return -1
	}
	return 0
}

// acquired tells the observer that the lease is the caller's, who asked for it at
// began, and waited or did not. A panic of the observer's keeps it from the caller: it
// is released.
func (l *Lease) acquired(began clock.Instant, waited bool) {
	panics := true
	defer func() {
		if panics {
			_ = l.release(false, driver.Unused)
		}
	}()
	h := l.h
	if h.c.observe != nil { // emit would move the event to the heap, for each pair of calls twice
		e, now := h.event(EventAcquired), h.c.now()
		if e.Waited = now.Sub(began); !h.turn.later {
			e.Handoff = h.grant.handoff
		}
		if !h.turn.later && !h.grant.entered {
			e.Sent = sentAt(h.term.born.Mono, now)
		}
		if waited {
			e.Waiters = -1
		}
		h.c.emit(e)
	}
	panics = false
}

// given tells the observer that the key was given back: to the store, which was told
// at sent, or to the next turn.
func (h *hold) given(sent time.Duration, err error) {
	if h.c.observe == nil {
		return
	}
	e, now := h.event(EventReleased), h.c.now()
	e.Held, e.Err = h.term.held(now), err
	if sent != 0 {
		e.Sent = sentAt(sent, now)
	}
	h.c.emit(e)
}
