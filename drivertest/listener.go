// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// listener is a waiter that asks only on a hint, or at the time of its refusal's RetryIn.
type listener struct {
	d  driver.Driver
	r  contend.Owner
	ch <-chan struct{} // nil: it polls
	at time.Time       // when to ask without a hint; zero: never
}

// await watches for r and puts it in the queue behind ahead others.
func (e *env) await(d driver.Driver, r contend.Owner, ahead int) *listener {
	e.Helper()
	w := &listener{d: d, r: r, ch: e.watch(d, r)}
	e.see(w, e.join(d, r, ahead))
	return w
}

func (e *env) see(w *listener, refused driver.Result) {
	w.at = time.Time{}
	if refused.RetryIn > 0 {
		w.at = time.Now().Add(refused.RetryIn)
	}
}

// now reports whether it is time to ask.
func (w *listener) now() bool {
	select {
	case <-w.ch:
		return true
	default:
		return w.ch == nil || !w.at.IsZero() && !time.Now().Before(w.at)
	}
}

// enter lets each ask when it is time to, until all are granted.
func (e *env) enter(ws ...*listener) {
	e.Helper()
	e.enterIn(0, ws...)
}

// enterIn is enter with a limit on the wait. What their requests take does not count: many take long on a busy machine.
func (e *env) enterIn(limit time.Duration, ws ...*listener) {
	e.Helper()
	ws = slices.Clone(ws)
	start, asking := time.Now(), time.Duration(0)
	for {
		ws = slices.DeleteFunc(ws, func(w *listener) bool {
			if !w.now() {
				return false
			}
			begun := time.Now()
			res := e.try(w.d, queued(w.r))
			asking += time.Since(begun)
			e.see(w, res)
			return res.Granted
		})
		if len(ws) == 0 {
			return
		}
		if waited := time.Since(start) - asking; waited > limit+e.slack+e.lost() {
			e.TB.Fatalf("after %v: %d who wait got no hint, or are not granted the key", waited.Round(time.Millisecond), len(ws))
		}
		e.pause()
	}
}

// quiet fails if a listener that must still wait got a hint from a store that hands keys
// off. If the queue is on one of several stores it may move, with a hint for all.
func (e *env) quiet(ws ...*listener) {
	e.Helper()
	for _, w := range ws {
		select {
		case <-w.ch:
			if e.traits.Queue != driver.QueueHandoff {
				break
			}
			e.Errorf("%s got a hint, but has to wait", w.r.Owner)
		default:
		}
		e.refuse(w.d, queued(w.r))
	}
}

func (e *env) releaseAll(rs ...contend.Owner) {
	e.Helper()
	for _, r := range rs {
		e.release(e.d, r)
	}
}
