// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"

	"github.com/hasplock/hasp/driver"
)

// What a node granted after the release nobody worked under: the next holder must not be
// told that the key was abandoned. How the lease itself ended is told as it was.
func TestEndOfAVoteThatCameAfterTheRelease(t *testing.T) {
	for name, c := range map[string]struct {
		late Answer // of node 2, to the Try
		end  driver.End
		node int
		want driver.End
	}{
		"a late vote, unfinished":   {yes(10), driver.Unfinished, 2, driver.Unused},
		"a late vote, finished":     {yes(10), driver.Finished, 2, driver.Finished},
		"an early vote, unfinished": {yes(10), driver.Unfinished, 1, driver.Unfinished},
	} {
		b := won(t)
		req := releases(true)
		req.End = c.end
		b.Release(req, None)
		b.Heard(Reply{Node: 2, Round: 1, Answer: c.late})
		if w := b.withdraw(c.node); w.End != c.want {
			t.Errorf("%s: withdrawn as %v, want %v", name, w.End, c.want)
		}
	}
}

// A release takes over from the withdrawals before it: sent beside it, they would name
// another end.
func TestReleaseEndsEarlierWithdrawals(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), yes(10), no, no)
	if !b.Stands(1, 0) {
		t.Fatal("the vote of node 0 is not withdrawn again")
	}
	b.Release(releases(true), None)
	if b.Stands(1, 0) {
		t.Error("a withdrawal is sent again after the release")
	}
	if back := b.Vanished(1); back != nil {
		t.Errorf("an owner that was released vanishes, too: %+v", back)
	}
}

// A Withdraw that nobody confirmed is sent again when its owner is given up, or the vote
// stays until it expires.
func TestVanishedOwnerWithAWithdrawUnderWay(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), yes(10), no, no)
	if back := b.Vanished(1); len(back) != 1 || back[0].Node != 0 || back[0].UpTo != 10 || !back[0].Settled {
		t.Errorf("%+v, want the vote of node 0 withdrawn", back)
	}
}

// A Withdraw may never arrive, and is not sent again once its owner asks anew: what that Try finds is withdrawn again, or the vote
// keeps others out for its TTL.
func TestVoteWhoseWithdrawHadNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		confirmed bool
		says      Answer
		back      bool
	}{
		"its fence is too low beside the vote":   {false, low(9), true},
		"its fence is too low for another's":     {false, low(20), true}, // perhaps it has the vote, too
		"its fence is too low, and it has less":  {false, low(8), false},
		"the node does not vote":                 {false, Answer{Kind: HeldBack}, true},
		"another has the vote":                   {false, no, false},
		"the node confirmed it":                  {true, low(20), false},
		"the node confirmed it, and votes again": {true, yes(12), true},
	} {
		b := New(3)
		s := try(&b, asks(), seen(3, 10), no, yes(10), no)
		if len(s.Back) != 1 || s.Back[0].Node != 1 {
			t.Fatalf("%+v, want the vote of node 1 withdrawn", s)
		}
		if c.confirmed {
			b.Withdrawn(1, 0)
		}
		s = try(&b, asks(), seen(3, 7), no, c.says, no)
		if back := len(s.Back) == 1 && s.Back[0].Node == 1; back != c.back || len(s.Back) > 1 {
			t.Errorf("%s: %+v, want it withdrawn: %v", name, s.Back, c.back)
		}
	}
}

// An earlier vote may stand where a later one cannot.
func TestVoteBesideATryWithoutAnAnswer(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no) // the Withdraw is lost
	try(&b, asks(), seen(3, 20), no, silent, no)
	s := try(&b, asks(), seen(3, 21), no, low(10), no) // too far above the node's clock, as 20 was
	if len(s.Back) != 1 || s.Back[0].Node != 1 || s.Back[0].UpTo != 10 {
		t.Errorf("%+v, want the vote withdrawn up to 10", s.Back)
	}
}

// The answer to an earlier Withdraw says nothing of a later one.
func TestEarlierWithdrawIsConfirmed(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no)
	try(&b, asks(), seen(3, 12), no, yes(12), no) // whose Withdraw is lost
	b.Withdrawn(1, 10)
	if s := try(&b, asks(), seen(3, 7), no, low(11), no); len(s.Back) != 1 || s.Back[0].UpTo != 12 {
		t.Errorf("%+v, want the vote withdrawn up to 12", s.Back)
	}
	b.Withdrawn(1, 12)
	if s := try(&b, asks(), seen(3, 7), no, low(11), no); len(s.Back) != 0 {
		t.Errorf("%+v, and the Withdraw was confirmed", s.Back)
	}
}

// Nor does it say anything of a release, until which a Try that had no answer may come.
func TestReleaseIsNotAnEarlierWithdraw(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no)
	try(&b, asks(), seen(3, 12), no, silent, no)
	r := b.Release(releases(false), None)
	if upTo := r.Request(1).UpTo; upTo != 12 {
		t.Fatalf("released up to %d, want 12", upTo)
	}
	if b.Withdrawn(1, 10); b.votes[1].settled() || !b.votes[1].withdrawing {
		t.Errorf("%+v: the node has not heard of the release, and would grant a late Try", b.votes[1])
	}
	for i := range 3 {
		b.Withdrawn(i, 12)
	}
	if !b.Over() {
		t.Error("all confirmed, and the ballot stays")
	}
}

// A release is told where a Withdraw may be lost, also while an answer is out that may be none to the release.
func TestReleaseBesideAWithdraw(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no)
	try(&b, asks(), seen(3, 12), yes(12), notYet, yes(12))
	if r := b.Release(releases(true), None); !r.Tells(1) {
		t.Error("node 1 may have the vote, and is not told")
	}
}

