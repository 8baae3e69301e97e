// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/lifetime"
)

// release ends one lease. ran: Do calls it, after its function. end is how the work ended.
// Only the last lease of a hold tells the store, or hands the key on. If Close came first, the last Do tells the store.
func (l *Lease) release(ran bool, end driver.End) error {
	h := l.h
	_ = h.checkDeadline()
	h.mu.Lock()
	if _, ok := h.handles.has(l); !ok && !l.released {
		h.mu.Unlock()
		panic("hasp: a copy of a Lease was released: use the pointer that Lock or TryLock returned")
	}
	why := h.life.Why()
	rest, end := h.life.Release(l.mode == Exclusive, l.released, ran, end)
	if rest == lifetime.Nothing {
		h.mu.Unlock()
		return nil
	}
	h.handles.remove(l)
	if rest == lifetime.Fewer {
		ctxs := h.signals.take(l)
		h.mu.Unlock()
		endAll(ctxs, context.Canceled)
		return why
	}
	ctxs := h.signals.take(nil)
	after := h.takeAfter()
	if why == nil { // else finish has ended them
		h.signals.end()
	}
	h.mu.Unlock()
	endAll(ctxs, context.Canceled)
	if after != nil && after.handOn() {
		h.emitReleased(0, nil)
		return nil
	}
	h.c.renewer.Remove(h)
	if h.opts.ReleaseBehind && why == nil && end != driver.EndUnfinished && h.c.calls.Enter() { // a panic may end the program before
		go h.releaseBehind(end, after, h.c.behind.add(h.req.Key))
		return nil
	}
	if after != nil {
		defer after.over() // also when the observer panics
	}
	return h.release(h.c.calls.Base, why, end, nil)
}

// releaseBehind is release for a caller that does not wait. over: the next acquisition of the key may begin.
func (h *hold) releaseBehind(end driver.End, after afterHold, over func()) {
	defer h.c.calls.Leave()
	h.c.cohorts.notClosed(h.release(h.c.calls.Base, nil, end, func() { // the observer may want the key
		over()
		if after != nil {
			after.over()
		}
	}))
}

// behind are the releases under way that no caller waits for.
type behind struct {
	mu     sync.Mutex
	newest map[string]chan struct{} // by key; closed when that release, and those of the key before it, are over
}

// add notes a release; over ends it.
func (b *behind) add(key string) (over func()) {
	ended := make(chan struct{})
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.newest[key]
	b.newest[key] = ended
	return func() {
		if before != nil {
			<-before
		}
		close(ended)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.newest[key] == ended {
			delete(b.newest, key)
		}
	}
}

// awaitBehind returns when the releases of a key that are under way are over. An error says that ctx, or the client, ended before.
func (c *core) awaitBehind(ctx context.Context, key string) error {
	c.behind.mu.Lock()
	ended := c.behind.newest[key]
	c.behind.mu.Unlock()
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return &WaitError{endOf(ctx), errBehind}
	case <-c.calls.Open.Done():
		return &WaitError{ErrClosed, errBehind}
	}
}

var errBehind = errors.New("this client's release of the key is under way")

// release tells the store, within ctx and releaseLimit, and the observer. why
// is why the hold was over before, end how it ended. over, if not nil, is called in between.
func (h *hold) release(ctx context.Context, why error, end driver.End, over func()) error {
	h.mu.Lock()
	h.life.Released()
	req := driver.ReleaseRequest{Claim: h.req.Claim, TTL: h.life.Longest(), End: h.life.Outcome(end), Settled: h.life.Settled}
	vacant := h.life.Vacant()
	h.mu.Unlock()
	sent, began := h.c.now().Mono, time.Now()
	var err error
	if errors.Is(why, ErrLost) { // the caller must stop now, and the store ends the lease by itself
		h.c.cleanUp(req, true, false, 0)
	} else if err = h.c.release(ctx, began, req); errors.Is(err, errNotReleased) && h.c.calls.Open.Err() == nil {
		h.c.cleanups.add(req, true, began.Add(releaseLimit)) // this caller waits no longer; waiters of the key do
	}
	if over != nil {
		over()
	}
	switch {
	case why != nil:
		h.notFreed(err)
		err = why // the store's answer adds nothing
	case vacant && (err == nil || errors.Is(err, ErrNotHeld)):
		return nil // no caller had it: none is told
	case errors.Is(err, ErrNotHeld):
		err = h.releaseFoundNothing(err)
	}
	err = h.c.fail("release", h.req.Key, err)
	h.emitReleased(sent, err)
	return err
}

