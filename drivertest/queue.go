// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var queueing = []Need{needQueue}

var queueCases = []Case{
	{Name: "QueueIsInOrder", Needs: queueing, claims: true, // failure case 24
		Rule: "The queue is served in the order in which its owners first asked, on whichever connection.",
		play: "grant a; join w0..w9 elsewhere; held a; waits w0..w9; release a; serve w0..w9; free"},
	{Name: "TryAgainKeepsThePlace", Needs: queueing,
		Rule: "Asking again with the same owner keeps its place, and adds no second one.",
		play: "grant a; join b c; join b elsewhere; join c; join b elsewhere; join c; held a; waits b c"},
	{Name: "NobodyOvertakesALivePlace", Needs: queueing,
		Rule: "No owner is granted the key past a live place of another, with or without Queue, and each refusal says how many are ahead.",
		play: `grant a; join b; refuse c elsewhere ahead=1; release a; refuse c; refuse c queued ahead=waiting; refuse d elsewhere=c; turn b;
			release b; turn c`},
	{Name: "DeadPlaceIsSkipped", Needs: queueing, timely: true,
		Rule: "A place without a sign of life for its patience is skipped.",
		play: "grant a; join d brief; join b; until waiters=1; release a; turn b; held b; refuse d brief queued ahead=0"},
	{Name: "ManyDeadPlacesAreSkipped", Needs: queueing, // nothing is inspected meanwhile: the engine has to clean up by itself
		Rule: "However many dead places are in front, the first live one is served.",
		play: "grant a; refuse d1..d150 queued brief; listen b; refuse b queued; pause; release a; enter b; held b"},
	{Name: "PatienceIsEachPlacesOwn", Needs: queueing, timely: true,
		Rule: "Each place lasts for its own patience, whatever other places are in the queue.",
		play: "grant a; join b; join d brief; join c; until waiters=2; waits b c"},
	{Name: "RenewKeepsThePlace", Needs: queueing, timely: true,
		Rule: "A Renew with Queue is a sign of life: it keeps a place beyond its patience, and its order.",
		play: "grant a; join b brief; join c brief; live c b brief via=renew; waits b c; held a; release a; turn b brief; held b"},
	{Name: "TryIsASignOfLife", Needs: queueing, timely: true,
		Rule: "A Try with Queue is a sign of life: it keeps a place beyond its patience, and its order.",
		play: "grant a; join b brief; join c brief; live c b brief via=try; waits b c; held a; release a; turn b brief; held b"},
	{Name: "ReleaseLeavesTheQueue", Needs: queueing,
		Rule: "Release of a place removes it from the queue and keeps the order of the others.",
		play: `grant a; join b0..b4; release b2 elsewhere; renew b2 queued gone; release b2 gone; release b0 elsewhere;
			renew b0 queued gone; release b0 gone; release b4 elsewhere; renew b4 queued gone; release b4 gone; held a;
			waits b1 b3; release a; turn b1; release b1; turn b3; release b3; free`},
	{Name: "FirstInTheQueueKnowsWhenToAsk", Needs: queueing, timely: true, // failure case 14
		Rule: "The first in the queue learns when the holder's lease ends, and asking then, without any hint, is enough.",
		play: "grant a brief; await b elsewhere deaf wakes=a; enter b in=a after=a; held b"},
	{Name: "WhoBecomesFirstKnowsWhenToAsk", Needs: queueing,
		Rule: "The next sign of life of a place that became the first in the queue is answered with a RetryIn at the holder's expiry.",
		play: "grant a; join b c; release b; held a; renew c queued wakes=left"},
	{Name: "SignOfLifeTellsTheTurn",
		Rule:  "A sign of life of the first in the queue says that its turn has come, by ErrNotHeld or a RetryIn, so that asking then, without any hint, is enough.",
		Needs: queueing, claims: true, run: signOfLifeTellsTheTurn},
	{Name: "QueueIsIgnored", Needs: []Need{needNoQueue},
		Rule: "An engine without a queue ignores Queue: a refused request leaves no place, and no owner waits for its turn.",
		play: `grant a; refuse b queued ahead=0; refuse b queued ahead=0; refuse c elsewhere queued ahead=0; held a; waits;
			renew a unwanted; renew b queued gone; release b gone; release a; free; grant c here queued; release c here; free`},
	{Name: "ReleasedBeforeWatch", Needs: queueing, // failure case 15
		Rule: "A key released between a refusal and Watch is granted to the Try that follows Watch.",
		play: "grant a; refuse b elsewhere; release a; watch b; grant b queued"},
	{Name: "HandoffIsAtOnce",
		Rule:  "A Release makes the next in the queue the owner at once, before it asks, and the claim keeps the fence and takes the full TTL.",
		Needs: handoff, claims: true, run: handoffIsAtOnce},
	{Name: "HandedOffPlaceIsNoPlace", Needs: handoff, claims: true,
		Rule: "Renew of a place that was handed the key is ErrNotHeld, so that its owner claims it.",
		play: "grant a; join b c; release a; renew b queued gone; renew c queued; grant b queued"},
	{Name: "ReleaseOfAHandedOffKeyHandsItOn", Needs: handoff, claims: true,
		Rule: "A waiter that gives up after it was handed the key hands it off to the next.",
		play: "grant a; join b c; release a b; held c; refuse b queued; grant c queued; release c; free"},
	{Name: "UnclaimedKeyGoesOn", Needs: handoff, timely: true,
		Rule: "A key that was handed to a waiter that never claims it goes to the next in the queue, within a bounded time.",
		play: "grant a; join d brief; join b; release a; held d; turn b in=3ttl; held b"},
	{Name: "UnclaimedKeyGoesFree", Needs: handoff, timely: true,
		Rule: "A key that was handed to the only waiter, which never claims it, is free within a bounded time.",
		play: "grant a; join d brief; release a; held d; inherit b in=3ttl"},
	{Name: "LapsedClaimKeepsThePlaceOnce", Needs: handoff,
		Rule: "A waiter that did not claim the key once is still before later ones.",
		play: "grant a; join d b c; release a; turn b in=long; join d; release b; turn d; release d; turn c"},
	{Name: "UnclaimedKeyWakesTheNext", Needs: handoff, timely: true,
		Rule: "When a waiter that was handed the key does not claim it, the next in the queue gets a hint once the claim time has passed, so that asking only then is enough.",
		play: "grant a; join d mortal; await w elsewhere; release a; held d; enter w in=long; held w"},
	{Name: "ExpiryAfterAHandoffWakesTheFirst", Needs: queueing, timely: true,
		Rule: "A waiter that became the first in the queue by a handoff gets a hint when the lease that was claimed expires, so that asking only then is enough.",
		play: "grant a; join d mortal; await w elsewhere; release a; turn d mortal; enter w in=ttl; held w"},
	{Name: "ExpiryAfterAnExpiryWakesTheFirst", Needs: queueing, timely: true,
		Rule: "A waiter that became the first in the queue because the one before it was granted a key that expired gets a hint when that lease expires, so that asking only then is enough.",
		play: "grant a brief; join d mortal; await w elsewhere; turn d mortal in=ttl; enter w in=ttl; held w"},
	{Name: "StoppedWaitersDelayForTheirClaims",
		Rule:  "However many waiters before it do not claim the key, a waiter whose sign of life finds the key free gets a hint, and another after each claim time, also if it asks again meanwhile.",
		Needs: handoff, timely: true, run: stoppedWaiters},
	{Name: "DeadHolderHandsOn", Needs: queueing, timely: true,
		Rule: "A lease that expires goes to the first in the queue, and to no other owner, as if it had been released.",
		play: "grant a brief; join b; join c elsewhere; inherit b queued over=c; held b"},
	{Name: "HintReachesTheNext", Needs: hinted,
		Rule: "A Release gives a hint to the next in the queue, if its Watch was confirmed before.",
		play: "20 times; grant a; hear b elsewhere; join b; release a; hinted b; grant b queued; release b"},
	{Name: "HintWakesNobodyElse", Needs: hinted,
		Rule: "A Release gives a hint to the next in the queue and to no waiter behind it.",
		play: "grant a;" + each(rounds(5), "hear w#; join w#") + `release a; hinted w0; grant w0 queued; silent w2..w4; release w0;
			hinted w1; grant w1 queued; silent w3 w4; release w1; hinted w2; grant w2 queued; silent w4; release w2;
			hinted w3; grant w3 queued; release w3; hinted w4; grant w4 queued; release w4`},
	{Name: "HintAfterAPlaceWasGivenUp", Needs: hinted,
		Rule: "When a waiter gives up a key that it was just handed, the next one gets a hint.",
		play: "grant a; hear b c; join b c; release a; hinted b; release b; heed c"},
	{Name: "WatchersAreIndependent", Needs: hinted,
		Rule: "The end of one Watch does not affect the hints of others.",
		play: "grant a; watch b; hear c; join c; unwatch b; release a; hinted c; grant c queued"},
	{Name: "WatchAfterTheJoin", Needs: []Need{needQueue, needHints, needJoinFirst},
		Rule: "A Watch gives a hint for what happened to its owner's place since the owner joined.",
		play: `grant a; join b elsewhere; hear b; release a; hinted b; grant b queued; join c; release b; hear c; hinted c;
			grant c queued`},
	{Name: "WatcherThatIsGone", Needs: queueing, timely: true,
		Rule: "A key whose next waiter no longer watches is handed off to the one behind it, within a bounded time.",
		play: "grant a; watch d brief; watch b; join d brief; join b; unwatch d; release a; turn b in=3ttl; held b"},
	{Name: "OneOwnerAskingAtOnce", // failure case 13
		Rule: "Copies of one request that arrive at once, on several connections, are one grant.",
		play: `10 times; ask a queued & ask a & ask a elsewhere=1 & ask a queued elsewhere=2; won a; release a; free`},
	{Name: "JoinRacesWithRelease", Needs: queueing, // failure case 15
		Rule: "An owner that joins the queue while the key is released is granted it, or gets a hint to ask again: no hint is lost.",
		play: "50 times; grant a; listen b elsewhere=1; release a & ask b queued; come b; release b; free"},
	{Name: "GivingUpRacesWithRelease", Needs: queueing,
		Rule: "When the next in the queue gives up while the key is released, the one behind it is granted the key, or gets a hint.",
		play: `50 times; grant a; join b; await c elsewhere=1; release a & release b elsewhere=1; enter c; refuse b queued; release c;
			free`},
	{Name: "NotSentIsTrue", // no client would release it
		Rule: "A Try whose error says that it was not sent leaves nothing in the store, neither then nor later.",
		run:  notSentIsTrue},
}

