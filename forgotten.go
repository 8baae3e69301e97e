// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"weak"

	"github.com/hasplock/hasp/driver"
)

// A lease that was dropped without Release is found out when it is to be
// renewed: until its first renewal the hold itself keeps its leases, from then on
// weakly. So a lease that is released earlier costs nothing for it.
//
// What keeps a lease: whoever can still reach it, each of its contexts until it
// has ended, since that refers to it, and for good a channel of Done or Wanted that was
// handed out, since nobody can tell whether somebody waits for that.

// weakLease is a lease that was not released.
type weakLease struct {
	lease weak.Pointer[Lease]
	taken *origin
}

// reachable says whether somebody can still release the hold, or waits for its
// end. h.mu is held.
func (h *hold) reachable() bool {
	for l := h.fresh; l != nil; l = h.fresh {
		if !l.released {
			h.known = append(h.known, weakLease{weak.Make(l), l.taken})
		}
		h.fresh, l.next = l.next, nil
	}
	return h.pinned || slices.ContainsFunc(h.known, func(w weakLease) bool { return w.lease.Value() != nil })
}

// unlist takes a lease that was released from those that keep the hold. h.mu
// is held.
func (h *hold) unlist(l *Lease) {
	for f := h.fresh; f != nil && f.released; f = h.fresh {
		h.fresh, f.next = f.next, nil
	}
	if len(h.known) > 0 {
		w := weak.Make(l)
		h.known = slices.DeleteFunc(h.known, func(k weakLease) bool { return k.lease == w })
	}
}

// pin keeps the hold until its end.
func (h *hold) pin() {
	h.mu.Lock()
	h.pinned = true
	h.mu.Unlock()
}

// request is what to send, unless nobody can reach the hold: then it is told,
// and the TTL ends it.
func (h *hold) request() (r driver.Request, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end != nil || h.handles == 0 || !h.forgotten && h.reachable() {
		return h.req, true
	}
	if !h.forgotten {
		h.forgotten = true
		now := h.c.now()
		held, left, taken := now.Sub(h.born), h.left(now)-h.opts.Lead, h.known[0].taken
		err := fmt.Errorf("dropped without Release: nobody can reach this lease any more, so it is not renewed and ends in %v", shortDuration(left))
		go h.tell(EventForgotten, func(e *Event) {
			e.Held, e.Left, e.Taken, e.Err = held, left, taken.String(), h.c.fail("hold", h.req.Key, err)
		})
	}
	return h.req, false
}

// origin is the calls that took a lease, innermost first.
type origin [24]uintptr

// origin notes where a lease is taken, when that was asked for.
func (c *Client) origin() *origin {
	if !c.recordTaken {
		return nil
	}
	o := new(origin)
	runtime.Callers(2, o[:])
	return o
}

// takenHere notes that the caller takes a lease that was another's turn.
func (l *Lease) takenHere() {
	if o := l.h.c.origin(); o != nil {
		l.h.mu.Lock()
		l.taken = o
		l.h.mu.Unlock()
	}
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
