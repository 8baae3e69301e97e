// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var convertCases = []Case{
	{Name: "ConvertShares",
		Rule:  "A holder that converts keeps its lease and its fence, and from then on Shared requests are granted beside it, and no Exclusive one is.",
		Needs: shared, run: convertShares},
	{Name: "ConvertLetsReadersIn",
		Rule:  "A Convert grants the key to the readers at the front of the queue beside the holder and gives them hints, but to nobody behind the next writer.",
		Needs: sharedQueue, run: convertLetsReadersIn},
	{Name: "ConvertTwice", // a lost reply
		Rule:  "Convert asked again is the standing grant, with the same fence, and changes nothing, whoever was granted the key meanwhile.",
		Needs: shared, run: convertTwice},
	{Name: "ConvertOfNothing",
		Rule:  "Convert by an owner that holds nothing is refused, with or without Queue, on a free key and on a held one, and leaves nothing: the owner may still ask for the key.",
		Needs: shared, run: convertNothing},
	{Name: "ConvertAfterTheEnd",
		Rule:  "Convert by an owner whose lease ended or was released is refused, and takes nothing from later holders.",
		Needs: shared, run: convertAfterTheEnd},
	{Name: "LateTryAfterConvert",
		Rule:  "A Try Exclusive by a holder that converted is refused, joins no queue and takes the key from nobody.",
		Needs: shared, run: lateTryAfterConvert},
	{Name: "LateRenewAfterConvert",
		Rule:  "A Renew as Exclusive after a Convert prolongs the lease and leaves it Shared, and a Release as Exclusive releases it.",
		Needs: shared, run: lateRenewAfterConvert},
	{Name: "ConvertProlongs",
		Rule:  "Convert sets the expiry to now + TTL when that is later, never to an earlier moment.",
		Needs: shared, run: convertProlongs},
	{Name: "WriterAfterConvert",
		Rule:  "A writer in the queue is granted the key once the holder that converted and all readers beside it are gone, with a larger fence than any of them.",
		Needs: sharedQueue, run: writerAfterConvert},
	{Name: "ConvertRacesWithJoin",
		Rule:  "A Shared request during a Convert is granted, or gets a hint to ask again, and nobody is ever granted the key Exclusive.",
		Needs: sharedQueue, run: convertRaces},
	{Name: "ConvertComparesTheFence",
		Rule:  "Convert with a fence is refused, and changes nothing, if the owner only has a smaller one, or was handed the key and did not claim it.",
		Needs: []Need{needShared, needNode}, run: convertComparesFence},
}

// converting returns r as a Convert to Shared.
func converting(r contend.Owner) contend.Owner {
	r.Mode, r.Convert = driver.Shared, true
	return r
}

// convert converts, and must be granted the fence held.
func (e *env) convert(d driver.Driver, r contend.Owner, fence uint64) driver.Result {
	e.Helper()
	res := e.grant(d, converting(r))
	if res.Fence != fence {
		e.Fatalf("the fence was %d, is %d after a Convert", fence, res.Fence)
	}
	return res
}

// beside is granted the key beside a holder that converted: at once, but where the store has
// several nodes, some of which may hear of the Convert a moment later. Then it is refused by
// nobody's lease, and asks again.
func (e *env) beside(d driver.Driver, r contend.Owner) (res driver.Result) {
	e.Helper()
	if e.store.Ended == nil {
		return e.grant(d, r)
	}
	e.eventually(e.ttl, "granted beside a holder that converted", func() bool {
		res = e.try(d, r)
		if !res.Granted && (res.Left > 0 || res.RetryIn <= 0) {
			e.Fatalf("refused beside a holder that converted: %+v", res)
		}
		return res.Granted
	})
	return res
}

func convertShares(e *env) {
	a, b, c := e.ask("k"), e.reader("k"), e.reader("k")
	fence := e.grant(e.d, a).Fence
	e.refuse(e.d, b)
	e.convert(e.open(), a, fence)
	info := e.sharedBy(a)
	if info.Fence != 0 && info.Fence != fence || info.Waiters != 0 {
		e.Errorf("after a Convert: %+v, the fence was %d", info, fence)
	}
	e.beside(e.d, b)
	e.beside(e.open(), c)
	e.refuse(e.d, e.ask("k"))
	e.sharedBy(a, b, c)
	e.renewed(e.d, sharing(a, 0))
	e.release(e.d, sharing(a, 0))
	e.sharedBy(b, c)
	e.releaseAll(b, c)
	e.free("k")
}