// A Try without an answer may have left a place, and one that reads let nobody in who does: it is given up when the node is
// asked for the vote that it lost.
func TestPlaceThatAHolderLeft(t *testing.T) {
	for name, c := range map[string]struct {
		queue Answer // what the Try was told there
		asked driver.VoteRequest
		says  Answer
		back  bool
	}{
		"the node did not answer":                    {silent, driver.VoteRequest{Restore: true}, no, true},
		"it does not answer yet":                     {notYet, driver.VoteRequest{Restore: true}, no, true},
		"it did not answer, and votes now":           {silent, driver.VoteRequest{Restore: true}, yes(10), false},
		"it did not answer, and not to a Convert":    {silent, driver.VoteRequest{TryRequest: driver.TryRequest{Convert: true}}, no, false},
		"it had another holder, and no place is due": {no, driver.VoteRequest{Restore: true}, no, false},
	} {
		b := New(3)
		s := try(&b, queues(), seenQueue(3, 10, None), c.queue, yes(10), yes(10))
		if s.Outcome != Granted {
			t.Fatalf("%s: %+v, want a grant", name, s)
		}
		r, ok := b.Restore(0, driver.VoteRequest{TryRequest: asks(), Proposal: 10, Restore: c.asked.Restore})
		r.Convert = c.asked.Convert
		back, _ := b.Heard(Reply{Node: 0, Asked: r, Answer: c.says})
		if !ok || (len(back) == 1 && back[0].Node == 0 && back[0].Place && back[0].UpTo < 10) != c.back || len(back) > 1 {
			t.Errorf("%s: %+v, want its place withdrawn: %v", name, back, c.back)
		}
	}
}

// An owner that is granted the key gives up its place where it has no vote; a place with
// the vote is part of the lease, and where the answer is still out nothing is withdrawn
// that it may grant.
func TestPlaceOfAHolder(t *testing.T) {
	waiting := func(b *Ballot) { try(b, queues(), seenQueue(3, 10, 0), no, no, no) }
	reserved := func(b *Ballot) { tryOut(b, queues(), seenQueue(3, 10, 0), yes(10), no, no) }
	for name, c := range map[string]struct {
		before func(b *Ballot)
		node0  Answer
		back   bool
	}{
		"it has the vote there":              {waiting, yes(12), false},
		"it is refused there":                {waiting, no, true},
		"there is no answer from there":      {waiting, silent, false},
		"the answer from there is still out": {waiting, notYet, false},
		"its reserved vote is gone":          {reserved, no, false},
	} {
		b := New(3)
		c.before(&b)
		s := try(&b, queues(), seenQueue(3, 12, 1), c.node0, yes(12), yes(12)) // node 1 has the queue now
		if s.Outcome != Granted {
			t.Fatalf("%s: %+v, want a grant", name, s)
		}
		if (len(s.Back) == 1 && s.Back[0].Node == 0) != c.back || len(s.Back) > 1 {
			t.Errorf("%s: %+v, want node 0's withdrawn: %v", name, s.Back, c.back)
		}
	}
}

// What comes after a release is withdrawn where it is a vote, or may be one: nobody else
// would do it. A refusal is the end of it, also for the ballot.
func TestWhatComesAfterARelease(t *testing.T) {
	asked := func() (b Ballot, s Step) {
		b = won(t)
		return b, Step{Round: 1}
	}
	adopted := func() (b Ballot, s Step) {
		b = New(3)
		b.Renewing(driver.RenewRequest{Claim: asks().Claim, TTL: ttl, Fence: 10}, 0)
		s.Ask, _ = b.Restore(2, driver.VoteRequest{TryRequest: asks(), Proposal: 10, Restore: true})
		return b, s
	}
	for name, c := range map[string]struct {
		owner func() (Ballot, Step)
		waits bool // the release is not to be told to nodes that have yet to answer
		told  bool // and node 2 confirmed it
		late  Answer
		back  bool
	}{
		"a vote":                                 {asked, true, false, yes(10), true},
		"no answer":                              {asked, true, false, silent, true},
		"a refusal":                              {asked, true, false, no, false},
		"a vote of a lease that was adopted":     {adopted, true, false, yes(10), true},
		"a vote, after the node heard of it":     {asked, false, true, yes(10), true},
		"a vote, while the node is told of it":   {asked, false, false, yes(10), false},
		"no answer, while the node is told":      {asked, false, false, silent, false},
		"a vote of an adopted lease, it is told": {adopted, false, false, yes(10), false},
	} {
		b, s := c.owner()
		b.Release(releases(c.waits), None)
		if c.told {
			b.Withdrawn(2, 0)
		}
		back, _ := b.Heard(Reply{Node: 2, Round: s.Round, Asked: s.Ask, Answer: c.late})
		if (len(back) == 1 && back[0].Node == 2 && back[0].Over) != c.back || len(back) > 1 {
			t.Errorf("%s: %+v, want it withdrawn: %v", name, back, c.back)
		}
		for i := range 3 {
			b.Withdrawn(i, 0)
		}
		if !b.Over() {
			t.Errorf("%s: all confirmed, and the ballot stays", name)
		}
	}
}

// A node is to remember an owner that was released, and only such a one, while a Try of it may
// still come: one that goes on is to be granted.
func TestWhoIsRemembered(t *testing.T) {
	b := New(3)
	after(&b, b.Ask(asks(), seen(3, 10)), seen(3, 10), yes(10), notYet, notYet)
	if w := b.withdraw(1); !w.Settled {
		t.Error("one that goes on is remembered as released")
	}
	b.gone.over = true
	if w := b.withdraw(1); w.Settled {
		t.Error("it is over, and a Try that is still out would be granted")
	}
	if w := b.withdraw(0); !w.Settled {
		t.Error("it is remembered where nothing is out")
	}
}
