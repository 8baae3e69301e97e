// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

// Downgrade makes a write lease a read lease, with no moment in which nobody holds
// the key; its fence, contexts and renewal stay. Waiting readers are admitted. It
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
		h.emit(EventDowngraded, func(e *Event) { e.Err = err })
	}
	return h.c.fail("downgrade", h.req.Key, err)
}

// beginConversion makes the lease, and the hold, count as Shared. That comes before the
// store is asked: the answer may be lost. ask is false when there is nothing to
// ask for.
func (l *Lease) beginConversion() (ask bool, err error) {
	h := l.h
	h.mu.Lock()
	write := l.mode == Exclusive
	switch {
	case h.end != nil || l.released:
		err = cmp.Or(h.end, ErrNotHeld)
	case write && h.handles.writers > 1:
		err = fmt.Errorf("%w: another lease of this context writes: release or downgrade that first", ErrHeld)
	}
	if err != nil || !write && h.state != converting {
		h.mu.Unlock()
		return false, err
	}
	if write {
		l.mode, h.handles.writers = Shared, 0
	}
	h.state.become(converting)
	h.req.Mode, h.settled = Shared, false
	if h.signals.heard != nil { // its cohort hears of it no more
		h.signals.heard, h.signals.ask = nil, h.signals.listens()
	}
	behind := h.turn.leave() // their turns write
	h.mu.Unlock()
	behind.over()
	return true, nil
}

// convert tells the store of a downgrade, until it answers.
func (h *hold) convert(ctx context.Context) error {
	bears := time.Now().Add(max(h.term.opts.TTL, tryLimit))
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for {
		err := h.convertOnce(ctx)
		if err == nil {
			return nil
		}
		if h.c.trouble(err) != permanent && time.Now().Before(bears) {
			timer := time.NewTimer(pause.Next())
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
			case <-h.over(false):
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
	req := driver.TryRequest{Claim: h.req.Claim, TTL: h.req.TTL, Convert: true, Fence: h.req.Fence}
	h.mu.Unlock()
	limit := min(req.TTL/3, tryLimit)
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := h.c.now()
	res, refusal, err := h.c.ask(own, req)
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		err = &silentError{limit: limit}
	}
	if err = cmp.Or(err, refusal); err == nil && !res.Granted {
		h.lose(ErrNotHeld)
		return h.checkStands()
	}
	if err != nil {
		return cmp.Or(h.checkStands(), err)
	}
	now := h.c.now()
	h.mu.Lock()
	h.state.become(held)
	if h.state.stands() && !h.term.over(now) { // otherwise it came too late
		h.term.grant(start, now, res.TTL)
	}
	h.mu.Unlock()
	h.c.renewer.Again(h, now)
	return h.checkStands()
}
