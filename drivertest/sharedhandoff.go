// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/internal/contend"
)

var sharedHandoff = []Need{needShared, needHandoff}

var sharedHandoffCases = []Case{
	{Name: "SharedHandoffIsAtOnce",
		Rule:  "A Release makes all the readers at the front of the queue holders at once, before they ask, and each claim takes the full TTL.",
		Needs: sharedHandoff, claims: true, run: sharedHandoffIsAtOnce},
	{Name: "HandedOffReaderIsNoPlace",
		Rule:  "Renew of a reader's place that was handed the key is ErrNotHeld, while those still in the queue keep theirs.",
		Needs: sharedHandoff, claims: true, run: handedOverReader},
	{Name: "ReleaseOfHandedOffSharesHandsThemOn",
		Rule:  "Readers that give up after they were handed the key leave it to those that were handed it at the same time, and the last of them to the next in the queue.",
		Needs: sharedHandoff, claims: true, run: releaseOfHandedOffShares},
	{Name: "UnclaimedSharesGoOn",
		Rule:  "A key that was handed to readers that never claim it goes to the writer behind them, within a bounded time.",
		Needs: sharedHandoff, timely: true, run: unclaimedSharesGoOn},
	{Name: "LapsedSharesKeepTheirPlacesOnce",
		Rule:  "Readers that did not claim the key once are still before later ones, in their order.",
		Needs: sharedHandoff, run: lapsedShares},
}

func sharedHandoffIsAtOnce(e *env) {
	a, r1, r2, w := e.ask("k"), e.reader("k"), e.reader("k"), e.ask("k")
	first := e.grant(e.d, a)
	e.join(e.open(), r1, 0)
	e.join(e.d, r2, 1)
	e.join(e.d, w, 2)
	e.release(e.d, a)
	if info := e.sharedBy(r1, r2); info.Waiters != 1 {
		e.Errorf("%d wait, want the writer", info.Waiters)
	}
	fence := first.Fence
	for _, r := range []contend.Owner{r1, r2} {
		res := e.grant(e.open(), queued(r))
		if e.traits.Fencing {
			fence = e.rises(fence, res)
		}
		if res.Abandoned {
			e.Error("Abandoned, but the holder before released")
		}
		if left := e.left(r); !plausible(left, e.long/2) {
			e.Errorf("the claim of a lease of %v left %v", r.TTL, left)
		}
	}
}

func handedOverReader(e *env) {
	a, r1, r2, w := e.ask("k"), e.reader("k"), e.reader("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, r1, 0)
	e.join(e.d, r2, 1)
	e.join(e.d, w, 2)
	e.release(e.d, a)
	e.renewNothing(e.d, queued(r2))
	e.renewNothing(e.d, queued(r1))
	e.renewed(e.d, queued(w))
	e.grant(e.d, queued(r2))
	e.grant(e.d, queued(r1))
}

func releaseOfHandedOffShares(e *env) {
	a, r1, r2, w := e.ask("k"), e.reader("k"), e.reader("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, r1, 0)
	e.join(e.d, r2, 1)
	e.join(e.d, w, 2)
	e.release(e.d, a)
	e.release(e.d, r1)
	e.sharedBy(r2)
	e.release(e.d, r2)
	e.heldBy(w)
	e.refuse(e.d, queued(r1))
	e.grant(e.d, queued(w))
	e.release(e.d, w)
	e.free("k")
}

func unclaimedSharesGoOn(e *env) {
	a, w := e.ask("k"), e.ask("k")
	e.grant(e.d, a)
	for i := range 5 {
		e.join(e.d, e.brief(e.reader("k")), i)
	}
	e.join(e.d, w, 5)
	e.release(e.d, a)
	e.turn(e.d, w, 3*e.ttl)
	e.heldBy(w)
}

func lapsedShares(e *env) {
	a, slow1, slow2, w, late := e.ask("k"), e.reader("k"), e.reader("k"), e.ask("k"), e.reader("k")
	e.grant(e.d, a)
	e.join(e.d, slow1, 0)
	e.join(e.d, slow2, 1)
	e.join(e.d, w, 2)
	last := e.ask("k")
	e.join(e.d, last, 3)
	e.join(e.d, late, 4)
	e.release(e.d, a)
	e.turn(e.d, w, e.long) // whatever this engine's claim time is
	waiting := e.heldBy(w).Queue
	if len(waiting) != 4 || waiting[0].Owner != slow1.Owner || waiting[1].Owner != slow2.Owner || waiting[2].Owner != last.Owner {
		e.Fatalf("the queue is %+v", waiting)
	}
	for _, r := range []contend.Owner{slow1, slow2, last, late} {
		e.renewed(e.d, queued(r)) // they are slow, but live
	}
	e.release(e.d, w)
	e.turn(e.d, slow1, 0)
	e.turn(e.d, slow2, 0)
	e.sharedBy(slow1, slow2)
	e.refuse(e.d, queued(late))
	e.releaseAll(slow1, slow2)
	e.turn(e.d, last, 0)
}
