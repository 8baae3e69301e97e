// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// The renewer keeps all leases and places of a client alive, and declares the
// loss of leases. It is one goroutine, which runs only while there is
// something to keep. What is due together goes out in one Renew.
//
// Loss is declared by its clock and never waits for the store: the loop makes
// no calls itself.

const (
	// tick is how often the clock is asked while there are leases: Go's timers
	// stand still while the machine sleeps.
	tick = 250 * time.Millisecond
	// jumped is how much more than the monotonic clock another clock must show
	// for one tick before every lease is looked at.
	jumped = time.Millisecond
	// maxCalls bounds the Renew calls under way. Only calls without an answer
	// add up: one for each tick, until their time is over.
	maxCalls = 64
)

// kept is a lease or a place in line that needs the renewer.
type kept interface {
	// due says whether to renew at now, or in a hurry: the clock jumped, and
	// less is left than was planned with; and whether the lease is over.
	due(now clock.Instant, hurry bool) (renew, over bool)
	// nextLook is when due must be asked again.
	nextLook(now clock.Instant) time.Duration
	// request is what to send, if anything.
	request() (r driver.Request, ok bool)
	// renewed takes the answer to a renewal that began at start.
	renewed(start clock.Instant, r driver.Renewal)
	// expire is called, without locks, when due said over. What it returns
	// tells the observer, who may be slow.
	expire() (tell func())
	queue() *slot
}

// slot is where a kept stands in the renewer's heap; guarded by renewer.mu.
type slot struct {
	next  time.Duration // when to look, on the monotonic clock
	index int           // 1-based: 0 is not in the heap
}

func (s *slot) queue() *slot { return s }

type renewer struct {
	c    *Client
	wake chan struct{} // something is due earlier than the loop thinks

	mu      sync.Mutex
	heap    keptHeap
	running bool
	shutOff bool
	until   time.Duration // when the loop looks next
	calls   int           // Renew calls under way
	last    clock.Instant // of the latest look
}

// add puts something under the renewer's care. It says no once Close began.
func (r *renewer) add(k kept, now clock.Instant) bool {
	next := k.nextLook(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shutOff {
		return false
	}
	k.queue().next = next
	heap.Push(&r.heap, k)
	if !r.running {
		r.running, r.until, r.last = true, 0, now
		go r.run()
	}
	r.wakeFor(next)
	return true
}

// again asks something anew when to look at it; nothing happens once it was
// removed.
func (r *renewer) again(k kept, now clock.Instant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := k.nextLook(now)
	if s := k.queue(); s.index > 0 {
		s.next = next
		heap.Fix(&r.heap, s.index-1)
		r.wakeFor(next)
	}
}

// wakeFor wakes the loop when next is before its next look. r.mu is held.
func (r *renewer) wakeFor(next time.Duration) {
	if next < r.until {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *renewer) remove(k kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := k.queue(); s.index > 0 {
		heap.Remove(&r.heap, s.index-1)
	}
}

// shut stops the loop for good and returns the leases that were kept.
func (r *renewer) shut() []*hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shutOff = true
	var holds []*hold
	for _, k := range r.heap {
		k.queue().index = 0
		if h, ok := k.(*hold); ok {
			holds = append(holds, h)
		}
	}
	r.heap = nil
	r.until = 1<<63 - 1
	r.wakeFor(0)
	return holds
}

func (r *renewer) run() {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		wait, ok := r.look()
		if !ok {
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-r.wake:
		}
	}
}

// look does what is due, and says when to look next. ok is false when nothing
// is kept any more: the loop ends.
func (r *renewer) look() (wait time.Duration, ok bool) {
	now := r.c.now()
	due, over := r.collect(now)
	var tells []func()
	for _, k := range over {
		if tell := k.expire(); tell != nil {
			tells = append(tells, tell)
		}
	}
	if len(tells) > 0 {
		go func() {
			for _, tell := range tells {
				tell()
			}
		}()
	}
	r.send(due)

	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.heap) == 0 {
		// A program that locks and unlocks one key all day keeps its loop.
		if r.shutOff || r.until != 0 && now.Mono >= r.until {
			r.running = false
			return 0, false
		}
		if r.until == 0 {
			r.until = now.Mono + tick
		}
		return tick, true
	}
	now = r.c.now()
	r.until = min(r.heap[0].queue().next, now.Mono+tick)
	return max(r.until-now.Mono, 0), true
}

// collect takes what is due or over at now, and reschedules it.
func (r *renewer) collect(now clock.Instant) (due, over []kept) {
	r.mu.Lock()
	defer r.mu.Unlock()
	jump := now.Sub(r.last) - (now.Mono - r.last.Mono)
	r.last = now
	var looked []kept
	for len(r.heap) > 0 && (jump > jumped || r.heap[0].queue().next <= now.Mono+tick) {
		looked = append(looked, heap.Pop(&r.heap).(kept))
	}
	full := r.calls >= maxCalls
	for _, k := range looked {
		renew, ended := k.due(now, jump > tick)
		switch {
		case ended:
			over = append(over, k)
			continue
		case renew && !full:
			due = append(due, k)
		}
		k.queue().next = k.nextLook(now)
		heap.Push(&r.heap, k)
	}
	return due, over
}

