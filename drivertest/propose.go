// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"strconv"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

var proposable = []Need{needNode}

var proposeCases = []Case{
	{Name: "ProposedFenceIsGranted",
		Rule:  "A proposed fence above every fence of the key is granted exactly, and remains the holder's.",
		Needs: proposable, run: proposedFence},
	{Name: "LowProposalIsRefused",
		Rule:  "A proposed fence that is not above every fence of the key is refused with FenceTooLow and the newest, and grants nothing.",
		Needs: proposable, run: lowProposal},
	{Name: "ProposalFarAheadIsRefused",
		Rule:  "A proposed fence far above the node's clock is refused with FenceTooLow, also of a holder and with Restore, and the fence after the one that the refusal names is granted.",
		Needs: proposable, run: farProposal},
	{Name: "ProposalsMayOvertakeEachOther",
		Rule:  "Proposals for different keys that arrive in a different order from the one in which they were made are all granted.",
		Needs: proposable, run: overtakingProposals},
	{Name: "MintedAndProposedFencesRise",
		Rule:  "A minted fence is above every proposed one of the key, and a fence that is proposed next must be above it.",
		Needs: []Need{needNode, needFencing}, run: mintedAndProposed},
	{Name: "ProposedFencesInARow",
		Rule:  "A proposal of several fences is granted those up to the proposed one that are above every fence of the key; asking again returns only the last.",
		Needs: proposable, run: proposedInARow},
	{Name: "HeldRefusalNamesTheFence",
		Rule:  "A proposal for a key that is held is refused as Held, with a fence that is at least the holder's, and below the next proposal that can be granted.",
		Needs: proposable, run: heldNamesTheFence},
	{Name: "HolderKeepsItsFence",
		Rule:  "A proposal by the holder is answered with the fence it has, whether larger, equal or smaller.",
		Needs: proposable, run: holderKeepsItsFence},
	{Name: "HolderMayRaiseItsFence",
		Rule:  "A holder that raises its fence is granted exactly the proposed one, and refused one below its own.",
		Needs: proposable, run: raisedProposal},
	{Name: "ClaimTakesTheProposal",
		Rule:  "A claim of a handed-off key with a proposal is granted exactly that fence; one that is too low is refused, and the key remains handed off.",
		Needs: []Need{needNode, needHandoff}, claims: true, run: proposedClaim},
	{Name: "RestoreGivesALeaseBack",
		Rule:  "Restore grants a free key with the fence that the owner has on other nodes, though other keys had newer ones.",
		Needs: proposable, run: restoreGivesBack},
	{Name: "RestoreAfterALaterFence",
		Rule:  "Restore is refused with FenceTooLow when the key had a larger fence since, whether it was proposed or minted.",
		Needs: proposable, run: restoreTooLate},
	{Name: "RestoreSparesTheHolder",
		Rule:  "Restore of a key that another holds is refused as Held, and changes nothing.",
		Needs: proposable, run: restoreSparesTheHolder},
	{Name: "RenewComparesTheFence",
		Rule:  "Renew with a fence prolongs a lease that has it or a larger one, and is ErrNotHeld for a smaller one.",
		Needs: []Need{needNode}, run: renewComparesFence},
	{Name: "RenewIsNoClaim",
		Rule:  "Renew with a fence of a key that was handed off and not claimed is ErrNotHeld.",
		Needs: []Need{needNode, needHandoff}, claims: true, run: renewIsNoClaim},
	{Name: "ReleaseUpToAFence",
		Rule:  "A Release up to a fence leaves a lease with a larger one as it is, whether or not a Try may still arrive, and ends any other.",
		Needs: []Need{needNode}, run: releaseUpTo},
}

// propose returns r with a proposed fence.
func propose(r contend.Owner, fence uint64) contend.Owner {
	r.Fence = fence
	return r
}

// newest returns a fence that the store minted for a key, which is free again.
// It is near the store's clock.
func (e *env) newest(key string) uint64 {
	e.Helper()
	r := e.ask(key)
	fence := e.grant(e.d, r).Fence
	e.release(e.d, r)
	return fence
}

// grantExactly must be granted the fence, and the store must say so.
func (e *env) grantExactly(r contend.Owner, fence uint64) driver.Result {
	e.Helper()
	res := e.grant(e.d, r)
	if res.Fence != fence {
		e.Fatalf("proposed %d, granted the fence %d, want %d", r.Fence, res.Fence, fence)
	}
	if info := e.heldBy(r); info.Fence != 0 && info.Fence != fence {
		e.Fatalf("the fence is %d, and %d to Inspect", fence, info.Fence)
	}
	return res
}

// refuseFence must be refused with FenceTooLow, and a fence from least on.
func (e *env) refuseFence(r contend.Owner, least uint64) driver.Result {
	e.Helper()
	res := e.refuse(e.d, r)
	if res.Why != driver.FenceTooLow || res.Fence == 0 || res.Fence < least {
		e.Fatalf("proposed %d: %+v, want FenceTooLow and a fence from %d on", r.Fence, res, least)
	}
	return res
}

