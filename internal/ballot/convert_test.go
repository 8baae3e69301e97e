// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// converts is a request to make the lease of won Shared.
func converts() driver.TryRequest {
	r := asks()
	r.Mode, r.Convert, r.Fence = driver.Shared, true, 10
	return r
}

// A holder that converted finished what it wrote, however often it is released and
// whatever comes in between: otherwise the next holder is told that the key was abandoned.
func TestConvertAfterTheRelease(t *testing.T) {
	b := won(t)
	b.Converting()
	req := releases(true)
	req.End = driver.EndUnfinished
	b.Release(req, None)
	b.Converting()
	r := b.Release(req, None)
	failIf(t, r.Request(0).End != driver.EndFinished, "released as %v, want Finished", r.Request(0).End)
}

// What a holder converted before says nothing of the key that it asks for anew.
func TestConvertedLeaseIsOverWithItsRelease(t *testing.T) {
	b := won(t)
	b.Converting()
	b.Release(releases(true), None)
	req := asks()
	req.Mode = driver.Shared
	s := b.Ask(req, seen(3, 20))
	failIf(t, s.Outcome != Asking || s.Ask.Convert || s.Ask.Proposal != 20, "%+v, want a Try of its own", s)
}

// Which nodes are told that a lease is Shared: only those of one that is, and not again
// when an older answer comes late. An Exclusive lease must not be made Shared by a renewal.
func TestWhoIsToldOfAConversion(t *testing.T) {
	for _, mode := range []driver.Mode{driver.Exclusive, driver.Shared} {
		b := New(3)
		claim := asks().Claim
		claim.Mode = mode
		b.Renewing(driver.RenewRequest{Claim: claim, TTL: ttl, Fence: 7}, 0)
		if got := b.Uninformed(0, All(3)); got != (mode == driver.Shared) {
			t.Errorf("a lease of another process, mode %v: its nodes are told: %v", mode, got)
		}
	}
	b := won(t)
	b.Converting()
	s := b.Ask(converts(), seen(3, 11))
	after(&b, s, seen(3, 11), yes(10), yes(10), silent)
	b.Sends(0)
	b.Heard(Reply{Node: 0, Asked: voting.VoteRequest{TryRequest: asks(), Proposal: 10}, Answer: yes(10)})
	b.Sends(2)
	b.Heard(Reply{Node: 2, Asked: voting.VoteRequest{TryRequest: asks(), Proposal: 10}, Answer: yes(10)})
	if b.Uninformed(0, All(3)) || b.Uninformed(1, All(3)) || !b.Uninformed(2, All(3)) {
		t.Error("node 2 alone missed the conversion")
	}
	var held Set
	held.Add(0)
	failIf(t, b.Uninformed(0, held) || !b.Uninformed(1, All(3)), "node 1 lost its vote: what it has now is not known")
}

// A vote is asked for again only for the lease that stands: for one that is over it would
// be the vote of nobody.
func TestOnlyALeaseThatStandsIsRestored(t *testing.T) {
	request := voting.VoteRequest{TryRequest: asks(), Proposal: 10, Restore: true}
	b := won(t)
	if req, ok := b.Restore(2, request); !ok || req.Proposal != 10 {
		t.Errorf("%+v, %v, want the vote asked for", req, ok)
	}
	lost := won(t)
	try(&lost, asks(), seen(3, 11), no, no, no)
	if _, ok := lost.Restore(2, request); ok {
		t.Error("a vote of a lease that was lost is asked for")
	}
	later := request
	later.Proposal = 12
	if _, ok := b.Restore(2, later); ok {
		t.Error("a vote is asked for with a fence that was never granted")
	}
	b.Release(releases(true), None)
	if _, ok := b.Restore(2, voting.VoteRequest{TryRequest: driver.TryRequest{Claim: asks().Claim, TTL: ttl, Convert: true}}); ok {
		t.Error("a node is told of a conversion after the release")
	}
}

// That the key was abandoned before is told when it is granted, and when it is asked for
// again; a conversion is no new grant, and a new lease has nothing of an old one.
func TestAbandonedIsToldOnce(t *testing.T) {
	abandoned := yes(10)
	abandoned.Result.Abandoned = true
	refuses := no
	refuses.Result.Abandoned = true
	holder := func() Ballot {
		b := New(3)
		s := try(&b, asks(), seen(3, 10), abandoned, yes(10), yes(10))
		stopIf(t, !s.Result.Abandoned, "one node knows, and nobody is told")
		return b
	}
	b := holder()
	s := try(&b, asks(), seen(3, 11), silent, yes(10), yes(10))
	failIf(t, !s.Result.Abandoned, "asked again, without the node that knows: it is not told")
	b = won(t)
	s = try(&b, asks(), seen(3, 11), abandoned, yes(10), yes(10))
	failIf(t, !s.Result.Abandoned, "asked again, a node knows that did not answer before: it is not told")
	b = holder()
	s = try(&b, converts(), seen(3, 11), yes(10), yes(10), yes(10))
	failIf(t, s.Outcome != Granted || s.Result.Abandoned, "%+v: it is told again with the conversion", s)
	b = holder()
	try(&b, asks(), seen(3, 11), no, no, no)
	s = try(&b, asks(), seen(3, 12), yes(12), yes(12), yes(12))
	failIf(t, s.Outcome != Granted || s.Result.Abandoned, "%+v: a new lease is told what the lost one was", s)
	b = New(3)
	s = try(&b, asks(), seen(3, 10), yes(10), yes(10), refuses)
	failIf(t, s.Outcome != Granted || s.Result.Abandoned, "%+v: a node that did not vote is believed", s)
}

