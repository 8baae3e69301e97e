// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var queueing = []Need{needQueue}

var queueCases = []Case{
	{Name: "QueueIsInOrder", // failure case 24
		Rule:  "The queue is served in the order in which its owners first asked, on whichever connection.",
		Needs: queueing, claims: true, run: queueIsInOrder},
	{Name: "TryAgainKeepsThePlace",
		Rule:  "Asking again with the same owner keeps its place, and adds no second one.",
		Needs: queueing, run: tryAgainKeepsThePlace},
	{Name: "NobodyOvertakesALivePlace",
		Rule:  "Nobody is granted the key past a live place of another, with or without Queue, and each refusal says how many are ahead.",
		Needs: queueing, run: nobodyOvertakes},
	{Name: "DeadPlaceIsSkipped",
		Rule:  "A place without a sign of life for its patience is skipped.",
		Needs: queueing, timely: true, run: deadPlaceIsSkipped},
	{Name: "ManyDeadPlacesAreSkipped",
		Rule:  "However many dead places are in front, the first live one is served.",
		Needs: queueing, run: manyDeadPlaces},
	{Name: "PatienceIsEachPlacesOwn",
		Rule:  "Each place lasts for its own patience, whatever other places are in the queue.",
		Needs: queueing, timely: true, run: patienceIsEachOnes},
	{Name: "RenewKeepsThePlace",
		Rule:  "A Renew with Queue is a sign of life: it keeps a place beyond its patience, and its order.",
		Needs: queueing, timely: true, run: func(e *env) {
			keepsThePlace(e, func(r contend.Owner) { e.renewed(e.d, queued(r)) })
		}},
	{Name: "TryIsASignOfLife",
		Rule:  "A Try with Queue is a sign of life: it keeps a place beyond its patience, and its order.",
		Needs: queueing, timely: true, run: func(e *env) {
			keepsThePlace(e, func(r contend.Owner) { e.refuse(e.d, queued(r)) })
		}},
	{Name: "ReleaseLeavesTheQueue",
		Rule:  "Release of a place removes it from the queue and keeps the order of the others.",
		Needs: queueing, run: releaseLeavesTheQueue},
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
		Needs: []Need{needNoQueue}, run: queueIsIgnored},
	{Name: "ReleasedBeforeWatch", // failure case 15
		Rule:  "A key released between a refusal and Watch is granted to the Try that follows Watch.",
		Needs: queueing, run: releasedBeforeWatch},
}

func queueIsInOrder(e *env) {
	const n = 10
	a := e.ask("k")
	e.grant(e.d, a)
	var rs []contend.Owner
	var ds []driver.Driver
	for i := range n {
		d, r := e.open(), e.ask("k")
		e.join(d, r, i)
		rs, ds = append(rs, r), append(ds, d)
	}
	info := e.heldBy(a)
	if info.Waiters != n || len(info.Queue) != n {
		e.Fatalf("%d wait, %d in the list, want %d", info.Waiters, len(info.Queue), n)
	}
	for i, h := range info.Queue {
		if h.Owner != rs[i].Owner || h.Label != rs[i].Label {
			e.Errorf("place %d is %+v, want the owner %s", i, h, rs[i].Owner)
		}
	}
	e.release(e.d, a)
	for i, r := range rs { // each after all behind it asked
		for j := n - 1; j > i; j-- {
			if res := e.try(ds[j], queued(rs[j])); res.Granted {
				e.Fatalf("the %d. in the queue was granted the key, which was released to the %d.: %+v", j+1, i+1, res)
			}
		}
		e.turn(ds[i], r, 0)
		e.heldBy(r)
		e.release(ds[i], r)
	}
	e.free("k")
}

func tryAgainKeepsThePlace(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	e.join(e.d, c, 1)
	for range 2 {
		e.join(e.open(), b, 0)
		e.join(e.d, c, 1)
	}
	if info := e.heldBy(a); info.Waiters != 2 {
		e.Errorf("%d wait, want 2", info.Waiters)
	}
}

