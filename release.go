// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
)

// release is Release within a call that was let in; ran says that a function
// of Do has returned, end how what was done under the lease ended. The last
// function that Close left the key to tells the store, whoever released what.
func (l *Lease) release(ran bool, end driver.End) error {
	h := l.h
	_ = h.checkDeadline()
	h.mu.Lock()
	if _, ok := h.handles.has(l); !ok && !l.released {
		h.mu.Unlock()
		panic("hasp: a copy of a Lease was released: use the pointer that Lock or TryLock returned")
	}
	why := h.end
	if ran {
		h.handles.running--
	}
	left := ran && h.state == closed && h.handles.running == 0
	if l.released && !left {
		h.mu.Unlock()
		return nil
	}
	if h.handles.broken = h.handles.broken || end == driver.Unfinished; h.handles.broken {
		end = driver.Unfinished
	}
	h.handles.remove(l)
	if last := h.handles.n == 0 && h.state != closed; !last && !left { // Close releases what it closed
		ctxs := h.signals.take(l)
		h.mu.Unlock()
		endAll(ctxs, context.Canceled)
		return why
	}
	ctxs := h.signals.take(nil)
	behind := h.turn.leave()
	after := released
	if end == driver.Finished {
		after = passing
	}
	h.state.become(after) // what is lost or closed stays so
	if why == nil {
		h.signals.end()
	}
	h.mu.Unlock()
	endAll(ctxs, context.Canceled)
	if behind.pass(h) {
		h.given(0, nil)
		return nil
	}
	h.c.renewer.Remove(h)
	defer behind.over() // also when the observer panics
	return h.release(h.c.calls.Base, why, end)
}

// release tells the store, within ctx and releaseLimit, and the observer. why
// is why the hold was over before, end how it ended.
func (h *hold) release(ctx context.Context, why error, end driver.End) error {
	h.mu.Lock()
	h.state.become(released) // no turn came after it
	req := driver.ReleaseRequest{Claim: h.req.Claim, TTL: h.term.longest, End: h.outcome(end), Settled: h.settled}
	kept := h.turn.kept
	h.mu.Unlock()
	sent := h.c.now().Mono
	err := h.c.release(ctx, req)
	if errors.Is(err, errNotReleased) && h.c.calls.Open.Err() == nil {
		h.c.cleanups.add(req, true) // the caller waits no longer, but others do
	}
	switch {
	case why != nil:
		h.notFreed(err)
		err = why // the store's answer adds nothing
	case kept && (err == nil || errors.Is(err, ErrNotHeld)):
		return nil // nobody had it: nobody is told
	case errors.Is(err, ErrNotHeld):
		err = h.gone(err)
	}
	err = h.c.fail("release", h.req.Key, err)
	h.given(sent, err)
	return err
}

// gone is the error of a release that found nothing. An answer before the deadline is proof of a loss. One after it is not: the store
// ended the lease while the release was under way, and the work was over before. A handover that is not claimed lasts for a moment only.
func (h *hold) gone(answer error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.term.granted(h.c.now()) <= 0 {
		return nil
	}
	return lostByStore(answer)
}

// notFreed notes why the key is not free, for Close; nil: it is.
func (h *hold) notFreed(err error) {
	if errors.Is(err, ErrNotHeld) {
		err = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles.left = err
}

// outcome says how a hold ends for whoever comes next: as end, unless nobody
// worked under it, or it was lost or closed. h.mu is held.
func (h *hold) outcome(end driver.End) driver.End {
	switch {
	case !h.term.used && !h.turn.clean:
		return driver.Unused
	case !h.term.used:
		end = driver.Finished
	case h.end != nil: // lost, or closed
		return driver.Unfinished
	}
	// A Try may come late and have the key after this lease. A mark which that took over
	// is not one that this holder repaired: Unused puts it back.
	if end == driver.Finished && !h.settled && !h.grant.marked && !h.claims {
		return driver.Unused
	}
	return end
}

// releaseAll releases what Close has ended, many at a time.
func (c *core) releaseAll(ctx context.Context, holds []*hold) error {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	next := make(chan *hold)
	for range min(releaseLanes, len(holds)) {
		wg.Go(func() {
			for h := range next {
				if err := h.release(ctx, nil, driver.Unfinished); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, h := range holds {
		next <- h
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// cleanUp releases what an owner may have in the store. It returns when that is
// settled, or takes longer than a moment; that goes on in the
// background. lost is as for settled; silent: the store is known to be away.
func (c *core) cleanUp(req driver.ReleaseRequest, lost, silent bool) {
	if silent || c.cleanups.silent() || !c.cleanups.send(moment, &cleanup{req: req, lost: lost}) {
		c.cleanups.add(req, lost)
	}
}

var errNotReleased = errors.New("the store did not confirm the release")

// release asks until ctx ends or releaseLimit is over: errNotReleased. It does not
// depend on a caller's context: Base ends only when Close is over.
func (c *core) release(ctx context.Context, req driver.ReleaseRequest) error {
	began := time.Now()
	err := c.releaseOnce(ctx, releaseLimit, req)
	if c.settled(err, true) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(releaseLimit))
	defer cancel()
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for {
		if !pause.Wait(ctx.Done()) {
			return fmt.Errorf("%w, and keeps the key for its TTL of %v: %w", errNotReleased, req.TTL, err)
		}
		switch err = c.releaseOnce(ctx, releaseLimit, req); {
		case err == nil || errors.Is(err, ErrNotHeld):
			return nil // perhaps by an earlier request whose reply was lost
		case c.settled(err, true):
			return err
		}
	}
}