func proposedFence(e *env) {
	b := propose(e.ask("k"), e.newest("k")+1000)
	e.grantExactly(b, b.Fence)
	e.grantExactly(b, b.Fence) // delivered twice
	e.release(e.d, b)
	e.rises(b.Fence, e.grant(e.d, e.ask("k")))
}

func lowProposal(e *env) {
	newest := e.newest("k")
	for _, low := range []uint64{1, newest - 1, newest} {
		e.refuseFence(propose(e.ask("k"), low), newest)
		e.free("k")
	}
	res := e.refuseFence(propose(e.ask("k"), newest), newest)
	e.grant(e.d, propose(e.ask("k"), res.Fence+1))
}

func farProposal(e *env) {
	const hour = uint64(time.Hour / time.Microsecond)
	newest := e.newest("k")
	for _, lead := range []uint64{hour, 10_000_000 * hour} {
		far := propose(e.ask("k"), newest+lead)
		res := e.refuseFence(far, newest)
		if res.Fence >= far.Fence {
			e.Fatalf("proposed %d, refused with %d, which nobody was granted", far.Fence, res.Fence)
		}
		restored := far
		restored.Restore = true
		e.refuseFence(restored, newest)
		e.free("k")
		a := propose(e.ask("k"), res.Fence+1)
		a.Settled = true
		e.grantExactly(a, a.Fence)
		raised := propose(a, a.Fence+lead)
		raised.Raise = true
		e.refuseFence(raised, a.Fence)
		e.grantExactly(a, a.Fence)
		e.release(e.d, a)
	}
}

func overtakingProposals(e *env) {
	newest := e.newest("k0")
	for i := range 10 {
		r := propose(e.ask("k"+strconv.Itoa(i)), newest+uint64(1000-100*i))
		e.grantExactly(r, r.Fence)
	}
}

func mintedAndProposed(e *env) {
	fence := e.newest("k")
	for range 5 {
		a := propose(e.ask("k"), fence+50_000)
		e.grantExactly(a, a.Fence)
		fence = a.Fence
		if needQueue.Met(e.d) { // minted for a handoff
			b := e.ask("k")
			e.join(e.d, b, 0)
			e.release(e.d, a)
			fence = e.rises(fence, e.turn(e.d, b, 0))
			a = b
		}
		e.release(e.d, a)
		fence = e.rises(fence, driver.Result{Fence: e.newest("k")})
		e.refuseFence(propose(e.ask("k"), fence), fence)
	}
}

func proposedInARow(e *env) {
	const n = 5
	newest := e.newest("k")
	a := propose(e.ask("k"), newest+1000)
	a.Fences = n
	if res := e.grantExactly(a, a.Fence); res.Fences != n {
		e.Fatalf("granted %d fences up to %d after %d, want %d", res.Fences, res.Fence, newest, n)
	}
	if again := e.grantExactly(a, a.Fence); again.Fences > 1 {
		e.Fatalf("asked again: %d fences", again.Fences)
	}
	e.release(e.d, a)
	b := propose(e.ask("k"), a.Fence+2)
	b.Fences = n
	e.inARow(a.Fence, n, e.grantExactly(b, b.Fence))
	e.release(e.d, b)
	c := propose(e.ask("k"), b.Fence)
	c.Fences = n
	e.refuseFence(c, b.Fence)
}

func heldNamesTheFence(e *env) {
	a, b := propose(e.ask("k"), e.newest("k")+1000), e.ask("k")
	e.grantExactly(a, a.Fence)
	for _, fence := range []uint64{1, a.Fence, a.Fence + 1000} {
		res := e.refuse(e.d, propose(b, fence))
		if res.Why != driver.Held || res.Fence < a.Fence {
			e.Fatalf("proposed %d while another holds with %d: %+v, want Held and that fence", fence, a.Fence, res)
		}
		b.Fence = res.Fence + 1
	}
	e.release(e.d, a)
	e.grantExactly(b, b.Fence)
}

func holderKeepsItsFence(e *env) {
	for _, a := range []contend.Owner{e.ask("minted"), e.ask("k")} {
		if a.Key == "k" { // only now: fences minted meanwhile are larger
			a = propose(a, e.newest("k")+1000)
		}
		fence := e.grant(e.d, a).Fence
		for _, other := range []uint64{fence + 10, fence, fence - 10, 1} {
			e.grantExactly(propose(a, other), fence)
		}
	}
}

func raisedProposal(e *env) {
	a := e.ask("k")
	newest := e.grant(e.d, a).Fence
	a.Raise = true
	for _, fence := range []uint64{newest, newest + 10, newest + 10} {
		a.Fence = fence
		e.grantExactly(a, fence)
	}
	other := propose(e.ask("k"), a.Fence+1000)
	other.Raise = true
	e.refuse(e.d, other)
	if info := e.heldBy(a); info.Fence != a.Fence {
		e.Fatalf("another owner raised the holder's fence %d to %d", a.Fence, info.Fence)
	}
	e.refuseFence(propose(a, newest), a.Fence-1) // the fence it has would be enough
	e.grantExactly(a, a.Fence)
	e.release(e.d, a)
	e.refuseFence(propose(e.ask("k"), a.Fence), a.Fence)
	e.rises(a.Fence, e.grant(e.d, e.ask("k")))
}

