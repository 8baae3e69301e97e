// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"

	"github.com/hasplock/hasp/driver"
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
	req.End = driver.Unfinished
	b.Release(req, None)
	b.Converting()
	if r := b.Release(req, None); r.Request(0).End != driver.Finished {
		t.Errorf("released as %v, want Finished", r.Request(0).End)
	}
}

// What a holder converted before says nothing of the key that it asks for anew.
func TestConvertedLeaseIsOverWithItsRelease(t *testing.T) {
	b := won(t)
	b.Converting()
	b.Release(releases(true), None)
	req := asks()
	req.Mode = driver.Shared
	if s := b.Ask(req, seen(3, 20)); s.Outcome != Asking || s.Ask.Convert || s.Ask.Proposal != 20 {
		t.Errorf("%+v, want a Try of its own", s)
	}
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
	b.Heard(Reply{Node: 0, Asked: driver.VoteRequest{TryRequest: asks(), Proposal: 10}, Answer: yes(10)})
	if b.Uninformed(0, All(3)) || !b.Uninformed(2, All(3)) {
		t.Error("node 2 alone missed the conversion")
	}
}

// A vote is asked for again only for the lease that stands: for one that is over it would
// be the vote of nobody.
func TestOnlyALeaseThatStandsIsRestored(t *testing.T) {
	request := driver.VoteRequest{TryRequest: asks(), Proposal: 10, Restore: true}
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
	if _, ok := b.Restore(2, driver.VoteRequest{TryRequest: driver.TryRequest{Claim: asks().Claim, TTL: ttl, Convert: true}}); ok {
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
		if s := try(&b, asks(), seen(3, 10), abandoned, yes(10), yes(10)); !s.Result.Abandoned {
			t.Fatal("one node knows, and nobody is told")
		}
		return b
	}
	b := holder()
	if s := try(&b, asks(), seen(3, 11), silent, yes(10), yes(10)); !s.Result.Abandoned {
		t.Error("asked again, without the node that knows: it is not told")
	}
	b = won(t)
	if s := try(&b, asks(), seen(3, 11), abandoned, yes(10), yes(10)); !s.Result.Abandoned {
		t.Error("asked again, a node knows that did not answer before: it is not told")
	}
	b = holder()
	if s := try(&b, converts(), seen(3, 11), yes(10), yes(10), yes(10)); s.Outcome != Granted || s.Result.Abandoned {
		t.Errorf("%+v: it is told again with the conversion", s)
	}
	b = holder()
	try(&b, asks(), seen(3, 11), no, no, no)
	if s := try(&b, asks(), seen(3, 12), yes(12), yes(12), yes(12)); s.Outcome != Granted || s.Result.Abandoned {
		t.Errorf("%+v: a new lease is told what the lost one was", s)
	}
	b = New(3)
	if s := try(&b, asks(), seen(3, 10), yes(10), yes(10), refuses); s.Outcome != Granted || s.Result.Abandoned {
		t.Errorf("%+v: a node that did not vote is believed", s)
	}
}