// signOfLifeTellsTheTurn: a waiter that gets no hints has only its signs of life.
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

var handoff = []Need{needHandoff}

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
	w := e.listen(e.open(), e.ask("k"))
	e.see(w, e.join(w.d, w.r, n))
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

var hinted = []Need{needQueue, needHints}

// watch returns the hints for r until the case ends. nil: this engine polls.
func (e *env) watch(d driver.Driver, r contend.Owner) <-chan driver.Hint {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.Cleanup(cancel)
	return e.watchUntil(ctx, d, r)
}

func (e *env) watchUntil(ctx context.Context, d driver.Driver, r contend.Owner) <-chan driver.Hint {
	e.Helper()
	ch, err := contend.Watch(ctx, d, r)
	if err != nil {
		e.Fatalf("Watch of %q: %v", r.Key, err)
	}
	if !e.traits.Tells.Has(driver.TellsFree) { // what may come is of other waiters, not of the key
		return nil
	}
	return ch
}

// hints is watch of an engine that promises them.
func (e *env) hints(d driver.Driver, r contend.Owner) <-chan driver.Hint {
	e.Helper()
	ch := e.watch(d, r)
	if ch == nil {
		e.Fatalf("Watch of %q gave no channel, and the engine promises hints", r.Key)
	}
	return ch
}

