// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "fmt"

// checkDeadline declares the hold lost when its time is over. It returns why it
// is lost or closed: nil while it stands, and once it was released.
func (h *hold) checkDeadline() error {
	if h.expired() {
		h.lose(nil)
	}
	return h.whyEnded()
}

// expired says that the hold's time is over, and that nobody has declared it lost yet.
func (h *hold) expired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.stands() && h.term.over(h.c.now())
}

// whyEnded returns what checkDeadline returns, without a look at the clock.
func (h *hold) whyEnded() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.end
}

// checkStands is checkDeadline, with an error once the hold was released, too.
func (h *hold) checkStands() error {
	if err := h.checkDeadline(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.state.stands() {
		return fmt.Errorf("%w: this lease was released", ErrNotHeld)
	}
	return nil
}

// lose declares the hold lost: by the clock, or by the store's answer.
func (h *hold) lose(answer error) {
	if tell := h.declareLost(answer); tell != nil {
		tell()
	}
}

// Expire declares the loss that the renewer finds.
func (h *hold) Expire() (tell func()) { return h.declareLost(nil) }

// declareLost is lose without the observer, whom tell tells; nil when the hold
// was over before.
func (h *hold) declareLost(answer error) (tell func()) {
	h.mu.Lock()
	why := h.whyLost(answer)
	h.mu.Unlock()
	why = h.c.fail("hold", h.req.Key, why)
	if ended, _ := h.finish(lost, why); !ended {
		return nil
	}
	h.c.renewer.Remove(h)
	h.mu.Lock()
	nobodys := h.turn.kept // now that nobody takes it any more
	h.mu.Unlock()
	if nobodys {
		return nil
	}
	took := h.term.held(h.c.now())
	return func() { h.emit(EventLost, func(e *Event) { e.Held, e.Err = took, why }) }
}

// whyLost says for a person why the hold is lost. h.mu is held.
func (h *hold) whyLost(answer error) error {
	switch {
	case answer != nil:
		return lostByStore(answer)
	case h.term.tooLong(h.c.now()):
		return fmt.Errorf("%w: held for its MaxHold of %v", ErrLost, h.term.opts.MaxHold)
	case h.handles.forgotten:
		return fmt.Errorf("%w: dropped without Release, and not renewed after that", ErrLost)
	case h.term.opts.NoRenew:
		return fmt.Errorf("%w: its TTL of %v is over", ErrLost, h.req.TTL)
	case h.term.lastErr != nil:
		return fmt.Errorf("%w: not renewed in time, last error: %w", ErrLost, h.term.lastErr)
	case h.term.renewing:
		return fmt.Errorf("%w: not renewed in time: the store has not answered (does it hang?)", ErrLost)
	}
	return fmt.Errorf("%w: not renewed in time, by the clock of this machine (was the process stopped?)", ErrLost)
}

// lostByStore is the error of a hold that the store no longer knows.
func lostByStore(answer error) error {
	return fmt.Errorf("%w: the store says that this owner no longer holds the key (%w)", ErrLost, answer)
}

// finish ends a hold that was not released, once, as lost or closed. running: a
// function of Do has not returned.
func (h *hold) finish(as state, why error) (ended, running bool) {
	h.mu.Lock()
	if !h.state.become(as) {
		h.mu.Unlock()
		return false, false
	}
	h.end = why
	if running = h.handles.running > 0; running {
		h.handles.left = fmt.Errorf("the function that holds it has not returned; the store keeps the key for its TTL of %v", h.term.longest)
	}
	ctxs := h.signals.take(nil)
	h.signals.end()
	behind := h.turn.leave()
	h.mu.Unlock()
	endAll(ctxs, why)
	behind.over()
	return true, running
}
