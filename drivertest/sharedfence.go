// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var (
	sharedFencing = []Need{needShared, needFencing}
	sharedNode    = []Need{needShared, needNode}
)

var sharedFenceCases = []Case{
	{Name: "FencesRiseOverSharers",
		Rule:  "Each owner that shares a key has a larger fence than every writer before it, and a later writer has a larger one than any of them.",
		Needs: sharedFencing, run: fencesRiseOverSharers},
	{Name: "FencesRiseAmongSharers",
		Rule:  "A store that mints fences gives each owner that shares a key a strictly larger one than all before it.",
		Needs: sharedNode,
		play:  "grant r1..r9 spread rises; release r1..r9 here; grant r10 rises"},
	{Name: "ReadersMayOvertakeEachOther",
		Rule:  "A Shared proposal is granted beside other readers, or after them, though their fences are larger: it only has to be above those that were granted Exclusive.",
		Needs: sharedNode, run: readersOvertake},
	{Name: "ReadersDoNotOvertakeWriters",
		Rule:  "A Shared proposal that is not above every fence granted Exclusive is refused with FenceTooLow and that one, also if the writer converted or other readers were granted the key since.",
		Needs: sharedNode, run: readersAfterWriters},
	{Name: "WritersDoNotOvertakeReaders",
		Rule:  "An Exclusive proposal that is not above every fence of the key, including readers', is refused with FenceTooLow and the newest.",
		Needs: sharedNode, run: writersAfterReaders},
	{Name: "SharerKeepsItsFence",
		Rule:  "A proposal by a sharing holder is answered with the fence it has; with Raise it gets the proposed one, and one that is smaller, or far above the clock, is refused with FenceTooLow and the fence it has.",
		Needs: sharedNode, run: sharerKeepsItsFence},
	{Name: "SharedClaimTakesTheProposal",
		Rule:  "A reader that was handed the key claims it with exactly the fence that it proposes, though one that was handed it at the same time has a larger one; a fence below the previous writer's is refused.",
		Needs: []Need{needShared, needNode, needHandoff}, claims: true, run: sharedProposedClaim},
	{Name: "RestoreOfASharedLease",
		Rule:  "Restore restores a Shared lease with its fence, on a free key or beside other readers, though readers had larger ones since, but not if the key was granted Exclusive since.",
		Needs: sharedNode, run: restoreShared},
	{Name: "RestoreAfterAReader",
		Rule:  "Restore of an Exclusive lease is refused with FenceTooLow when a reader had a larger fence since, and as Held while readers hold the key.",
		Needs: sharedNode, run: restoreAfterAReader},
	{Name: "RenewComparesASharersFence",
		Rule:  "Renew with a fence prolongs the lease of a reader that has it or a larger one, and is ErrNotHeld if it has a smaller one, whatever other readers have.",
		Needs: sharedNode, run: renewComparesSharersFence},
	{Name: "SharedReleaseUpToAFence",
		Rule:  "A Release up to a fence leaves a reader's lease with a larger one as it is, and ends any other.",
		Needs: sharedNode, run: sharedReleaseUpTo},
	{Name: "HeldBackNodeSharesNothing",
		Rule:  "A store whose process was replaced grants nobody a shared key, converts nothing and hands nothing off until it is admitted.",
		Needs: shared, run: heldBackSharesNothing},
}

// holdsFence fails unless the store says that r holds its key with that fence.
func (e *env) holdsFence(r contend.Owner, fence uint64) {
	e.Helper()
	for _, l := range e.inspect(r.Key).Holders {
		if sameOwner(r)(l) && (l.Fence == 0 || l.Fence == fence) {
			return
		}
	}
	e.Fatalf("%s does not hold %q with the fence %d: %+v", r.Owner, r.Key, fence, e.inspect(r.Key).Holders)
}

// shareExactly must be granted the fence beside other readers.
func (e *env) shareExactly(r contend.Owner, fence uint64) {
	e.Helper()
	if res := e.grant(e.d, r); res.Fence != fence {
		e.Fatalf("proposed %d, granted the fence %d, want %d", r.Fence, res.Fence, fence)
	}
	e.holdsFence(r, fence)
}

func fencesRiseOverSharers(e *env) {
	ds := []driver.Driver{e.d, e.open(), e.open()}
	var wrote uint64
	for range 5 {
		var rs []contend.Owner
		most := wrote
		for i := range 5 {
			rs = append(rs, e.reader("k"))
			fence := e.rises(wrote, e.grant(ds[i%len(ds)], rs[i]))
			e.holdsFence(rs[i], fence)
			most = max(most, fence)
		}
		e.releaseAll(rs...)
		w := e.ask("k")
		wrote = e.rises(most, e.grant(e.d, w))
		e.release(e.d, w)
	}
}

