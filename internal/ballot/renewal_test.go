// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"errors"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

func TestRenewalTakesAMajority(t *testing.T) {
	r := NewRenewal(5)
	yes := driver.Renewal{TTL: ttl}
	r.Answer(0, Answered, yes, false)
	r.Answer(1, Unknown, driver.Renewal{}, false)
	r.Answer(2, Answered, yes, false)
	_, known := r.Outcome(false)
	stopIf(t, known || r.Stands(), "two of five renew")
	r.Answer(3, Answered, driver.Renewal{TTL: ttl, Wanted: true}, true)
	_, known = r.Outcome(false)
	stopIf(t, !known, "three of five do not")
	_, known = r.Outcome(false)
	failIf(t, known || !r.Known(), "the outcome is given twice")
}

// The queue node knows who waits: it is waited for, for a while.
func TestRenewalWaitsForTheQueueNode(t *testing.T) {
	r := NewRenewal(3)
	r.Answer(0, Answered, driver.Renewal{TTL: ttl}, false)
	r.Answer(1, Answered, driver.Renewal{TTL: ttl}, false)
	if _, known := r.Outcome(true); known {
		t.Fatal("the queue node has not answered")
	}
	late := r
	if res, known := late.Outcome(false); !known || res.Wanted {
		t.Errorf("%+v, %v, want a renewal without it", res, known)
	}
	r.Answer(2, Answered, driver.Renewal{TTL: ttl, Wanted: true}, true)
	if res, known := r.Outcome(true); !known || !res.Wanted {
		t.Errorf("%+v, %v, want to know that somebody waits", res, known)
	}
}

func TestRenewalOfALostLease(t *testing.T) {
	r := NewRenewal(3)
	r.Answer(0, NotHolder, driver.Renewal{}, false)
	if _, known := r.Outcome(false); known {
		t.Fatal("one node decides")
	}
	r.Answer(1, NotHolder, driver.Renewal{}, false)
	if res, known := r.Outcome(true); !known || !errors.Is(res.Err, driver.ErrNotHeld) {
		t.Errorf("%+v, %v, want ErrNotHeld", res, known)
	}
}

// A lease that was adopted from another process has its ballot from its first renewal on:
// any node may have it, or a Try of it under way.
func TestAdoptedLease(t *testing.T) {
	b := New(3)
	b.Renewing(driver.RenewRequest{Claim: asks().Claim, TTL: ttl, Fence: 7}, 0)
	stopIf(t, b.Fence() != 7 || b.Blank(), "fence %d", b.Fence())
	req, ok := b.Restore(2, voting.VoteRequest{TryRequest: asks(), Proposal: 7, Restore: true})
	failIf(t, !ok || req.Proposal != 7, "%+v, %v", req, ok)
	r := b.Release(releases(true), None)
	for i := range 3 {
		if !r.Tells(i) && !r.Late(i) || r.Request(i).UpTo != 0 {
			t.Errorf("node %d: %+v, want all that it has released", i, r.Request(i))
		}
	}
	if _, ok := b.Restore(1, voting.VoteRequest{TryRequest: asks(), Proposal: 7, Restore: true}); ok {
		t.Error("a lease that was released is restored")
	}
}

// A lease is adopted once, from who holds it: an owner that was refused or released has
// none, and its renewals must not bring one back.
func TestOnlyALeaseOfAnotherProcessIsAdopted(t *testing.T) {
	renews := func(b *Ballot, fence uint64) {
		b.Renewing(driver.RenewRequest{Claim: asks().Claim, TTL: ttl, Fence: fence}, 0)
	}
	b := New(3)
	if renews(&b, 0); !b.Blank() {
		t.Error("a lease with a fence that nobody knows was adopted")
	}
	if renews(&b, 7); b.Fence() != 7 {
		t.Errorf("fence %d, want 7", b.Fence())
	}
	if renews(&b, 5); b.Fence() != 7 { // of a holder before, which took its turn
		t.Errorf("fence %d after the renewal of an earlier turn, want 7", b.Fence())
	}
	b.Release(releases(true), None)
	if renews(&b, 7); b.Fence() != 0 {
		t.Error("a lease that was released was adopted again")
	}
	b = New(3)
	try(&b, asks(), seen(3, 10), no, no, no)
	if renews(&b, 7); b.Fence() != 0 {
		t.Error("an owner that was refused has a lease")
	}
}

// Who waits is known from the queue node, whenever it answers.
func TestRenewalRemembersTheQueueNode(t *testing.T) {
	r := NewRenewal(3)
	r.Answer(0, Answered, driver.Renewal{TTL: ttl, Wanted: true}, true)
	r.Answer(1, Answered, driver.Renewal{TTL: ttl}, false)
	res, known := r.Outcome(true)
	failIf(t, !known || !res.Wanted, "%+v, %v, want a renewal that says that somebody waits", res, known)
}