func proposedClaim(e *env) {
	a, b := propose(e.ask("k"), e.newest("k")+1000), e.ask("k")
	e.grantExactly(a, a.Fence)
	e.join(e.d, propose(b, a.Fence), 0)
	e.release(e.d, a)
	e.heldBy(b)
	res := e.refuseFence(propose(b, a.Fence), a.Fence)
	e.heldBy(b)
	b.Fence = res.Fence + 1000
	e.grantExactly(b, b.Fence)
	e.grantExactly(propose(b, b.Fence+1000), b.Fence) // claimed once
}

func restoreGivesBack(e *env) {
	a := propose(e.brief(e.ask("k")), e.newest("k")+1000)
	e.grantExactly(a, a.Fence)
	e.expires("k")
	other := propose(e.ask("other"), a.Fence+1000)
	e.grantExactly(other, other.Fence)
	e.release(e.d, other)
	newest := e.newest("other")
	a.Restore = true
	e.grantExactly(a, a.Fence)
	unseen := propose(e.ask("unseen"), newest-10)
	unseen.Restore = true
	e.grantExactly(unseen, unseen.Fence)
	raised := propose(unseen, newest+10) // it is here again
	raised.Raise = true
	e.grantExactly(raised, unseen.Fence)
	e.release(e.d, unseen)
	e.rises(unseen.Fence, e.grant(e.d, e.ask("unseen")))
}

func restoreTooLate(e *env) {
	newest := e.newest("minted")
	e.grantAndRelease(propose(e.ask("proposed"), newest+1000))
	for key, fence := range map[string]uint64{"minted": newest, "proposed": newest + 1000} {
		r := propose(e.ask(key), fence-1)
		r.Restore = true
		e.refuseFence(r, fence)
		e.free(key)
		e.grantExactly(propose(r, fence), fence) // the newest itself
	}
}

func (e *env) grantAndRelease(r contend.Owner) {
	e.Helper()
	e.grant(e.d, r)
	e.release(e.d, r)
}

func restoreSparesTheHolder(e *env) {
	a := propose(e.ask("k"), e.newest("k")+1000)
	e.grantExactly(a, a.Fence)
	for _, fence := range []uint64{a.Fence - 10, a.Fence, a.Fence + 10} {
		r := propose(e.ask("k"), fence)
		r.Restore = true
		if res := e.refuse(e.d, r); res.Why != driver.Held {
			e.Fatalf("Restore of what another holds: %+v, want Held", res)
		}
		e.grantExactly(a, a.Fence)
	}
	if needQueue.Met(e.d) {
		b, r := e.ask("k"), propose(e.ask("k"), a.Fence+10)
		r.Restore = true
		e.join(e.d, b, 0)
		e.release(e.d, a)
		e.refuse(e.d, r)
		e.turn(e.d, b, 0)
	}
}

func releaseUpTo(e *env) {
	a := propose(e.ask("k"), e.newest("k")+1000)
	e.grantExactly(a, a.Fence)
	back := a
	back.Settled, back.UpTo = true, a.Fence-1
	e.releaseNothing(e.d, back)
	e.heldBy(a)
	back.UpTo = a.Fence
	e.release(e.d, back)
	e.free("k")
	a.Fence++
	e.grantExactly(a, a.Fence)
	for _, end := range ends {
		back.Settled, back.End = false, end // a release without an answer is sent again like this
		e.releaseNothing(e.d, back)         // and arrives late
		e.heldBy(a)
		e.grantExactly(a, a.Fence) // and the owner is not refused from then on
	}
	back.Settled, back.End = true, driver.Finished
	e.releaseNothing(e.d, back)
	e.heldBy(a)
}

// ends lists the ways in which a lease may end.
var ends = []driver.End{driver.Finished, driver.Unused, driver.Unfinished}

func renewComparesFence(e *env) {
	a := propose(e.ask("k"), e.newest("k")+1000)
	e.grantExactly(a, a.Fence)
	for fence, held := range map[uint64]bool{0: true, a.Fence - 1: true, a.Fence: true, a.Fence + 1: false} {
		r := propose(a, fence)
		if held {
			e.renewed(e.d, r)
		} else {
			e.renewNothing(e.d, r)
		}
	}
	e.heldBy(a)
}

func renewIsNoClaim(e *env) {
	from := e.newest("k")
	a, b := propose(e.ask("k"), from+1000), propose(e.ask("k"), from+2000)
	e.grantExactly(a, a.Fence)
	e.join(e.d, b, 0)
	e.release(e.d, a)
	e.renewNothing(e.d, b)
	e.renewNothing(e.d, propose(b, a.Fence))
	e.turn(e.d, b, 0)
}