func nobodyOvertakes(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	other := e.open()
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	if res := e.refuse(other, c); res.Ahead != 1 {
		e.Errorf("Ahead is %d, want 1: %+v", res.Ahead, res)
	}
	e.release(e.d, a)
	e.refuse(other, c)
	e.join(other, c, e.inspect("k").Waiters)
	e.refuse(other, e.ask("k"))
	e.turn(e.d, b, 0)
	e.release(e.d, b)
	e.turn(other, c, 0)
}

func deadPlaceIsSkipped(e *env) {
	a, dead, b := e.ask("k"), e.brief(e.ask("k")), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, dead, 0)
	e.join(e.d, b, 1)
	e.eventually(e.ttl, "the place without a sign of life is gone", func() bool {
		return e.inspect("k").Waiters == 1
	})
	e.release(e.d, a)
	e.turn(e.d, b, 0)
	e.heldBy(b)
	if res := e.refuse(e.d, queued(dead)); res.Ahead != 0 {
		e.Errorf("Ahead is %d, want 0", res.Ahead)
	}
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

func patienceIsEachOnes(e *env) {
	a, dead := e.ask("k"), e.brief(e.ask("k"))
	e.grant(e.d, a)
	before, after := e.ask("k"), e.ask("k")
	e.join(e.d, before, 0)
	e.join(e.d, dead, 1)
	e.join(e.d, after, 2)
	e.eventually(e.ttl, "the impatient place is gone", func() bool { return e.inspect("k").Waiters == 2 })
	waiting := e.inspect("k").Queue
	if len(waiting) != 2 || waiting[0].Owner != before.Owner || waiting[1].Owner != after.Owner {
		e.Errorf("the queue is %+v", waiting)
	}
}

// keepsThePlace gives signs of life to two places for three times their
// patience.
func keepsThePlace(e *env, sign func(contend.Owner)) {
	a, b, c := e.ask("k"), e.brief(e.ask("k")), e.brief(e.ask("k"))
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	e.join(e.d, c, 1)
	for start := time.Now(); time.Since(start) < 3*e.ttl; time.Sleep(e.ttl / 4) {
		sign(c)
		sign(b)
	}
	sign(c)
	sign(b)
	waiting := e.heldBy(a).Queue
	owners := func(h driver.Holder) bool { return h.Owner == b.Owner || h.Owner == c.Owner }
	if len(waiting) != 2 || !slices.ContainsFunc(waiting, owners) || waiting[0].Owner != b.Owner {
		e.Errorf("the queue is %+v", waiting)
	}
	e.release(e.d, a)
	e.turn(e.d, b, 0)
	e.heldBy(b)
}

func releaseLeavesTheQueue(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	var rs []contend.Owner
	for i := range 5 {
		r := e.ask("k")
		e.join(e.d, r, i)
		rs = append(rs, r)
	}
	for _, i := range []int{2, 0, 4} { // from the middle, the front, the end
		e.release(e.open(), rs[i])
		e.renewNothing(e.d, queued(rs[i]))
		e.releaseNothing(e.d, rs[i])
	}
	if info := e.heldBy(a); info.Waiters != 2 || info.Queue[0].Owner != rs[1].Owner || info.Queue[1].Owner != rs[3].Owner {
		e.Fatalf("the queue is %+v", info.Queue)
	}
	e.release(e.d, a)
	e.turn(e.d, rs[1], 0)
	e.release(e.d, rs[1])
	e.turn(e.d, rs[3], 0)
	e.release(e.d, rs[3])
	e.free("k")
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

func queueIsIgnored(e *env) {
	a, b, c := e.ask("k"), e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, b, 0)
	e.join(e.d, b, 0)
	e.join(e.open(), c, 0)
	if info := e.heldBy(a); info.Waiters != 0 || len(info.Queue) != 0 {
		e.Errorf("somebody waits: %+v", info)
	}
	if e.renewed(e.d, a).Wanted {
		e.Error("Wanted, but nobody can wait")
	}
	e.renewNothing(e.d, queued(b))
	e.releaseNothing(e.d, b)
	e.release(e.d, a)
	e.free("k")
	e.grant(e.d, queued(c))
	e.release(e.d, c)
	e.free("k")
}

func releasedBeforeWatch(e *env) {
	a, b := e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	other := e.open()
	e.refuse(other, b)
	e.release(e.d, a)
	e.watch(other, b)
	e.grant(other, queued(b))
}
