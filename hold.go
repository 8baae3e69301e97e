// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
	"github.com/hasplock/hasp/internal/lifetime"
)

// hold is an owner that has a key: what a lease, and the re-entrant leases
// within it, stand for. What becomes of it is decided by life; hold does it.
type hold struct {
	keepalive.Entry
	c     *core
	req   driver.RenewRequest // mu guards its Mode, which a Downgrade changes, Wanted and Keeps; the rest never changes
	opts  *settings
	grant grant // what the store said

	mu      sync.Mutex // guards what follows
	life    lifetime.Lifetime
	handles handles
	signals signals
	after   afterHold // nil: none
}

// afterHold is what a cohort does when a hold ends.
type afterHold interface {
	handOn() bool // its last lease was released: give the key to the next call, if there is one
	over()        // the grant has ended
}

// grant is what a hold has beside the key. It never changes.
type grant struct {
	slot      int           // as Lease.Slot
	abandoned bool          // as Lease.Abandoned
	handoff   time.Duration // as Event.Handoff
	unasked   bool          // it began without a request: with a handover, or with the end of the turn before
	fences    int           // as driver.Result.Fences
}

// newHold returns a hold that was asked for at asked. It is not granted yet.
func newHold(c *core, req driver.RenewRequest, opts *settings, asked clock.Instant, facts lifetime.Facts) *hold {
	return &hold{c: c, req: req, opts: opts, life: lifetime.New(&opts.terms, asked, facts)}
}

// holds is the hold that a member of the renewer's is, or has.
func (h *hold) holds() *hold { return h }

// setAfter sets what follows the hold. If it has ended meanwhile, that follows at once.
func (h *hold) setAfter(to afterHold) {
	h.mu.Lock()
	stands := h.life.Stands()
	if stands {
		h.after = to
	}
	h.mu.Unlock()
	if !stands {
		to.over()
	}
}

// takeAfter returns what follows the hold, once. h.mu is held.
func (h *hold) takeAfter() afterHold {
	after := h.after
	h.after = nil
	return after
}

// lease returns one more lease. h.mu is held, or no other goroutine has h yet.
func (h *hold) lease(mode Mode) *Lease {
	l := &Lease{h: h, mode: mode, taken: h.c.origin()}
	h.life.Add(mode == Exclusive)
	h.handles.add(l)
	return l
}

// begin gives the hold to a caller that waited while it stood: for its turn, or
// for the other keys of Locks.
func (h *hold) begin(now clock.Instant) {
	h.mu.Lock()
	h.life.Give(now)
	h.mu.Unlock()
	h.c.renewer.Reschedule(h, now) // MaxHold may end it earlier than was planned
}

// run begins a function of Do.
func (h *hold) run() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.Run()
}

// notReleased is the error of a key that Close left to a function of Do; nil when it
// was released.
func (h *hold) notReleased() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c.fail("close", h.req.Key, h.handles.closeErr)
}

// checkDeadline declares the hold lost when its time is over. It returns why it
// is lost or closed: nil while it stands, and once it was released.
func (h *hold) checkDeadline() error {
	if h.expired() {
		h.lose(nil)
	}
	return h.whyEnded()
}

// expired says that the hold's time is over, and that it was not declared lost yet.
func (h *hold) expired() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.Expired(h.c.now())
}

// whyEnded returns what checkDeadline returns, without a look at the clock.
func (h *hold) whyEnded() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.Why()
}

