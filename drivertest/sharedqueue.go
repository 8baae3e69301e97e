// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"errors"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var sharedQueue = []Need{needShared, needQueue}

var sharedQueueCases = []Case{
	{Name: "WriterWaitsForAllSharers",
		Rule:  "A writer in the queue is granted the key when the last of those that share it released it, and gets a hint then.",
		Needs: sharedQueue,
		play: `grant r1..r3 spread; await w elsewhere; release r2 here; refuse w queued; shared r1 r3; release r3 here; refuse w queued;
			shared r1; release r1 here; enter w; held w; release w here; free`},
	{Name: "WaitingWriterStopsLaterReaders",
		Rule:  "While a writer waits for those that share a key, no later request is granted beside them, with or without Queue, and each refusal says how many are ahead.",
		Needs: sharedQueue,
		play: `grant r1; join w; refuse r2 elsewhere ahead=1; shared r1; waits w; join r2; refuse r3 elsewhere=r2; shared r1;
			release r1; turn w; refuse r2 queued; release w; turn r2`},
	{Name: "NeighboursEnterTogether",
		Rule:  "Consecutive readers at the front of the queue hold the key together once it is released, and nobody behind the next writer does.",
		Needs: sharedQueue,
		play: `grant a; await r1; await r2 elsewhere; await w elsewhere=r2; await r3; refuse r2 queued; release a; enter r2 r1;
			quiet r3; refuse w queued; shared r1 r2; waits w r3; release r1 elsewhere=r2; refuse w queued; release r2; enter w;
			held w; release w here; enter r3; shared r3`},
	{Name: "NeighboursAllGetHints",
		Rule:  "Each of many readers at the front of the queue gets a hint when it is granted the key, so that asking only then is enough for all.",
		Needs: sharedQueue,
		play: `grant a; await r1..r150 spread; release a; enter r150..r1; shared r1..r150; await w; release r1..r150 here; enter w;
			held w`},
	{Name: "MixedQueueIsInOrder",
		Rule:  "Writers and groups of readers are served in the order of the queue.",
		Needs: sharedQueue, claims: true,
		play: `grant a; await r1 r2 b r3 c r4..r6; release a; enter r1 r2; refuse b r3 c r4..r6 queued; shared r1 r2; release r1 r2;
			enter b; refuse r3 c r4..r6 queued; held b; release b; enter r3; refuse c r4..r6 queued; shared r3; release r3;
			enter c; refuse r4..r6 queued; held c; release c; enter r4..r6; shared r4..r6; release r4..r6; free`},
	{Name: "WriterThatLeavesLetsReadersIn",
		Rule:  "When a writer that waits for those that share a key gives up, the readers behind it are granted the key beside them and get hints.",
		Needs: sharedQueue,
		play: `grant r0; join w; await r1; await r2 elsewhere; await b; quiet r1 r2; release w; enter r2 r1; refuse b queued;
			shared r0 r1 r2; release r0..r2 here; enter b`},
	{Name: "DeadWaitingWriterLetsReadersIn",
		Rule:  "A waiting writer without a sign of life for its patience no longer makes readers wait.",
		Needs: sharedQueue,
		play:  "grant r0; refuse w brief queued; ask r1 queued; turn r1 in=ttl; turn r2; shared r0..r2"},
	{Name: "DeadReaderDelaysForItsTTL",
		Rule:  "A vanished reader makes a writer wait until its lease ends, and no longer.",
		Needs: sharedQueue, timely: true,
		play: "grant r1; grant r2 brief; join w; join r3; release r1; inherit w queued over=r3; held w"},
	{Name: "DeadWriterHandsOnToReaders",
		Rule:  "When a writer's lease expires all the readers at the front of the queue are granted the key, and nobody behind them.",
		Needs: sharedQueue, timely: true,
		play: "grant d brief; join r1; join r2 elsewhere; join w; inherit r1 queued; turn r2; refuse w queued; shared r1 r2"},
	{Name: "DeadWriterLetsAllReadersIn",
		Rule:  "When a writer's lease expires all the readers at the front of the queue are granted the key once the first of them asks, and get hints, so that asking only then is enough for all.",
		Needs: sharedQueue, timely: true,
		play: `grant a; join d mortal; await r1..r40 spread; await w; release a; turn d mortal; turn r1 in=ttl; enter r2..r40;
			refuse w queued; shared r1..r40`},
	{Name: "WriterKnowsTheLastExpiry",
		Rule:  "A writer that is first in the queue learns when the last lease of those that share the key ends.",
		Needs: sharedQueue, run: writerKnowsTheLast},
	{Name: "EarlierExpiryWakesTheFirst",
		Rule:  "When the reader whose lease would have ended last releases it, the first in the queue gets a hint when the last of the others ends, so that asking only then is enough.",
		Needs: sharedQueue, timely: true,
		play: "grant r1; grant r2 brief; await w elsewhere; release r1; enter w in=ttl; held w"},
	{Name: "EachSharerLearnsThatSomebodyWaits",
		Rule:  "The answer to each reader's renewal says whether an owner waits.",
		Needs: sharedQueue,
		play:  "grant r1..r3 spread; renewals r1..r3; join w; renewals r1..r3 wanted; release w; renewals r1..r3"},
	{Name: "WriterJoinsWhileReadersRelease",
		Rule:  "An owner that joins the queue while the last readers release the key, or a reader that joins while a writer does, is granted the key or gets a hint.",
		Needs: sharedQueue, run: sharedJoinRaces},
	{Name: "WriterGivesUpWhileReadersRelease",
		Rule:  "When a waiting writer gives up while those that share the key release it, all the readers behind it are granted the key, or get hints.",
		Needs: sharedQueue, run: sharedGivingUpRaces},
}

