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
		Needs: fencing,
		play:  "100/1000 times; grant a spread rises; grant b@other spread; release a b@other"},
	{Name: "FencesRiseOverHandoffs",
		Rule:  "A holder that was handed the key has a strictly larger fence than the previous one.",
		Needs: []Need{needFencing, needQueue},
		play:  "grant w0 rises;" + each(rounds(20), "join w#+1; release w#; turn w#+1 rises; held w#+1; has w#+1 same")},
	{Name: "FencesRiseOverExpiry",
		Rule:  "A holder after one whose lease expired has a strictly larger fence.",
		Needs: fencing,
		play:  "inherit a brief rises; inherit b brief rises; inherit c brief rises; inherit d brief rises; queue? turn w in=ttl rises"},
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