// checkStands is checkDeadline, with an error once the hold was released, too.
func (h *hold) checkStands() error {
	if err := h.checkDeadline(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.life.Stands() {
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

// declareLost is lose without the observer, which tell tells; nil when the hold
// was over before.
func (h *hold) declareLost(answer error) (tell func()) {
	now := h.c.now()
	h.mu.Lock()
	why := h.life.WhyLost(now, answer)
	h.mu.Unlock()
	why = h.c.fail("hold", h.req.Key, why)
	if ended, _ := h.finish(lifetime.Lost, why); !ended {
		return nil
	}
	h.c.renewer.Remove(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Vacant() { // no caller had it, and now none takes it any more
		return nil
	}
	took := h.life.Held(now)
	return func() { h.emit(event.Lost, func(e *event.Event) { e.Held, e.Err = took, why }) }
}

// finish ends a hold that was not released, once, as lost or closed. running: a
// function of Do has not returned.
func (h *hold) finish(as lifetime.State, why error) (ended, running bool) {
	h.mu.Lock()
	if ended, running = h.life.End(as, why); !ended {
		h.mu.Unlock()
		return false, false
	}
	if running {
		h.handles.closeErr = fmt.Errorf("the function that holds it has not returned; the store keeps the key until its TTL of %v is over", h.life.Longest())
	}
	ctxs := h.signals.take(nil)
	h.signals.end()
	after := h.takeAfter()
	h.mu.Unlock()
	endAll(ctxs, why)
	if after != nil {
		after.over()
	}
	return true, running
}

// Due says whether to renew, and whether the hold is over.
func (h *hold) Due(now clock.Instant, hurry bool) (renew, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.Due(now, hurry)
}

// NextLook is when to renew, or to declare the loss.
func (h *hold) NextLook(now clock.Instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life.NextLook(now)
}

// Request is what to send, unless nothing can reach the hold: then the observer is told,
// and the TTL ends it.
func (h *hold) Request() (r driver.RenewRequest, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.life.Forgotten() {
		return r, false
	}
	if !h.life.Stands() || h.handles.reachable() {
		return h.renewal(), true
	}
	h.life.Forget()
	now := h.c.now()
	took, left, taken := h.life.Held(now), h.life.Left(now)-h.opts.Lead, h.handles.known[0].taken
	err := fmt.Errorf("dropped without Release: nothing can reach this lease any more, so it is not renewed and ends in %v", short(left))
	go h.emit(event.Forgotten, func(e *event.Event) {
		e.Held, e.Left, e.Callers, e.Err = took, left, taken.String(), h.c.fail("hold", h.req.Key, err)
	})
	return r, false
}

// renewal is what to send. h.mu is held.
func (h *hold) renewal() driver.RenewRequest {
	r := h.req
	r.TTL, r.Entered = h.life.TTL(), h.life.Unclaimed
	if r.Wanted == nil && h.signals.wishCtx != nil && !h.life.Wanted() {
		r.Wanted = h.hear
	}
	return r
}

// Renewed takes the answer to a renewal.
func (h *hold) Renewed(start clock.Instant, r driver.Renewal) {
	h.mu.Lock()
	now := h.c.now()
	age := h.life.Age(now)
	answer := h.life.Renewed(start, now, r)
	left := h.life.Left(now) - h.opts.Lead
	var wanted context.CancelFunc
	if answer == lifetime.Renewed {
		wanted = h.signals.told(h.life.Wanted())
	}
	h.mu.Unlock()
	kind := event.Renewed
	switch answer {
	case lifetime.Ignored:
		return
	case lifetime.Gone:
		h.lose(r.Err)
		return
	case lifetime.Late:
		h.lose(nil)
		return
	case lifetime.Failed:
		kind = event.RenewFailed
	}
	h.c.renewer.Reschedule(h, now)
	if wanted != nil {
		wanted()
	}
	h.emit(kind, func(e *event.Event) {
		e.Left, e.Sent, e.Age, e.Err = left, sentAt(start.Mono, now), age, h.c.fail("renew", h.req.Key, r.Err)
	})
}

// extend renews once, at the caller's wish.
func (h *hold) extend(ctx context.Context, ttl time.Duration) error {
	h.mu.Lock()
	if !h.life.Stands() { // it must not lengthen what the next turn has
		h.mu.Unlock()
		return h.checkStands()
	}
	h.life.Asks(ttl)
	req := h.renewal()
	h.mu.Unlock()
	req.TTL = ttl
	start := h.c.now()
	r, err := h.c.renewOnce(ctx, req)
	if err != nil {
		return err
	}
	h.Renewed(start, r)
	if r.Err != nil {
		return r.Err
	}
	h.mu.Lock()
	h.life.Extended(ttl)
	h.mu.Unlock()
	return h.checkDeadline() // the answer may have come too late
}

// renewOnce renews one lease. An error: there was no answer.
func (c *core) renewOnce(ctx context.Context, req driver.RenewRequest) (driver.Renewal, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	got := make(chan driver.Renewal, 1)
	c.drv.Renew(ctx, []driver.RenewRequest{req}, func(_ int, r driver.Renewal) { got <- r })
	select { // drivers report before they return
	case r := <-got:
		return r, nil
	default:
		return driver.Renewal{}, keepalive.Unanswered(ctx)
	}
}

// reenter returns one more lease of a standing hold, or why there is none.
func (h *hold) reenter(mode Mode, limit int, reentrant bool) (*Lease, error) {
	if err := h.checkDeadline(); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.life.Stands():
		return nil, cmp.Or(h.life.Why(), ErrNotHeld)
	case mode == Exclusive && h.req.Mode == Shared:
		return nil, lifetime.HeldHere("already shared by this context, which would wait for itself: release that first, or write from the start and Downgrade")
	case limit != 0 && limit != h.req.Limit:
		return nil, lifetime.HeldHere(fmt.Sprintf("already held by this context, but not as one of %d: it has no such slot", limit))
	case !reentrant:
		return nil, lifetime.HeldHere("already held by this context: use its lease, or set LockOptions.Reentrant")
	}
	return h.lease(mode), nil
}

// setCaller notes the context that the events of this hold are reported with.
func (h *hold) setCaller(ctx context.Context) {
	if h.c.observe == nil {
		return // no event needs it
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handles.caller = ctx //nolint:fatcontext // it is the first one
}

// emit reports an event of this hold.
func (h *hold) emit(kind event.Kind, more func(e *event.Event)) {
	if h.c.observe == nil {
		return
	}
	e := events.Get().(*event.Event)
	ctx := h.describe(e, kind)
	more(e)
	h.c.emit(ctx, e)
}

// describe notes what all events of this hold say, and returns the context of its caller.
func (h *hold) describe(e *event.Event, kind event.Kind) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Kind, e.Key, e.Owner, e.Fence, e.Mode, e.TTL, e.Slot = kind, h.req.Key, h.req.Owner, h.req.Fence, h.req.Mode, h.life.TTL(), h.grant.slot
	switch kind {
	case event.Acquired:
		e.LeaseDelta = h.life.Began()
	case event.Lost, event.Released:
		e.LeaseDelta = h.life.Ended(kind == event.Released)
	}
	return h.handles.caller
}

// emitAcquired tells the observer that the lease is the caller's, which asked for it at
// began, and waited or did not. A panic of the observer's keeps it from the caller: it
// is released.
func (l *Lease) emitAcquired(began clock.Instant, waited bool) {
	panics := true
	defer func() {
		if panics {
			_ = l.release(false, driver.EndUnused)
		}
	}()
	h := l.h
	h.emit(event.Acquired, func(e *event.Event) {
		now := h.c.now()
		e.Waited, e.Handoff = now.Sub(began), h.grant.handoff
		if !h.grant.unasked {
			e.Sent = sentAt(h.life.Born().Mono, now)
		}
		if waited {
			e.WaiterDelta = -1
		}
	})
	panics = false
}

// emitReleased tells the observer that the key was released: to the store, which was told
// at sent, or to the next turn.
func (h *hold) emitReleased(sent time.Duration, err error) {
	h.emit(event.Released, func(e *event.Event) {
		now := h.c.now()
		e.Held, e.Err = h.life.Held(now), err
		if sent != 0 {
			e.Sent = sentAt(sent, now)
		}
	})
}

// handles are the leases of a hold that were not released. Its mu guards them.
//
// A lease that was dropped without Release is found out when it is to be
// renewed: until its first renewal the hold itself keeps its leases, from then on
// weakly. So a lease that is released earlier costs nothing for it.
//
// A lease is kept by any code that can still reach it; by each of its contexts, which refer
// to it, until that context has ended; and for good by a channel of Done or Wanted that was
// handed out, since we cannot tell whether a goroutine waits for that.
type handles struct {
	caller   context.Context // of the call that took the hold; nil without an observer
	closeErr error           // why a key that Close left to a function of Do is not free
	fresh    *Lease          // leases that were not released, until the next renewal; linked
	known    []weakLease     // those of before
	pinned   bool            // a channel of it was handed out
}

// weakLease is a lease that was not released.
type weakLease struct {
	lease weak.Pointer[Lease]
	taken *origin
}

func (hs *handles) add(l *Lease) {
	l.next, hs.fresh = hs.fresh, l
}

// has says whether a lease is still to be released, and where it is in known; negative: not there.
//
// A lease that its finalizer brings back is one of those with a cleared weak pointer. Which of them makes no
// difference, also for a copy: no other caller can release it.
func (hs *handles) has(l *Lease) (i int, ok bool) {
	for f := hs.fresh; f != nil; f = f.next {
		if f == l {
			return -1, true
		}
	}
	w := weak.Make(l)
	i = slices.IndexFunc(hs.known, func(k weakLease) bool { return k.lease == w })
	if i < 0 {
		i = slices.IndexFunc(hs.known, func(k weakLease) bool { return k.lease.Value() == nil })
	}
	return i, i >= 0
}

// remove takes out a lease that is being released, once.
func (hs *handles) remove(l *Lease) {
	if l.released {
		return
	}
	i, _ := hs.has(l)
	l.released = true
	for f := hs.fresh; f != nil && f.released; f = hs.fresh {
		hs.fresh, f.next = f.next, nil
	}
	if i >= 0 {
		hs.known = slices.Delete(hs.known, i, i+1)
	}
}

// reachable says whether the program can still release the hold, or wait for its
// end. From then on it keeps the leases weakly.
func (hs *handles) reachable() bool {
	for l := hs.fresh; l != nil; l = hs.fresh {
		if !l.released {
			hs.known = append(hs.known, weakLease{weak.Make(l), l.taken})
		}
		hs.fresh, l.next = l.next, nil
	}
	return hs.pinned || slices.ContainsFunc(hs.known, func(w weakLease) bool { return w.lease.Value() != nil })
}

// origin is the calls that took a lease, innermost first.
type origin [24]uintptr

// origin notes where a lease is taken, when that was asked for.
func (c *core) origin() *origin {
	if !c.recordCallers {
		return nil
	}
	o := new(origin)
	runtime.Callers(2, o[:])
	return o
}

// String lists the calls outside this package, one a line.
func (o *origin) String() string {
	if o == nil {
		return ""
	}
	var b strings.Builder
	calls := o[:]
	if n := slices.Index(calls, 0); n >= 0 {
		calls = calls[:n]
	}
	frames := runtime.CallersFrames(calls)
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function != "" && f.Function != "runtime.goexit" && !strings.HasPrefix(f.Function, "github.com/hasplock/hasp.") {
			fmt.Fprintf(&b, "%s (%s:%d)\n", f.Function, f.File, f.Line)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}
