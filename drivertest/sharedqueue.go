// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"cmp"
	"errors"
	"slices"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var sharedQueue = []Need{needShared, needQueue}

var sharedQueueCases = []Case{
	{Name: "WriterWaitsForAllSharers",
		Rule:  "A writer in the queue is granted the key when the last of those that share it released it, and gets a hint then.",
		Needs: sharedQueue, run: writerWaitsForAll},
	{Name: "WaitingWriterStopsLaterReaders",
		Rule:  "While a writer waits for those that share a key, no later request is granted beside them, with or without Queue, and each refusal says how many are ahead.",
		Needs: sharedQueue, run: writerStopsReaders},
	{Name: "NeighboursEnterTogether",
		Rule:  "Consecutive readers at the front of the queue hold the key together once it is released, and nobody behind the next writer does.",
		Needs: sharedQueue, run: neighboursEnterTogether},
	{Name: "NeighboursAllGetHints",
		Rule:  "Each of many readers at the front of the queue gets a hint when it is granted the key, so that asking only then is enough for all.",
		Needs: sharedQueue, run: neighboursGetHints},
	{Name: "MixedQueueIsInOrder",
		Rule:  "Writers and groups of readers are served in the order of the queue.",
		Needs: sharedQueue, claims: true, run: mixedQueue},
	{Name: "WriterThatLeavesLetsReadersIn",
		Rule:  "When a writer that waits for those that share a key gives up, the readers behind it are granted the key beside them and get hints.",
		Needs: sharedQueue, run: writerThatLeaves},
	{Name: "DeadWaitingWriterLetsReadersIn",
		Rule:  "A waiting writer without a sign of life for its patience no longer makes readers wait.",
		Needs: sharedQueue, run: deadWaitingWriter},
	{Name: "DeadReaderDelaysForItsTTL",
		Rule:  "A vanished reader makes a writer wait until its lease ends, and no longer.",
		Needs: sharedQueue, timely: true, run: deadReader},
	{Name: "DeadWriterHandsOnToReaders",
		Rule:  "When a writer's lease expires all the readers at the front of the queue are granted the key, and nobody behind them.",
		Needs: sharedQueue, timely: true, run: deadWriterHandsOn},
	{Name: "DeadWriterLetsAllReadersIn",
		Rule:  "When a writer's lease expires all the readers at the front of the queue are granted the key once the first of them asks, and get hints, so that asking only then is enough for all.",
		Needs: sharedQueue, timely: true, run: deadWriterLetsAllIn},
	{Name: "WriterKnowsTheLastExpiry",
		Rule:  "A writer that is first in the queue learns when the last lease of those that share the key ends.",
		Needs: sharedQueue, run: writerKnowsTheLast},
	{Name: "EarlierExpiryWakesTheFirst",
		Rule:  "When the reader whose lease would have ended last releases it, the first in the queue gets a hint when the last of the others ends, so that asking only then is enough.",
		Needs: sharedQueue, timely: true, run: earlierExpiry},
	{Name: "EachSharerLearnsThatSomebodyWaits",
		Rule:  "The answer to each reader's renewal says whether an owner waits.",
		Needs: sharedQueue, run: sharersAreWanted},
	{Name: "WriterJoinsWhileReadersRelease",
		Rule:  "An owner that joins the queue while the last readers release the key, or a reader that joins while a writer does, is granted the key or gets a hint.",
		Needs: sharedQueue, run: sharedJoinRaces},
	{Name: "WriterGivesUpWhileReadersRelease",
		Rule:  "When a waiting writer gives up while those that share the key release it, all the readers behind it are granted the key, or get hints.",
		Needs: sharedQueue, run: sharedGivingUpRaces},
}

func writerWaitsForAll(e *env) {
	rs := e.share("k", 3)
	w := e.await(e.open(), e.ask("k"), 0)
	for len(rs) > 1 {
		e.release(e.d, rs[1])
		rs = slices.Delete(rs, 1, 2)
		e.refuse(w.d, queued(w.r))
		e.sharedBy(rs...)
	}
	e.release(e.d, rs[0])
	e.enter(w)
	e.heldBy(w.r)
	e.release(e.d, w.r)
	e.free("k")
}

func writerStopsReaders(e *env) {
	a, w, late := e.reader("k"), e.ask("k"), e.reader("k")
	other := e.open()
	e.grant(e.d, a)
	e.join(e.d, w, 0)
	if res := e.refuse(other, late); res.Ahead != 1 {
		e.Errorf("Ahead is %d, want 1: %+v", res.Ahead, res)
	}
	if info := e.sharedBy(a); info.Waiters != 1 {
		e.Errorf("a refusal left a place: %+v", info)
	}
	e.join(other, late, 1)
	e.refuse(other, e.reader("k"))
	e.sharedBy(a)
	e.release(e.d, a)
	e.turn(e.d, w, 0)
	e.refuse(other, queued(late))
	e.release(e.d, w)
	e.turn(other, late, 0)
}

func neighboursEnterTogether(e *env) {
	a, other := e.ask("k"), e.open()
	e.grant(e.d, a)
	r1, r2 := e.await(e.d, e.reader("k"), 0), e.await(other, e.reader("k"), 1)
	w := e.await(other, e.ask("k"), 2)
	r3 := e.await(e.d, e.reader("k"), 3)
	e.refuse(other, queued(r2.r))
	e.release(e.d, a)
	e.enter(r2, r1)
	e.quiet(r3)
	e.refuse(w.d, queued(w.r)) // the new first may get a hint
	if info := e.sharedBy(r1.r, r2.r); info.Waiters != 2 {
		e.Errorf("the queue is %+v", info.Queue)
	}
	e.release(other, r1.r)
	e.refuse(w.d, queued(w.r))
	e.release(other, r2.r)
	e.enter(w)
	e.heldBy(w.r)
	e.release(e.d, w.r)
	e.enter(r3)
	e.sharedBy(r3.r)
}