func convertLetsReadersIn(e *env) {
	a, other := e.ask("k"), e.open()
	fence := e.grant(e.d, a).Fence
	r1, r2 := e.await(e.d, e.reader("k"), 0), e.await(other, e.reader("k"), 1)
	w, r3 := e.await(other, e.ask("k"), 2), e.await(e.d, e.reader("k"), 3)
	e.convert(e.d, a, fence)
	e.enter(r2, r1)
	e.quiet(r3)
	e.refuse(w.d, queued(w.r)) // the new first may get a hint
	if info := e.sharedBy(a, r1.r, r2.r); info.Waiters != 2 {
		e.Errorf("the queue is %+v", info.Queue)
	}
	e.releaseAll(sharing(a, 0), r1.r, r2.r)
	e.enter(w)
}

func convertTwice(e *env) {
	a, b := e.ask("k"), e.reader("k")
	fence := e.grant(e.d, a).Fence
	for _, d := range []driver.Driver{e.d, e.open()} {
		e.convert(d, a, fence)
	}
	e.beside(e.d, b)
	e.convert(e.open(), a, fence)
	e.sharedBy(a, b)
	if again := e.grant(e.d, sharing(a, 0)); again.Fence != fence {
		e.Errorf("the fence is %d after a Convert, and %d when asked Shared", fence, again.Fence)
	}
	e.release(e.d, a)
	e.sharedBy(b)
}

func convertNothing(e *env) {
	nothing := func(key string) {
		e.Helper()
		before := e.inspect(key)
		r := e.ask(key)
		for _, r := range []contend.Owner{converting(r), queued(converting(r)), sharing(r, 0), r} {
			switch after := e.inspect(key); {
			case r.Convert:
				e.refuse(e.d, r)
			case r.Mode == driver.Shared && before.Holder.Mode == driver.Shared && before.Held:
				e.grant(e.d, r)
				e.release(e.d, r)
			case after.Waiters != 0 || after.Holds != before.Holds || after.Holder.Mode != before.Holder.Mode:
				e.Fatalf("a Convert of nothing left %+v of %+v", after, before)
			}
		}
	}
	nothing("k")
	e.free("k")
	asked := e.ask("k")
	e.refuse(e.d, converting(asked))
	e.grant(e.d, asked) // it is not remembered
	nothing("k")
	e.heldBy(asked)
	e.share("shared", 2)
	nothing("shared")
}

func convertAfterTheEnd(e *env) {
	gone, next := e.brief(e.ask("k")), e.ask("k")
	e.grant(e.d, gone)
	e.expires("k")
	gone.TTL = e.long
	e.refuse(e.d, converting(gone))
	e.free("k")
	e.grant(e.d, next)
	e.refuse(e.d, converting(gone))
	if info := e.heldBy(next); info.Holder.Mode != driver.Exclusive || info.Holds != 1 {
		e.Errorf("after another's Convert: %+v", info)
	}
	e.release(e.d, next)
	e.refuse(e.d, converting(next))
	e.free("k")
	e.share("k", 2)
	e.refuse(e.d, queued(converting(next)))
	if info := e.inspect("k"); info.Holds != 2 || info.Waiters != 0 {
		e.Errorf("after a Convert by one that released: %+v", info)
	}
}

func lateTryAfterConvert(e *env) {
	a, b := e.ask("k"), e.reader("k")
	fence := e.grant(e.d, a).Fence
	e.convert(e.d, a, fence)
	late := func(holders ...contend.Owner) {
		e.Helper()
		for _, r := range []contend.Owner{a, queued(a)} {
			e.refuse(e.open(), r)
			if info := e.sharedBy(holders...); info.Waiters != 0 {
				e.Fatalf("it waits for itself: %+v", info)
			}
		}
	}
	late(a)
	e.beside(e.d, b)
	late(a, b)
	e.convert(e.d, a, fence)
}

