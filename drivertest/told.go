// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// told is one that waits and asks only when it was told to.
type told struct {
	d  driver.Driver
	r  contend.Owner
	ch <-chan struct{} // nil: it polls
	at time.Time       // when it was told to look; zero: it was not
}

// await watches for r and puts it in line behind so many.
func (e *env) await(d driver.Driver, r contend.Owner, ahead int) *told {
	e.Helper()
	w := &told{d: d, r: r, ch: e.watch(d, r)}
	e.see(w, e.join(d, r, ahead))
	return w
}

// awaitAll puts n in line behind so many, one after the other, on several connections.
func (e *env) awaitAll(n, ahead int, ask func() contend.Owner) (ws []*told) {
	e.Helper()
	ds := []driver.Driver{e.d, e.open(), e.open()}
	for i := range n {
		ws = append(ws, e.await(ds[i%len(ds)], ask(), ahead+i))
	}
	return ws
}

func (e *env) see(w *told, refused driver.Result) {
	w.at = time.Time{}
	if refused.RetryIn > 0 {
		w.at = time.Now().Add(refused.RetryIn)
	}
}

// now says whether it was told to ask.
func (w *told) now() bool {
	select {
	case <-w.ch:
		return true
	default:
		return w.ch == nil || !w.at.IsZero() && !time.Now().Before(w.at)
	}
}

// enter lets each ask when it is told to, until all are granted.
func (e *env) enter(ws ...*told) {
	e.Helper()
	e.enterIn(0, ws...)
}

// enterIn is enter for those that may have to wait so long.
func (e *env) enterIn(limit time.Duration, ws ...*told) {
	e.Helper()
	ws = slices.Clone(ws)
	e.eventually(limit, "all that wait were told and are granted the key", func() bool {
		ws = slices.DeleteFunc(ws, func(w *told) bool {
			if !w.now() {
				return false
			}
			res := e.try(w.d, queued(w.r))
			e.see(w, res)
			return res.Granted
		})
		return len(ws) == 0
	})
}

// quiet fails when one that must still wait was told to ask by the store that hands
// the key on. Where a line is on one of several stores it may move, which all are told.
func (e *env) quiet(ws ...*told) {
	e.Helper()
	for _, w := range ws {
		select {
		case <-w.ch:
			if e.traits.Queue != driver.QueueHandoff {
				break
			}
			e.Errorf("%s was told to ask, but has to wait", w.r.Owner)
		default:
		}
		e.refuse(w.d, queued(w.r))
	}
}

func requests(ws ...*told) (rs []contend.Owner) {
	for _, w := range ws {
		rs = append(rs, w.r)
	}
	return rs
}

func (e *env) releaseAll(rs ...contend.Owner) {
	e.Helper()
	for _, r := range rs {
		e.release(e.d, r)
	}
}