// What a renewal says of a conversion: a lease that was converted stays so, whatever the
// renewal names; and who asked for the key Shared converted nothing.
func TestRenewalAfterAConversion(t *testing.T) {
	b := won(t)
	b.Converting()
	claim := asks().Claim
	b.Renewing(driver.RenewRequest{Claim: claim, TTL: ttl, Fence: 10}, 0)
	failIf(t, !b.Uninformed(0, All(3)), "a renewal that was sent before takes the conversion back")
	b = New(3)
	req := asks()
	req.Mode = driver.Shared
	try(&b, req, seen(3, 10), yes(10), yes(10), silent)
	b.Renewing(driver.RenewRequest{Claim: req.Claim, TTL: ttl, Fence: 10}, 0)
	failIf(t, b.Uninformed(2, All(3)), "a reader's nodes are told of a conversion")
}

// What a node is asked that lost its vote, or missed a conversion: the fence of the lease,
// and the mode that it has now.
func TestWhatRestores(t *testing.T) {
	b := won(t)
	lost := voting.VoteRequest{TryRequest: asks(), Proposal: 9, Restore: true}
	missed := voting.VoteRequest{TryRequest: converts()}
	missed.Fence = 9
	if r, ok := b.Restore(0, lost); !ok || r.Proposal != 10 || r.Fence != 0 || r.Mode != driver.Exclusive {
		t.Errorf("%+v, %v, want a proposal of 10", r, ok)
	}
	b.Converting()
	if r, ok := b.Restore(0, lost); !ok || r.Proposal != 10 || r.Mode != driver.Shared {
		t.Errorf("%+v, %v, want it Shared", r, ok)
	}
	if r, ok := b.Restore(0, missed); !ok || r.Proposal != 0 || r.Fence != 10 {
		t.Errorf("%+v, %v, want the fence 10", r, ok)
	}
}

// Whose lease a conversion is about: its own, or one of another process, which is adopted,
// and forgotten when it turns out to be over.
func TestConvertAdopts(t *testing.T) {
	req := converts()
	req.Fence = 0
	b := won(t)
	if b.Ask(req, seen(3, 11)); b.Fence() != 10 {
		t.Errorf("its own lease has the fence %d, want 10", b.Fence())
	}
	b = New(3)
	if b.Ask(converts(), seen(3, 11)); b.Fence() != 10 || b.Tries() != 0 {
		t.Errorf("the lease of another process has the fence %d, want 10", b.Fence())
	}
	b = New(3)
	s := try(&b, converts(), seen(3, 11), no, no, no)
	failIf(t, s.Outcome != Refused || !s.Forget, "%+v, want the lease of another process forgotten", s)
	b = won(t)
	s = try(&b, converts(), seen(3, 11), no, no, no)
	failIf(t, s.Outcome != Refused || s.Forget, "%+v, want its own kept until its release", s)
}

// A conversion waits for the queue node, where those are woken who can come in.
func TestConversionWaitsForTheQueueNode(t *testing.T) {
	b := won(t)
	s := b.Ask(converts(), seenQueue(3, 11, 0))
	answers(&b, s, 1, grants(10))
	if answers(&b, s, 2, grants(10)); b.Decided() {
		t.Error("decided without the queue node")
	}
	if answers(&b, s, 0, grants(10)); !b.Decided() {
		t.Error("all answered")
	}
}

// A holder that asks again as what it was is told what it is; as what it is, it converts where
// that was missed.
func TestHolderAsksAfterAConversion(t *testing.T) {
	b := won(t)
	b.Converting()
	if s := b.Ask(asks(), seen(3, 11)); s.Outcome != Refused || !s.Stays || s.Result.Holder.Mode != driver.Shared || s.Result.Holder.Owner != asks().Owner {
		t.Errorf("%+v, want a refusal that names it as a reader", s)
	}
	req := asks()
	req.Mode = driver.Shared
	if s := b.Ask(req, seen(3, 11)); s.Outcome != Asking || !s.Ask.Convert || s.Ask.Fence != 10 {
		t.Errorf("%+v, want a conversion", s)
	}
}

// What was converted before is no excuse for a new lease: its holder did not finish.
func TestNewLeaseIsNotConverted(t *testing.T) {
	b := won(t)
	b.Converting()
	try(&b, converts(), seen(3, 11), yes(10), yes(10), yes(10))
	b.Release(releases(true), None)
	s := try(&b, asks(), seen(3, 20), yes(20), yes(20), yes(20))
	stopIf(t, s.Outcome != Granted, "%+v, want a grant", s)
	c := b
	c.Converting()
	failIf(t, !c.Uninformed(0, All(3)), "its node was told of the old one's conversion, and counts as told of its own")
	req := releases(true)
	req.End = driver.EndUnfinished
	r := b.Release(req, None)
	failIf(t, r.Request(0).End != driver.EndUnfinished, "released as %v, want Unfinished", r.Request(0).End)
}