// hinted waits for a hint.
func (e *env) hinted(ch <-chan driver.Hint) driver.Hint {
	e.Helper()
	return comes(e, ch, e.slack, "no hint")
}

// listener is a waiter that asks only on a hint, or at the time of its refusal's RetryIn.
type listener struct {
	d  driver.Driver
	r  contend.Owner
	ch <-chan driver.Hint // nil: it polls
	at time.Time          // when to ask without a hint; zero: never
}

// listen watches for r.
func (e *env) listen(d driver.Driver, r contend.Owner) *listener {
	e.Helper()
	return &listener{d: d, r: r, ch: e.watch(d, r)}
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
		if waited := time.Since(start) - asking; waited > limit+e.slack+e.stalled() {
			e.TB.Fatalf("after %v: %d waiters got no hint, or are not granted the key", waited.Round(time.Millisecond), len(ws))
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

// raceRounds is how often a race is run.
const raceRounds = 50

// atOnce runs all the functions at once.
func atOnce(fs ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	// The goroutine that is started last tends to run first.
	rand.Shuffle(len(fs), func(i, j int) { fs[i], fs[j] = fs[j], fs[i] })
	for _, f := range fs {
		wg.Go(func() { <-start; f() })
	}
	close(start)
	wg.Wait()
}

func notSentIsTrue(e *env) {
	ds := []driver.Driver{e.d, e.open(), e.open()}
	notSent := make([]contend.Owner, 4*raceRounds)
	var tries sync.WaitGroup
	for i := range notSent {
		tries.Go(func() {
			ctx, cancel := context.WithTimeout(e.ctx, rand.N(4*time.Millisecond))
			defer cancel()
			r := e.ask(fmt.Sprintf("k%d", i))
			r.TTL = 20 * e.ttl
			if _, err := contend.Try(ctx, ds[i%len(ds)], r); driver.IsNotSent(err) {
				notSent[i] = r
			}
		})
	}
	tries.Wait()
	time.Sleep(e.ttl / 2) // time must pass: some requests may be late
	for _, r := range notSent {
		if r.Key != "" {
			e.free(r.Key)
		}
	}
}