func readersOvertake(e *env) {
	newest := e.newest("k")
	var rs []contend.Owner
	for i := range 5 {
		r := propose(e.reader("k"), newest+uint64(1000-100*i))
		e.shareExactly(r, r.Fence)
		rs = append(rs, r)
	}
	e.releaseAll(rs...)
	late := propose(e.reader("k"), newest+50)
	e.shareExactly(late, late.Fence)
	e.release(e.d, late)
	e.rises(newest+1000, e.grant(e.d, e.ask("k")))
}

func readersAfterWriters(e *env) {
	w := propose(e.ask("k"), e.newest("k")+1000)
	refused := func() {
		e.Helper()
		for _, low := range []uint64{1, w.Fence - 1, w.Fence} {
			e.refuseFence(propose(e.reader("k"), low), w.Fence)
		}
	}
	e.grantExactly(w, w.Fence)
	if res := e.refuse(e.d, propose(e.reader("k"), w.Fence)); res.Why != driver.Held || res.Fence < w.Fence {
		e.Errorf("proposed what the holder has: %+v, want Held and that fence", res)
	}
	e.convert(e.d, w, w.Fence)
	refused()
	r := propose(e.reader("k"), w.Fence+1000)
	e.shareExactly(r, r.Fence)
	refused()
	e.releaseAll(w, r)
	refused()
	e.free("k")
	late := propose(e.reader("k"), w.Fence+1)
	e.shareExactly(late, late.Fence)
}

func writersAfterReaders(e *env) {
	newest := e.newest("k")
	high, low := propose(e.reader("k"), newest+1000), propose(e.reader("k"), newest+500)
	e.shareExactly(high, high.Fence)
	e.shareExactly(low, low.Fence)
	w := propose(e.ask("k"), newest+600)
	if res := e.refuse(e.d, w); res.Why != driver.Held || res.Fence < high.Fence {
		e.Errorf("proposed %d while readers have %d and %d: %+v, want Held and the larger", w.Fence, high.Fence, low.Fence, res)
	}
	e.releaseAll(high, low)
	for _, fence := range []uint64{newest + 600, high.Fence} {
		e.refuseFence(propose(w, fence), high.Fence)
		e.free("k")
	}
	e.grantExactly(propose(w, high.Fence+1), high.Fence+1)
}

func sharerKeepsItsFence(e *env) {
	newest := e.newest("k")
	other := propose(e.reader("k"), newest+2000)
	e.shareExactly(other, other.Fence)
	a := propose(e.reader("k"), newest+1000)
	e.shareExactly(a, a.Fence)
	for _, fence := range []uint64{1, a.Fence - 10, a.Fence, a.Fence + 10} {
		e.shareExactly(propose(a, fence), a.Fence)
	}
	raised := propose(a, a.Fence+100)
	raised.Raise = true
	e.shareExactly(raised, raised.Fence)
	e.refuseFence(propose(raised, a.Fence), raised.Fence-1)
	e.refuseFence(propose(raised, raised.Fence+1<<40), raised.Fence)
	e.shareExactly(a, raised.Fence)
	e.shareExactly(other, other.Fence)
}

func sharedProposedClaim(e *env) {
	w := propose(e.ask("k"), e.newest("k")+1000)
	r1, r2 := propose(e.reader("k"), w.Fence+500), propose(e.reader("k"), w.Fence+200)
	e.grantExactly(w, w.Fence)
	e.join(e.d, r1, 0)
	e.join(e.d, r2, 1)
	e.release(e.d, w)
	e.refuseFence(propose(r2, w.Fence), w.Fence)
	e.sharedBy(r1, r2)
	e.renewNothing(e.d, r2) // it does not claim
	e.shareExactly(r1, r1.Fence)
	e.shareExactly(r2, r2.Fence)
	e.shareExactly(propose(r2, r1.Fence+1000), r2.Fence) // claimed once
}

