// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"weak"
)

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
	caller context.Context // of the call that took the hold; nil without an observer
	left   error           // why a key that Close left to a function of Do is not free
	fresh  *Lease          // of those that were not released, until the next renewal; linked
	known  []weakLease     // those of before
	pinned bool            // a channel of it was handed out
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
	if !c.recordTaken {
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