// send renews what is due, in one call in the background.
func (r *renewer) send(due []kept) {
	if len(due) == 0 || !r.c.enter() {
		return
	}
	r.mu.Lock()
	r.calls++
	r.mu.Unlock()
	go func() {
		defer r.c.leave()
		r.renew(due)
		r.mu.Lock()
		r.calls--
		r.mu.Unlock()
	}()
}

func (r *renewer) renew(due []kept) {
	type item struct {
		kept
		req driver.Request
	}
	items := make([]item, 0, len(due))
	for _, k := range due {
		if req, ok := k.request(); ok {
			items = append(items, item{k, req})
		}
	}
	if len(items) == 0 {
		return
	}
	// Engines put what has one TTL into one command.
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.req.TTL, b.req.TTL) })
	reqs := make([]driver.Request, len(items))
	for i := range items {
		reqs[i] = items[i].req
	}
	// An answer that takes longer than this is not worth waiting for: the
	// leases were sent again since, or are over.
	longest := reqs[len(reqs)-1].TTL
	ctx, cancel := context.WithTimeout(r.c.open, min(max(longest/3, min(longest, 2*time.Second)), renewLimit))
	defer cancel()
	var mu sync.Mutex
	answered := make([]bool, len(items))
	start := r.c.now()
	r.c.drv.Renew(ctx, reqs, func(i int, a driver.Renewal) {
		mu.Lock()
		answered[i] = true
		mu.Unlock()
		items[i].renewed(start, a)
	})
	for i, ok := range answered {
		if !ok {
			items[i].renewed(start, driver.Renewal{Err: unanswered(ctx)})
		}
	}
}

// due: renewal at TTL/3 after the start of the last one that was answered, and
// again every TTL/6 while there is no answer.
func (h *hold) due(now clock.Instant, hurry bool) (renew, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left(now) <= h.opts.Lead {
		return false, true
	}
	if h.renews() && (hurry || now.Mono+min(tick, h.span()/12) >= h.renewAt) {
		renew, h.renewing, h.renewAt = true, true, now.Mono+h.span()/6
	}
	return renew, false
}

// span is how long the latest answer is good for. Renewal goes by it, not by
// the TTL asked for: the engine's word may be shorter, and the lead is no time
// to renew in. h.mu is held.
func (h *hold) span() time.Duration { return h.valid - h.opts.Lead }

func (h *hold) nextLook(now clock.Instant) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := now.Mono + h.left(now) - h.opts.Lead
	if !h.renews() {
		return over
	}
	return min(over, h.renewAt)
}

func (h *hold) expire() func() { return h.lost(nil) }

// renews says whether the hold is to be renewed. h.mu is held.
func (h *hold) renews() bool { return !h.opts.NoRenew && !h.forgotten }

// granted sets the deadline from a call that began at start.
func (h *hold) granted(start, now clock.Instant, ttl time.Duration) {
	valid := ttl - drift(ttl)
	if valid-now.Sub(start) > h.valid-now.Sub(h.start) || h.valid == 0 {
		h.start, h.valid = start, valid
	}
	h.renewAt = start.Mono + (valid-h.opts.Lead)/3
	h.lastErr = nil
}

func (h *hold) renewed(start clock.Instant, r driver.Renewal) {
	if errors.Is(r.Err, ErrNotHeld) {
		h.lose(r.Err)
		return
	}
	h.mu.Lock()
	if h.end != nil || h.handles == 0 {
		h.mu.Unlock()
		return
	}
	h.renewing = false
	now := h.c.now()
	if h.valid != 0 && h.left(now) <= h.opts.Lead {
		// Too late, whatever the answer: others may have had the key since.
		h.mu.Unlock()
		h.lose(nil)
		return
	}
	var wished context.CancelFunc
	if r.Err == nil {
		h.granted(start, now, r.TTL)
		if h.wanted = h.wanted || r.Wanted; h.wanted {
			wished = h.wishEnd
		}
	} else {
		h.lastErr = r.Err
		h.renewAt = min(h.renewAt, now.Mono+jitter(h.span()/12))
	}
	left := h.left(now) - h.opts.Lead
	h.mu.Unlock()
	h.c.renewer.again(h, now)
	if wished != nil {
		wished()
	}
	kind := EventRenewed
	if r.Err != nil {
		kind = EventRenewFailed
	}
	h.tell(kind, func(e *Event) { e.Left, e.Err = left, r.Err })
}

// jitter returns a random duration of at least d/2 and less than 3d/2.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(max(d, 1))
}

// keptHeap is ordered by when to look.
type keptHeap []kept

func (q keptHeap) Len() int           { return len(q) }
func (q keptHeap) Less(i, j int) bool { return q[i].queue().next < q[j].queue().next }
func (q keptHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].queue().index, q[j].queue().index = i+1, j+1
}
func (q *keptHeap) Push(x any) {
	k := x.(kept)
	*q = append(*q, k)
	k.queue().index = len(*q)
}
func (q *keptHeap) Pop() any {
	old := *q
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	k.queue().index = 0
	return k
}