func writerKnowsTheLast(e *env) {
	rs := []contend.Owner{e.brief(e.reader("k")), e.reader("k"), e.brief(e.reader("k"))}
	for _, r := range rs {
		e.grant(e.d, r)
	}
	last := cmp.Or(e.left(rs[1]), e.long)
	w, d, soonest := e.ask("k"), e.open(), e.long/2
	if e.watch(d, w) == nil {
		soonest = 0 // it polls
	}
	res := e.join(d, w, 0)
	if res.RetryIn <= soonest || res.RetryIn > last || !plausible(res.Left, e.long/2) {
		e.Errorf("RetryIn is %v and Left %v, want those of the last that shares the key, which has %v", res.RetryIn, res.Left, last)
	}
	if a := e.renewed(d, queued(w)); a.RetryIn <= soonest || a.RetryIn > last {
		e.Errorf("RetryIn of a sign of life is %v, want that of the last, which has %v", a.RetryIn, last)
	}
}

func sharedJoinRaces(e *env) {
	other := e.open()
	for range raceRounds {
		a, b, w := e.reader("k"), e.reader("k"), &listener{d: other, r: e.ask("k")}
		e.grant(e.d, a)
		e.grant(other, b)
		e.joinsAtOnce([]contend.Owner{a, b}, w)
		r1, r2 := &listener{d: e.d, r: e.reader("k")}, &listener{d: other, r: e.reader("k")}
		e.joinsAtOnce([]contend.Owner{w.r}, r1, r2)
		e.sharedBy(r1.r, r2.r)
		e.releaseAll(r1.r, r2.r)
		e.free("k")
	}
}

func sharedGivingUpRaces(e *env) {
	other := e.open()
	for range raceRounds {
		a, w := e.reader("k"), e.ask("k")
		e.grant(e.d, a)
		e.join(other, w, 0)
		r1, r2 := e.await(e.d, e.reader("k"), 1), e.await(other, e.reader("k"), 2)
		var errA, errW error
		atOnce(
			func() { errA = contend.Release(e.ctx, other, a) },
			func() { errW = contend.Release(e.ctx, e.d, w) })
		if err := errors.Join(errA, errW); err != nil {
			e.Fatalf("Release: %v", err)
		}
		e.enter(r2, r1)
		e.refuse(e.d, queued(w))
		e.sharedBy(r1.r, r2.r)
		e.releaseAll(r1.r, r2.r)
		e.free("k")
	}
}

// joinsAtOnce makes some join the queue while the holders release, and all of them must
// be granted the key.
func (e *env) joinsAtOnce(holders []contend.Owner, ws ...*listener) {
	e.Helper()
	errs := make([]error, len(ws)+len(holders))
	results := make([]driver.Result, len(ws))
	var fs []func()
	for i, w := range ws {
		w.ch = e.watch(w.d, w.r)
		fs = append(fs, func() { results[i], errs[i] = contend.Try(e.ctx, w.d, queued(w.r)) })
	}
	for i, r := range holders {
		fs = append(fs, func() { errs[len(ws)+i] = contend.Release(e.ctx, e.d, r) })
	}
	atOnce(fs...)
	if err := errors.Join(errs...); err != nil {
		e.Fatalf("Try or Release: %v", err)
	}
	var refused []*listener
	for i, w := range ws {
		if !results[i].Granted {
			e.see(w, results[i])
			refused = append(refused, w)
		}
	}
	e.enter(refused...)
}
