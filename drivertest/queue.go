// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
)

var queueing = []Need{needQueue}

var queueCases = []Case{
	{Name: "QueueIsInOrder", // failure case 24
		Rule:  "The queue is served in the order in which its owners first asked, on whichever connection.",
		Needs: queueing, claims: true,
		play: "grant a; join w0..w9 elsewhere; held a; waits w0..w9; release a; serve w0..w9; free"},
	{Name: "TryAgainKeepsThePlace",
		Rule:  "Asking again with the same owner keeps its place, and adds no second one.",
		Needs: queueing,
		play:  "grant a; join b c; join b elsewhere; join c; join b elsewhere; join c; held a; waits b c"},
	{Name: "NobodyOvertakesALivePlace",
		Rule:  "Nobody is granted the key past a live place of another, with or without Queue, and each refusal says how many are ahead.",
		Needs: queueing,
		play: `grant a; join b; refuse c elsewhere ahead=1; release a; refuse c; refuse c queued ahead=waiting; refuse d elsewhere=c; turn b;
			release b; turn c`},
	{Name: "DeadPlaceIsSkipped",
		Rule:  "A place without a sign of life for its patience is skipped.",
		Needs: queueing, timely: true,
		play: "grant a; join d brief; join b; until waiters=1; release a; turn b; held b; refuse d brief queued ahead=0"},
	{Name: "ManyDeadPlacesAreSkipped",
		Rule:  "However many dead places are in front, the first live one is served.",
		Needs: queueing, run: manyDeadPlaces},
	{Name: "PatienceIsEachPlacesOwn",
		Rule:  "Each place lasts for its own patience, whatever other places are in the queue.",
		Needs: queueing, timely: true,
		play: "grant a; join b; join d brief; join c; until waiters=2; waits b c"},
	{Name: "RenewKeepsThePlace",
		Rule:  "A Renew with Queue is a sign of life: it keeps a place beyond its patience, and its order.",
		Needs: queueing, timely: true,
		play: "grant a; join b brief; join c brief; live c b brief via=renew; waits b c; held a; release a; turn b brief; held b"},
	{Name: "TryIsASignOfLife",
		Rule:  "A Try with Queue is a sign of life: it keeps a place beyond its patience, and its order.",
		Needs: queueing, timely: true,
		play: "grant a; join b brief; join c brief; live c b brief via=try; waits b c; held a; release a; turn b brief; held b"},
	{Name: "ReleaseLeavesTheQueue",
		Rule:  "Release of a place removes it from the queue and keeps the order of the others.",
		Needs: queueing,
		play: `grant a; join b0..b4; release b2 elsewhere; renew b2 queued gone; release b2 gone; release b0 elsewhere;
			renew b0 queued gone; release b0 gone; release b4 elsewhere; renew b4 queued gone; release b4 gone; held a;
			waits b1 b3; release a; turn b1; release b1; turn b3; release b3; free`},
	{Name: "FirstInTheQueueKnowsWhenToAsk", // failure case 14
		Rule:  "The first in the queue learns when the holder's lease ends, and asking then, without any hint, is enough.",
		Needs: queueing, timely: true, run: firstKnowsWhen},
	{Name: "WhoBecomesFirstKnowsWhenToAsk",
		Rule:  "The next sign of life of a place that became the first in the queue is answered with a RetryIn at the holder's expiry.",
		Needs: queueing, run: whoBecomesFirst},
	{Name: "SignOfLifeTellsTheTurn",
		Rule:  "A sign of life of the first in the queue says that its turn has come, by ErrNotHeld or a RetryIn, so that asking then, without any hint, is enough.",
		Needs: queueing, claims: true, run: signOfLifeTellsTheTurn},
	{Name: "QueueIsIgnored",
		Rule:  "An engine without a queue ignores Queue: a refused request leaves no place, and nobody waits for its turn.",
		Needs: []Need{needNoQueue},
		play: `grant a; refuse b queued ahead=0; refuse b queued ahead=0; refuse c elsewhere queued ahead=0; held a; waits;
			renew a unwanted; renew b queued gone; release b gone; release a; free; grant c here queued; release c here; free`},
	{Name: "ReleasedBeforeWatch", // failure case 15
		Rule:  "A key released between a refusal and Watch is granted to the Try that follows Watch.",
		Needs: queueing,
		play:  "grant a; refuse b elsewhere; release a; watch b; grant b queued"},
}

// manyDeadPlaces inspects nothing between the joining and the release, so that the
// engine has to clean up by itself.
func manyDeadPlaces(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	for range 150 {
		e.refuse(e.d, queued(e.brief(e.ask("k"))))
	}
	b := e.ask("k")
	ch := e.watch(e.d, b)
	e.refuse(e.d, queued(b))
	time.Sleep(e.ttl + e.ttl/4) // time must pass
	e.release(e.d, a)
	e.woken(ch, e.d, b, driver.Result{})
	e.heldBy(b)
}

func firstKnowsWhen(e *env) {
	gone, b := e.brief(e.ask("k")), e.ask("k")
	start := time.Now()
	first := e.grant(e.d, gone)
	res := e.join(e.open(), b, 0)
	if res.RetryIn <= 0 || res.RetryIn > first.TTL {
		e.Fatalf("RetryIn is %v, want more than 0 and no more than the holder's %v: %+v", res.RetryIn, first.TTL, res)
	}
	for !res.Granted {
		if res.RetryIn <= 0 {
			e.Fatalf("the first in the queue does not learn when to ask: %+v", res)
		}
		if time.Since(start) > first.TTL+e.slack+e.lost() {
			e.Fatalf("not granted after %v, the holder's TTL was %v", time.Since(start), first.TTL)
		}
		time.Sleep(res.RetryIn)
		res = e.try(e.d, queued(b))
	}
	if took := time.Since(start); took < sure(first.TTL) {
		e.Errorf("granted after %v, within the TTL of %v", took, first.TTL)
	}
	e.heldBy(b)
}

func whoBecomesFirst(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	e.join(e.d, c, 1)
	e.release(e.d, b)
	left := cmp.Or(e.heldBy(a).Left, e.long)
	if res := e.renewed(e.d, queued(c)); res.RetryIn <= 0 || res.RetryIn > left {
		e.Errorf("RetryIn is %v, want more than 0 and no more than the %v that the holder has left", res.RetryIn, left)
	}
}

// signOfLifeTellsTheTurn: a waiter whose hints are lost has only its signs of life.
func signOfLifeTellsTheTurn(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	e.join(e.d, c, 1)
	e.release(e.open(), a)
	e.eventually(0, "its turn", func() bool {
		switch res := e.renew(e.d, queued(b))[0]; {
		case res.Err == nil && res.RetryIn == 0:
			return false // it waits for a hint
		case res.Err == nil:
			time.Sleep(res.RetryIn)
		case !errors.Is(res.Err, driver.ErrNotHeld):
			e.TB.Fatalf("Renew of a place: %v", res.Err)
		}
		return e.try(e.d, queued(b)).Granted
	})
	e.refuse(e.d, queued(c))
}