// releaseFoundNothing is the error of a release that found nothing. An answer before the deadline is proof of a loss. One after it is not: the store
// ended the lease while the release was under way, and the work was over before. A handover that is not claimed lasts for a moment only.
func (h *hold) releaseFoundNothing(answer error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.c.now()
	if h.life.StoreEnded(now) {
		return nil
	}
	return h.life.WhyLost(now, answer)
}

// notFreed notes why the key is not free, for Close; nil: it is.
func (h *hold) notFreed(err error) {
	if errors.Is(err, ErrNotHeld) {
		err = nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles.closeErr = err
}

// releaseAll releases what Close has ended.
func (c *core) releaseAll(ctx context.Context, holds []*hold) error {
	var mu sync.Mutex
	var errs []error
	inLanes(holds, func(h *hold) bool {
		if err := h.release(ctx, nil, driver.EndUnfinished, nil); err != nil {
			mu.Lock()
			errs = append(errs, err)
			mu.Unlock()
		}
		return true
	})
	return errors.Join(errs...)
}

// inLanes releases all, releaseLanes at a time. A lane ends with a release that is false; inLanes says whether none was.
func inLanes[T any](all []T, release func(T) bool) bool {
	next := make(chan T, len(all))
	for _, one := range all {
		next <- one
	}
	close(next)
	var failed atomic.Bool
	var lanes sync.WaitGroup
	for range min(releaseLanes, len(all)) {
		lanes.Go(func() {
			for one := range next {
				if !release(one) {
					failed.Store(true)
					return
				}
			}
		})
	}
	lanes.Wait()
	return !failed.Load()
}

// cleanUp releases what an owner may have in the store. It returns when that is settled, or after a moment; then that goes on in
// the background, and Close waits for it until patience is over. mayHold is as for settled; silent: the store is known to be away.
func (c *core) cleanUp(req driver.ReleaseRequest, mayHold, silent bool, patience time.Duration) {
	patient := time.Now().Add(patience)
	if silent || c.cleanups.silent() || !c.cleanups.send(moment, &cleanup{req: req, mayHold: mayHold, patient: patient}) {
		c.cleanups.add(req, mayHold, patient)
	}
}

var errNotReleased = errors.New("the store did not confirm the release")

// release asks until ctx ends or releaseLimit is over since began: errNotReleased. It does not
// depend on a caller's context: Base ends only when Close is over.
func (c *core) release(ctx context.Context, began time.Time, req driver.ReleaseRequest) error {
	err := c.releaseOnce(ctx, nil, releaseLimit, req)
	if c.settled(err, true) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, began.Add(releaseLimit))
	defer cancel()
	pause := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for pause.Wait(ctx.Done()) {
		switch again := c.releaseOnce(ctx, nil, releaseLimit, req); {
		case errors.Is(again, ErrNotHeld):
			return nil // perhaps an earlier request released it, and its reply was lost
		case c.settled(again, true):
			return again
		case ctx.Err() == nil && !errors.Is(again, context.DeadlineExceeded): // a limit of ours says nothing of the store
			err = again
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = &silentError{limit: releaseLimit}
	}
	text := "%w, and keeps the key until its TTL of %v is over: %w"
	if time.Since(began) > req.TTL {
		text = "%w, but the lease's TTL of %v is over: %w"
	}
	return fmt.Errorf(text, errNotReleased, req.TTL, err)
}

// cleanups are the releases that no caller waits for: of calls with an unknown outcome,
// and those that the store has not confirmed. However many there are, a silent store is
// sent one at a time, and each is dropped when what its owner left has expired.
type cleanups struct {
	c *core

	mu      sync.Mutex
	pending []*cleanup // the oldest first
	running bool       // run is at work
	closing bool       // Close has begun

	unheard atomic.Bool   // the latest that was sent had no answer, not even a refusal
	again   chan struct{} // room for one: ends a pause, but not two in a row
}

type cleanup struct {
	req     driver.ReleaseRequest
	mayHold bool      // as for settled
	patient time.Time // until then Close waits for it, as a Release does; after that it is sent once more
	until   time.Time // the store has nothing of the owner then, and no Try of it can come
	failed  bool      // a request that was sent while Close waits did not settle it
	done    bool
}

const (
	maxCleanups  = 10_000 // beyond that the oldest are dropped: what they left expires
	releaseLanes = 32     // how many releases are under way at once
)

// releaseOnce sends a release, and waits for the answer for limit at most, or until open ends, if it is not nil.
func (c *core) releaseOnce(ctx, open context.Context, limit time.Duration, req driver.ReleaseRequest) error {
	r := newRequest(ctx, open, min(limit, releaseLimit/3))
	defer r.done()
	return c.drv.Release(r, req)
}

// silent says whether the store does not answer. A store that refuses the release of one key may take that of another.
func (cs *cleanups) silent() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.unheard.Load() && len(cs.pending) > 0
}

