// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"time"
)

var handoff = []Need{needHandoff}

var handoffCases = []Case{
	{Name: "HandoffIsAtOnce",
		Rule:  "A Release makes the next in the queue the owner at once, before it asks, and the claim keeps the fence and takes the full TTL.",
		Needs: handoff, claims: true, run: handoffIsAtOnce},
	{Name: "HandedOffPlaceIsNoPlace",
		Rule:  "Renew of a place that was handed the key is ErrNotHeld, so that its owner claims it.",
		Needs: handoff, claims: true,
		play: "grant a; join b c; release a; renew b queued gone; renew c queued; grant b queued"},
	{Name: "ReleaseOfAHandedOffKeyHandsItOn",
		Rule:  "A waiter that gives up after it was handed the key hands it off to the next.",
		Needs: handoff, claims: true,
		play: "grant a; join b c; release a b; held c; refuse b queued; grant c queued; release c; free"},
	{Name: "UnclaimedKeyGoesOn",
		Rule:  "A key that was handed to a waiter that never claims it goes to the next in the queue, within a bounded time.",
		Needs: handoff, timely: true,
		play: "grant a; join d brief; join b; release a; held d; turn b in=3ttl; held b"},
	{Name: "UnclaimedKeyGoesFree",
		Rule:  "A key that was handed to the only waiter, which never claims it, is free within a bounded time.",
		Needs: handoff, timely: true,
		play: "grant a; join d brief; release a; held d; inherit b in=3ttl"},
	{Name: "LapsedClaimKeepsThePlaceOnce",
		Rule:  "A waiter that did not claim the key once is still before later ones.",
		Needs: handoff,
		play:  "grant a; join d b c; release a; turn b in=long; join d; release b; turn d; release d; turn c"},
	{Name: "UnclaimedKeyWakesTheNext",
		Rule:  "When a waiter that was handed the key does not claim it, the next in the queue gets a hint once the claim time has passed, so that asking only then is enough.",
		Needs: handoff, timely: true,
		play: "grant a; join d mortal; await w elsewhere; release a; held d; enter w in=long; held w"},
	{Name: "ExpiryAfterAHandoffWakesTheFirst",
		Rule:  "A waiter that became the first in the queue by a handoff gets a hint when the lease of the one that claimed the key expires, so that asking only then is enough.",
		Needs: queueing, timely: true,
		play: "grant a; join d mortal; await w elsewhere; release a; turn d mortal; enter w in=ttl; held w"},
	{Name: "ExpiryAfterAnExpiryWakesTheFirst",
		Rule:  "A waiter that became the first in the queue because the one before it was granted a key that expired gets a hint when that lease expires, so that asking only then is enough.",
		Needs: queueing, timely: true,
		play: "grant a brief; join d mortal; await w elsewhere; turn d mortal in=ttl; enter w in=ttl; held w"},
	{Name: "StoppedWaitersDelayForTheirClaims",
		Rule:  "However many waiters before it do not claim the key, a waiter whose sign of life finds the key free gets a hint, and another after each claim time, also if it asks again meanwhile.",
		Needs: handoff, timely: true, run: stoppedWaiters},
	{Name: "DeadHolderHandsOn",
		Rule:  "A lease that expires goes to the first in the queue, and to nobody else, as if it had been released.",
		Needs: queueing, timely: true,
		play: "grant a brief; join b; join c elsewhere; inherit b queued over=c; held b"},
}

func handoffIsAtOnce(e *env) {
	a, b := e.ask("k"), e.ask("k")
	a.TTL = e.long / 8 // less than the claim has in the end, and more than a busy machine takes
	first := e.grant(e.d, a)
	e.join(e.open(), b, 0)
	start := time.Now()
	e.release(e.d, a)
	info := e.heldBy(b)
	if info.Waiters != 0 {
		e.Errorf("%d still wait", info.Waiters)
	}
	res := e.grant(e.open(), queued(b))
	if e.traits.Fencing && (res.Fence <= first.Fence || info.Fence != 0 && info.Fence != res.Fence) {
		e.Fatalf("the fence is %d after a holder with %d, and was %d when it was handed off", res.Fence, first.Fence, info.Fence)
	}
	if res.Abandoned {
		e.Fatalf("Abandoned, but the holder before released")
	}
	if most := time.Since(start) + 5*time.Millisecond; first.Handoff != 0 || res.Handoff < 0 || res.Handoff > most { // of whole milliseconds, by another clock
		e.Fatalf("it came %v after the release, and that was at most %v ago; a free key was handed over for %v", res.Handoff, most, first.Handoff)
	}
	if again := e.grant(e.open(), queued(b)); again.Handoff != 0 {
		e.Fatalf("asked again, it was handed the key for %v", again.Handoff)
	}
	if info := e.heldBy(b); !plausible(info.Left, e.long/2) {
		e.Fatalf("the claim of a lease of %v left %v", b.TTL, info.Left)
	}
}

func stoppedWaiters(e *env) {
	const n = 3
	a := e.ask("k")
	e.grant(e.d, a)
	for i := range n {
		stopped := e.ask("k")
		stopped.TTL = e.ttl
		e.join(e.open(), stopped, i) // each in its own process
	}
	w := e.await(e.open(), e.ask("k"), n)
	e.release(e.d, a)
	e.eventually(e.long, "a sign of life finds the key free", func() bool {
		got := e.renew(w.d, queued(w.r))[0]
		return w.now() || got.Err != nil || got.RetryIn > 0
	})
	if res := e.try(w.d, queued(w.r)); !res.Granted { // and this answer is lost
		e.see(w, e.try(w.d, queued(w.r)))
		e.enterIn(e.long, w)
	}
	e.heldBy(w.r)
}