func restoreShared(e *env) {
	newest := e.newest("k")
	a, b := propose(e.brief(e.reader("k")), newest+1000), propose(e.reader("k"), newest+2000)
	e.shareExactly(b, b.Fence)
	if res := e.grant(e.d, a); res.Fence != a.Fence {
		e.Fatalf("proposed %d, granted %d", a.Fence, res.Fence)
	}
	e.eventually(e.ttl, "one lease ends", func() bool { return e.inspect("k").Holds == 1 })
	a.Restore, a.TTL = true, e.long
	e.shareExactly(a, a.Fence)
	e.sharedBy(a, b)
	a.Settled = true
	e.releaseAll(a, b)
	e.shareExactly(a, a.Fence) // the key is free
	e.release(e.d, a)
	w := propose(e.ask("k"), newest+3000)
	e.grantExactly(w, w.Fence)
	for _, r := range []contend.Owner{a, propose(a, w.Fence+10)} {
		if res := e.refuse(e.d, r); res.Why != driver.Held {
			e.Fatalf("Restore of what another holds Exclusive: %+v, want Held", res)
		}
	}
	e.release(e.d, w)
	e.refuseFence(a, w.Fence)
	e.free("k")
	r := propose(e.reader("k"), w.Fence+10)
	e.shareExactly(r, r.Fence)
	e.refuseFence(a, w.Fence)
	e.sharedBy(r)
}

func restoreAfterAReader(e *env) {
	newest := e.newest("k")
	r := propose(e.reader("k"), newest+1000)
	e.shareExactly(r, r.Fence)
	w := propose(e.ask("k"), r.Fence+10)
	w.Restore = true
	if res := e.refuse(e.d, w); res.Why != driver.Held {
		e.Fatalf("Restore of a key that is shared: %+v, want Held", res)
	}
	e.release(e.d, r)
	e.refuseFence(propose(w, r.Fence-1), r.Fence)
	e.free("k")
	e.grantExactly(w, w.Fence)
}

func renewComparesSharersFence(e *env) {
	newest := e.newest("k")
	a, b := propose(e.reader("k"), newest+1000), propose(e.reader("k"), newest+2000)
	e.shareExactly(a, a.Fence)
	e.shareExactly(b, b.Fence)
	for fence, held := range map[uint64]bool{0: true, a.Fence - 1: true, a.Fence: true, a.Fence + 1: false, b.Fence: false} {
		if r := propose(a, fence); held {
			e.renewed(e.d, r)
		} else {
			e.renewNothing(e.d, r)
		}
	}
	e.sharedBy(a, b)
}

func sharedReleaseUpTo(e *env) {
	newest := e.newest("k")
	a, b := propose(e.reader("k"), newest+1000), propose(e.reader("k"), newest+500)
	e.shareExactly(a, a.Fence)
	e.shareExactly(b, b.Fence)
	back := a
	back.Settled, back.UpTo = true, a.Fence-1
	e.releaseNothing(e.d, back)
	e.sharedBy(a, b)
	back.UpTo = a.Fence
	e.release(e.d, back)
	e.sharedBy(b)
	a.Fence++
	e.shareExactly(a, a.Fence)
	for _, end := range ends {
		back.Settled, back.End = false, end // a release without an answer is sent again like this
		e.releaseNothing(e.d, back)         // and arrives late
		e.sharedBy(a, b)
		e.shareExactly(a, a.Fence) // and the owner is not refused from then on
	}
	back.Settled, back.End = true, driver.Finished
	e.releaseNothing(e.d, back)
	e.sharedBy(a, b)
}

func heldBackSharesNothing(e *env) {
	reload, n := e.reload(), e.node()
	a, w, c := e.reader("shared"), e.ask("converted"), e.reader("waited")
	fence := e.grant(e.d, w).Fence
	e.grant(e.d, a)
	e.grant(e.d, c)
	waits := needQueue.Met(e.d)
	next := e.ask("waited")
	if waits {
		e.join(e.d, next, 0)
		e.join(e.d, e.reader("converted"), 0)
	}
	reload()
	e.heldBack(e.d, e.reader("shared"))
	e.sharedBy(a)
	if res := e.refuse(e.d, converting(w)); res.Why != driver.NotVoting {
		e.Fatalf("Convert at a store that is held back: %+v, want NotVoting", res)
	}
	if info := e.heldBy(w); info.Holder.Mode != driver.Exclusive || info.Holds != 1 {
		e.Fatalf("a store that is held back converted a lease: %+v", info)
	}
	e.release(e.d, c)
	if info := e.inspect("waited"); info.Held {
		e.Fatalf("a store that is held back handed the key off: %+v", info)
	}
	e.admitted(n, e.traits.MaxTTL)
	e.convert(e.d, w, fence)
	e.grant(e.d, e.reader("shared"))
	if waits {
		e.turn(e.d, next, 0)
	}
}