// add notes a release that Close waits for until patient. It must be called within a call that the gate let in.
func (cs *cleanups) add(req driver.ReleaseRequest, mayHold bool, patient time.Time) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if len(cs.pending) >= maxCleanups {
		cs.pending = slices.Delete(cs.pending, 0, len(cs.pending)-maxCleanups+1)
	}
	until := time.Now().Add(max(min(req.TTL, cleanUpLimit)+tryLimit, driver.MaxTransit))
	cs.pending = append(cs.pending, &cleanup{req: req, mayHold: mayHold, patient: patient, until: until})
	if !cs.running {
		cs.running = true
		cs.c.calls.EnterLate()
		go cs.run()
	}
}

// run sends what is pending, until nothing is.
func (cs *cleanups) run() {
	defer cs.c.calls.Leave()
	pause, again := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}, cs.again
	for work := cs.look(); len(work) > 0; work = cs.look() {
		over := cs.c.calls.Open // from before the request: Close may end that, and then no pause follows
		if over.Err() != nil {
			over = cs.c.calls.Base
		}
		settled := cs.send(releaseLimit, work[0])
		if settled {
			pause.Reset()
		}
		if !cs.silent() && inLanes(work[1:], func(w *cleanup) bool { return cs.send(releaseLimit, w) }) && settled {
			continue
		}
		if len(cs.look()) == 0 { // Close waits no longer, and so for no pause
			return
		}
		timer := time.NewTimer(pause.Next())
		select {
		case <-timer.C:
			again = cs.again
		case <-again:
			again = nil // the next pause is whole: Tries may be answered where this release is not
		case <-over.Done():
		}
		timer.Stop()
	}
}

// retry ends a pause: a store that answers a Try may answer a release, and what is pending may keep waiters out.
func (cs *cleanups) retry() {
	if cs.unheard.Load() {
		select {
		case cs.again <- struct{}{}:
		default:
		}
	}
}

// close has what was tried for releaseLimit sent once more, to a store that may be back.
func (cs *cleanups) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closing = true
	cs.unheard.Store(false)
}

// look drops what is done or expired, or what Close waits for no longer, and returns the rest, in another order each
// time: a release that fails, on an unreachable shard, must not delay the others.
// When there are none, or at the end of Close, run ends.
func (cs *cleanups) look() []*cleanup {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	now := time.Now()
	cs.pending = slices.DeleteFunc(cs.pending, func(w *cleanup) bool {
		return w.done || w.until.Before(now) || cs.closing && w.patient.Before(now) && (w.failed || cs.unheard.Load())
	})
	cs.running = len(cs.pending) > 0 && cs.c.calls.Base.Err() == nil
	if !cs.running {
		return nil
	}
	work := slices.Clone(cs.pending)
	rand.Shuffle(len(work), func(i, j int) { work[i], work[j] = work[j], work[i] })
	return work
}

// send sends one release, and reports whether that settles it.
func (cs *cleanups) send(limit time.Duration, w *cleanup) bool {
	var closes context.Context
	if w.patient.Before(time.Now()) {
		if closes = cs.c.calls.Open; closes.Err() != nil {
			closes, limit = nil, min(limit, moment)
		}
	}
	err := cs.c.releaseOnce(cs.c.calls.Base, closes, limit, w.req)
	settled := cs.c.settled(err, w.mayHold)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !settled && closes != nil && closes.Err() != nil {
		return false // Close ended the request: that says nothing of the store
	}
	w.done, w.failed = settled, !settled && cs.closing
	cs.unheard.Store(!settled && !cs.c.answered(err))
	return settled
}