func lateRenewAfterConvert(e *env) {
	a, b := e.ask("k"), e.reader("k")
	e.convert(e.d, a, e.grant(e.d, a).Fence)
	long := a
	long.TTL = 2 * e.long
	e.renewed(e.d, long)
	if left := e.left(a); !plausible(left, e.long) {
		e.Errorf("asked for %v, %v left", long.TTL, left)
	}
	e.beside(e.d, b)
	e.sharedBy(a, b)
	e.release(e.d, a)
	e.sharedBy(b)
	e.releaseNothing(e.d, sharing(a, 0))
}

func convertProlongs(e *env) {
	a, b := e.ask("k"), e.ask("other")
	fence := e.grant(e.d, a).Fence
	e.convert(e.d, e.brief(a), fence)
	e.outlasts(a, "a Convert for a brief TTL of a long lease")
	fence = e.grant(e.d, b).Fence
	b.TTL = 2 * e.long
	if res := e.convert(e.d, b, fence); res.TTL <= e.long || !plausible(e.left(b), e.long) {
		e.Errorf("asked for %v, granted %v, and %v left", b.TTL, res.TTL, e.left(b))
	}
}

func writerAfterConvert(e *env) {
	a, r := e.ask("k"), e.reader("k")
	fence := e.grant(e.d, a).Fence
	e.convert(e.d, a, fence)
	fence = max(fence, e.beside(e.d, r).Fence)
	w := e.await(e.open(), e.ask("k"), 0)
	for _, gone := range []contend.Owner{a, r} {
		e.refuse(w.d, queued(w.r))
		e.release(e.d, gone)
	}
	e.enter(w)
	if info := e.heldBy(w.r); info.Holder.Mode != driver.Exclusive {
		e.Errorf("the writer holds it as %+v", info.Holder)
	}
	if e.traits.Fencing {
		e.rises(fence, e.grant(w.d, w.r))
	}
}

func convertRaces(e *env) {
	other, third := e.open(), e.open()
	for range raceRounds {
		a, r, w := e.ask("k"), &listener{d: other, r: e.reader("k")}, e.ask("k")
		fence := e.grant(e.d, a).Fence
		r.ch = e.watch(other, r.r)
		var converted, asked, wrote driver.Result
		var errs [3]error
		atOnce(
			func() { converted, errs[0] = contend.Try(e.ctx, e.d, converting(a)) },
			func() { asked, errs[1] = contend.Try(e.ctx, other, queued(r.r)) },
			func() { wrote, errs[2] = contend.Try(e.ctx, third, w) })
		switch {
		case errs != [3]error{}:
			e.Fatalf("Try: %v", errs)
		case !converted.Granted || converted.Fence != fence:
			e.Fatalf("Convert with the fence %d: %+v", fence, converted)
		case wrote.Granted:
			e.Fatalf("granted Exclusive beside one that converts: %+v", wrote)
		case !asked.Granted:
			e.see(r, asked)
			e.enter(r)
		}
		e.sharedBy(a, r.r)
		e.releaseAll(a, r.r)
		e.free("k")
	}
}

func convertComparesFence(e *env) {
	a, b := propose(e.ask("k"), e.newest("k")+1000), e.reader("k")
	e.grantExactly(a, a.Fence)
	res := e.refuse(e.d, converting(propose(a, a.Fence+1)))
	if res.Why != driver.Held {
		e.Errorf("Convert of an earlier vote: %+v, want Held", res)
	}
	e.refuse(e.d, b)
	e.heldBy(a)
	e.convert(e.d, propose(a, a.Fence-1), a.Fence)
	e.convert(e.d, a, a.Fence)
	e.refuse(e.d, converting(propose(a, a.Fence+1)))
	e.grant(e.d, b)
	e.releaseAll(a, b)
	if !needHandoff.Met(e.d) {
		return
	}
	c, d := e.ask("k"), e.ask("k")
	fence := e.grant(e.d, c).Fence
	e.join(e.d, d, 0)
	e.release(e.d, c)
	e.refuse(e.d, converting(propose(d, fence)))
	e.refuse(e.d, e.reader("k"))
	e.turn(e.d, d, 0)
}
