// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Downgrade makes a write lease a read lease, without a moment in which nobody
// holds the key: with its fence, its contexts and its renewal. Readers that wait
// enter. It asks the store until ctx ends, but no longer than the TTL (5 s at
// least), and counts as an Extend to the TTL. A lease that is Shared already needs nothing: nil. While another write
// lease of the same hold stands (Reentrant), it is refused with ErrHeld.
//
// ErrLost says that the lease is over, ErrUnsupported, before anything is asked,
// that the engine cannot share a key. After any other error the store may or may
// not know of it: the lease is Shared all the same, so that nothing may be
// written under it any more, and another Downgrade asks again.
func (l *Lease) Downgrade(ctx context.Context) error {
	h := l.h
	err := l.Err()
	if err == nil {
		err = h.c.unshared(0)
	}
	if err != nil {
		return h.c.fail("downgrade", h.req.Key, err)
	}
	ctx, done, err := h.c.during(ctx)
	if err != nil {
		return h.c.fail("downgrade", h.req.Key, err)
	}
	defer done()
	if ctx.Err() != nil {
		return h.c.fail("downgrade", h.req.Key, endOf(ctx))
	}
	ask, err := l.shared()
	if ask {
		err = h.c.fail("downgrade", h.req.Key, h.convert(ctx))
		h.tell(EventDowngraded, func(e *Event) { e.Err = err })
	}
	return h.c.fail("downgrade", h.req.Key, err)
}

// shared makes the lease, and the hold, count as Shared. That comes before the
// store is asked: the answer may be lost. ask is false when there is nothing to
// ask for.
func (l *Lease) shared() (ask bool, err error) {
	h := l.h
	h.mu.Lock()
	write := l.mode == Exclusive
	switch {
	case h.end != nil || l.released:
		err = cmp.Or(h.end, ErrNotHeld)
	case write && h.writers > 1:
		err = fmt.Errorf("%w: another lease of this context writes: release or downgrade that first", ErrHeld)
	}
	if err != nil || !write && !h.unsure {
		h.mu.Unlock()
		return false, err
	}
	if write {
		l.mode, h.writers = Shared, 0
	}
	h.req.Mode, h.req.Settled, h.unsure = Shared, false, true
	co := h.leaveCohort() // its turns write
	h.mu.Unlock()
	if co != nil {
		co.lead(nil)
	}
	return true, nil
}

// convert tells the store of a downgrade, until it answers.
func (h *hold) convert(ctx context.Context) error {
	bears := time.Now().Add(max(h.opts.TTL, tryLimit))
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := h.convertOnce(ctx)
		if err == nil || errors.Is(err, ErrLost) {
			return err
		}
		if h.c.worthAsking(err) && ctx.Err() == nil && time.Now().Before(bears) {
			timer := time.NewTimer(jitter(pause))
			select {
			case <-timer.C:
				continue
			case <-ctx.Done():
			case <-h.over():
			}
			timer.Stop()
		}
		if end := h.stands(); end != nil {
			return end
		}
		if ctx.Err() != nil {
			err = &WaitError{End: endOf(ctx), Kept: err}
		}
		return fmt.Errorf("the lease counts as shared from now on, but the store may not know; Downgrade again to tell it: %w", err)
	}
}

func (h *hold) convertOnce(ctx context.Context) error {
	h.mu.Lock()
	req := h.req
	h.mu.Unlock()
	req.Convert = true
	limit := min(req.TTL/3, tryLimit)
	own, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := h.c.now()
	res, refusal, err := h.c.ask(own, req)
	if err != nil && own.Err() != nil && ctx.Err() == nil {
		err = &silentError{limit}
	}
	if err = cmp.Or(err, refusal); err == nil && !res.Granted {
		h.lose(ErrNotHeld)
		return h.stands()
	}
	if err != nil {
		return cmp.Or(h.stands(), err)
	}
	now := h.c.now()
	h.mu.Lock()
	h.unsure = false
	if h.end == nil && h.left(now) > h.opts.Lead { // otherwise it came too late
		h.granted(start, now, res.TTL)
	}
	h.mu.Unlock()
	h.c.renewer.again(h, now)
	return h.stands()
}

// stands is nil while the hold does, or why it is over.
func (h *hold) stands() error {
	if err := h.err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.handles == 0 {
		return fmt.Errorf("%w: this lease was released", ErrNotHeld)
	}
	return nil
}