// neighboursGetHints has more readers than an engine grants in one step.
func neighboursGetHints(e *env) {
	const n = 150
	ds := []driver.Driver{e.d, e.open(), e.open()}
	a := e.ask("k")
	e.grant(e.d, a)
	var ws []*listener
	for i := range n {
		ws = append(ws, e.await(ds[i%len(ds)], e.reader("k"), i))
	}
	slices.Reverse(ws) // the first to ask came last
	e.release(e.d, a)
	e.enter(ws...)
	e.sharedBy(requests(ws...)...)
	w := e.await(e.d, e.ask("k"), 0)
	e.releaseAll(requests(ws...)...)
	e.enter(w)
	e.heldBy(w.r)
}

func mixedQueue(e *env) {
	a := e.ask("k")
	e.grant(e.d, a)
	groups := [][]*listener{nil, nil, nil, nil, nil}
	ahead := 0
	for i, n := range []int{2, 0, 1, 0, 3} { // this many readers; 0: a writer
		for range max(n, 1) {
			r := e.ask("k")
			if n > 0 {
				r = e.reader("k")
			}
			groups[i] = append(groups[i], e.await(e.d, r, ahead))
			ahead++
		}
	}
	holders := []contend.Owner{a}
	for i, group := range groups {
		e.releaseAll(holders...)
		e.enter(group...)
		for _, later := range groups[i+1:] {
			for _, w := range later {
				e.refuse(w.d, queued(w.r))
			}
		}
		if holders = requests(group...); holders[0].Mode == driver.Shared {
			e.sharedBy(holders...)
		} else {
			e.heldBy(holders[0])
		}
	}
	e.releaseAll(holders...)
	e.free("k")
}

func writerThatLeaves(e *env) {
	a, w := e.reader("k"), e.ask("k")
	e.grant(e.d, a)
	e.join(e.d, w, 0)
	r1, r2 := e.await(e.d, e.reader("k"), 1), e.await(e.open(), e.reader("k"), 2)
	last := e.await(e.d, e.ask("k"), 3)
	e.quiet(r1, r2)
	e.release(e.d, w)
	e.enter(r2, r1)
	e.refuse(e.d, queued(last.r))
	e.sharedBy(a, r1.r, r2.r)
	e.releaseAll(a, r1.r, r2.r)
	e.enter(last)
}

func deadWaitingWriter(e *env) {
	a, w, r1, r2 := e.reader("k"), e.brief(e.ask("k")), e.reader("k"), e.reader("k")
	e.grant(e.d, a)
	e.refuse(e.d, queued(w))
	e.try(e.d, queued(r1))
	e.turn(e.d, r1, e.ttl)
	e.turn(e.d, r2, 0)
	e.sharedBy(a, r1, r2)
}

func deadReader(e *env) {
	gone, a, w, late := e.brief(e.reader("k")), e.reader("k"), e.ask("k"), e.reader("k")
	e.grant(e.d, a)
	e.grant(e.d, gone)
	e.join(e.d, w, 0)
	e.join(e.d, late, 1)
	e.release(e.d, a)
	e.eventually(e.ttl, "the writer has the key of a reader that is gone", func() bool {
		e.refuse(e.d, queued(late))
		e.refuse(e.d, e.reader("k"))
		return e.try(e.d, queued(w)).Granted
	})
	e.heldBy(w)
}

func deadWriterHandsOn(e *env) {
	gone, r1, r2, w := e.brief(e.ask("k")), e.reader("k"), e.reader("k"), e.ask("k")
	other := e.open()
	e.grant(e.d, gone)
	e.join(e.d, r1, 0)
	e.join(other, r2, 1)
	e.join(e.d, w, 2)
	e.eventually(e.ttl, "the first reader in the queue is granted the key of a writer that is gone", func() bool {
		return e.try(e.d, queued(r1)).Granted
	})
	e.turn(other, r2, 0)
	e.refuse(e.d, queued(w))
	e.sharedBy(r1, r2)
}

// deadWriterLetsAllIn has more readers than an engine grants in one step.
func deadWriterLetsAllIn(e *env) {
	const n = 40
	a, gone := e.ask("k"), e.ask("k")
	gone.TTL = e.ttl
	e.grant(e.d, a)
	e.join(e.d, gone, 0)
	ws := e.awaitAll(n, 1, func() contend.Owner { return e.reader("k") })
	w := e.await(e.d, e.ask("k"), n+1)
	e.release(e.d, a) // all are in the queue by now
	e.turn(e.d, gone, 0)
	e.turn(ws[0].d, ws[0].r, e.ttl)
	e.enter(ws[1:]...)
	e.refuse(w.d, queued(w.r))
	e.sharedBy(requests(ws...)...)
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

func earlierExpiry(e *env) {
	lasts, dies := e.reader("k"), e.brief(e.reader("k"))
	e.grant(e.d, lasts)
	e.grant(e.d, dies)
	w := e.await(e.open(), e.ask("k"), 0)
	e.release(e.d, lasts)
	e.enterIn(e.ttl, w)
	e.heldBy(w.r)
}

func sharersAreWanted(e *env) {
	rs := e.share("k", 3)
	wanted := func(want bool) {
		e.Helper()
		for i, a := range e.renew(e.d, rs...) {
			if a.Err != nil || a.Wanted != want {
				e.Errorf("the renewal of holder %d: %+v, want Wanted: %v", i, a, want)
			}
		}
	}
	wanted(false)
	w := e.ask("k")
	e.join(e.d, w, 0)
	wanted(true)
	e.release(e.d, w)
	wanted(false)
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
