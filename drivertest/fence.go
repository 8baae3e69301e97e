// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"

	"github.com/hasplock/hasp/driver"
)

var fencing = []Need{needFencing}

var fenceCases = []Case{
	{Name: "FencesRise", // failure case 31
		Rule:  "Each later holder of a key has a strictly larger fence, on whichever connection it asked.",
		Needs: fencing, run: fencesRise},
	{Name: "FencesRiseOverHandoffs",
		Rule:  "A holder that was handed the key has a strictly larger fence than the previous one.",
		Needs: []Need{needFencing, needQueue}, run: fencesRiseOverHandoffs},
	{Name: "FencesRiseOverExpiry",
		Rule:  "A holder after one whose lease expired has a strictly larger fence.",
		Needs: fencing, run: fencesRiseOverExpiry},
	{Name: "FencesRiseOverIdleTime",
		Rule:  "Fences keep rising after the key was free for a long time and the store keeps nothing for it.",
		Needs: fencing, run: fencesRiseOverIdleTime},
	{Name: "FencesInARow",
		Rule:  "A grant of several fences has them all above earlier and below later ones; asking again returns only the last.",
		Needs: fencing, run: fencesInARow},
}

// rises fails unless a grant's fence is above the one before, and returns it.
func (e *env) rises(before uint64, res driver.Result) uint64 {
	e.Helper()
	if res.Fence <= before {
		e.Fatalf("the fence is %d after a holder with %d", res.Fence, before)
	}
	return res.Fence
}

func fencesRise(e *env) {
	ds := []driver.Driver{e.d, e.open(), e.open()}
	var fence uint64
	rounds := 100
	if e.fake {
		rounds = 1000
	}
	for i := range rounds {
		a, b := e.ask("k"), e.ask("other")
		d := ds[i%len(ds)]
		fence = e.rises(fence, e.grant(d, a))
		e.grant(d, b)
		e.release(d, a)
		e.release(d, b)
	}
}

func fencesRiseOverHandoffs(e *env) {
	r := e.ask("k")
	fence := e.rises(0, e.grant(e.d, r))
	for range 20 {
		next := e.ask("k")
		e.join(e.d, next, 0)
		e.release(e.d, r)
		fence = e.rises(fence, e.turn(e.d, next, 0))
		if info := e.heldBy(next); info.Fence != 0 && info.Fence != fence {
			e.Fatalf("the fence is %d, and %d to Inspect", fence, info.Fence)
		}
		r = next
	}
}

func fencesRiseOverExpiry(e *env) {
	var fence uint64
	for range 4 {
		fence = e.rises(fence, e.inherit(e.d, e.brief(e.ask("k"))))
	}
	next := e.ask("k")
	if e.traits.Queue != driver.QueueNone {
		e.rises(fence, e.turn(e.d, next, e.ttl))
	}
}

func fencesRiseOverIdleTime(e *env) {
	a := e.ask("k")
	fence := e.rises(0, e.grant(e.d, a))
	e.release(e.d, a)
	e.free("k")
	if e.fake {
		time.Sleep(48 * time.Hour)
	} else {
		time.Sleep(2 * e.ttl) // no event to wait for: time must pass
	}
	e.rises(fence, e.grant(e.open(), e.ask("k")))
}

func fencesInARow(e *env) {
	const n = 5
	first, a := e.ask("k"), e.ask("k")
	fence := e.grant(e.d, first).Fence
	e.release(e.d, first)
	a.Fences = n
	res := e.grant(e.d, a)
	e.inARow(fence, n, res)
	if again := e.grant(e.open(), a); again.Fence != res.Fence || again.Fences > 1 {
		e.Fatalf("asked again: %d fences up to %d, the first time %d up to %d", again.Fences, again.Fence, res.Fences, res.Fence)
	}
	b := e.ask("k")
	b.Fences = n
	if needQueue.Met(e.d) {
		e.join(e.d, b, 0)
	}
	e.release(e.d, a)
	next := e.turn(e.d, queued(b), 0)
	e.inARow(res.Fence, n, next)
	e.release(e.d, b)
	e.rises(next.Fence, e.grant(e.d, e.ask("k")))
}

// inARow fails unless a grant of at most n fences has them all above before.
func (e *env) inARow(before uint64, n int, res driver.Result) {
	e.Helper()
	if res.Fences > n || res.Fence-uint64(max(res.Fences, 1)) < before {
		e.Fatalf("%d fences up to %d after %d; %d were asked for", res.Fences, res.Fence, before, n)
	}
}
