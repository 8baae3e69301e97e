// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// won is an owner with a lease of nodes 0 and 1, whose Try at node 2 went unanswered.
func won(t *testing.T) Ballot {
	t.Helper()
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 0, grants(10))
	answers(&b, s, 1, grants(10))
	if s = b.Next(seen(3, 11)); s.Outcome != Granted {
		t.Fatalf("%+v, want a grant", s)
	}
	return b
}

func releases(settled bool) driver.ReleaseRequest {
	return driver.ReleaseRequest{Claim: asks().Claim, TTL: ttl, Settled: settled}
}

func TestReleaseCountsAMajority(t *testing.T) {
	b := won(t)
	silence(&b, Step{Round: 1}, 2)
	r := b.Release(releases(true), 0)
	for i, settled := range []bool{true, true, false} {
		if req := r.Request(i); !r.Tells(i) || req.Settled != settled || req.UpTo != 10 {
			t.Errorf("node %d is asked %+v, want it up to 10, settled %v", i, req, settled)
		}
	}
	r.Sent(All(3))
	r.Answer(1, Answered)
	r.Answer(2, NotHolder)
	failIf(t, r.Decided(), "the queue node has not answered: its waiters may not know")
	r.Answer(0, Answered)
	failIf(t, !r.Decided() || r.Outcome() != Answered, "decided %v, outcome %v", r.Decided(), r.Outcome())
}

func TestReleaseDoesNotWaitForTheQueueNodeForEver(t *testing.T) {
	b := won(t)
	r := b.Release(releases(false), 2)
	r.Sent(All(3))
	r.Answer(0, Answered)
	r.Overdue()
	failIf(t, r.Decided(), "one answer of three decides")
	r.Answer(1, Answered)
	failIf(t, !r.Decided() || r.Outcome() != Answered, "decided %v, outcome %v", r.Decided(), r.Outcome())
}

// A node whose answer to a Try is still out is told once it is there: a Release before it
// would have to be remembered.
func TestReleaseLeavesLateNodes(t *testing.T) {
	b := won(t)
	r := b.Release(releases(true), None)
	stopIf(t, r.Tells(2) || !r.Late(2), "node 2 is told before it answered")
	failIf(t, b.Over(), "the ballot ends before node 2 answered")
	back := answers(&b, Step{Round: 1}, 2, grants(10))
	if len(back) != 1 || back[0].Node != 2 || !back[0].Over || back[0].UpTo != 10 {
		t.Fatalf("%+v, want node 2's vote withdrawn", back)
	}
	for i := range 3 {
		b.Withdrawn(i, 0)
	}
	failIf(t, !b.Over(), "all confirmed, and the ballot stays")
}

// Of a node that was never asked nothing is to be released.
func TestReleaseSkipsNodesThatWereNotAsked(t *testing.T) {
	b := New(3)
	v := seen(3, 10)
	v.Serving.Drop(2)
	s := b.Ask(asks(), v)
	answers(&b, s, 0, grants(10))
	answers(&b, s, 1, grants(10))
	b.Next(v)
	r := b.Release(releases(true), None)
	failIf(t, r.Tells(2) || r.Late(2) || !r.Tells(1), "node 2 was never asked, and is told")
}

func TestReleaseByAStrangerTellsAll(t *testing.T) {
	r := Stranger(3, releases(true), 0)
	r.Sent(All(3))
	for i := range 3 {
		failIf(t, !r.Tells(i) || r.Request(i).UpTo != 0, "node %d: %+v", i, r.Request(i))
		failIf(t, r.Decided(), "decided after %d answers", i)
		r.Answer(i, NotHolder)
	}
	if !r.Decided() || r.Outcome() != NotHolder {
		t.Error(r.Outcome())
	}
}

// A release is unknown where a majority did not say, and of a lease that most nodes no
// longer have it is ErrNotHeld.
func TestReleaseOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		answers [3]Kind
		want    Kind
	}{
		"a majority confirms":         {[3]Kind{Answered, Answered, Unknown}, Answered},
		"one confirms, one has none":  {[3]Kind{Answered, NotHolder, Unknown}, Answered},
		"one confirms, two have none": {[3]Kind{Answered, NotHolder, NotHolder}, NotHolder},
		"two are silent":              {[3]Kind{Answered, Unknown, Unknown}, Unknown},
		"nobody has it":               {[3]Kind{NotHolder, NotHolder, NotHolder}, NotHolder},
	} {
		t.Run(name, func(t *testing.T) {
			b := won(t)
			r := b.Release(releases(false), 0)
			r.Sent(All(3))
			for i, kind := range c.answers {
				r.Answer(i, kind)
			}
			failIf(t, !r.Decided() || r.Outcome() != c.want, "outcome %v, want %v", r.Outcome(), c.want)
		})
	}
}

// A refused owner that neither asks again nor was released is ended, and what comes in
// after that is withdrawn.
func TestVanishedOwner(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 0, held)
	answers(&b, s, 1, held)
	silence(&b, s, 2)
	if s = b.Next(seen(3, 11)); s.Stays || b.Blank() {
		t.Fatalf("%+v, blank %v", s, b.Blank())
	}
	again := b
	again.Ask(asks(), seen(3, 12))
	if back := again.Vanished(1); back != nil {
		t.Errorf("it asked again: %+v", back)
	}
	back := b.Vanished(1)
	if len(back) != 1 || back[0].Node != 2 || !back[0].Over || back[0].Settled {
		t.Fatalf("%+v, want node 2 told, and to remember it", back)
	}
	b.Withdrawn(2, 0)
	failIf(t, !b.Over(), "nothing is left, and the ballot stays")
}

func TestStands(t *testing.T) {
	b := New(3)
	b.Ask(asks(), seen(3, 10))
	if !b.Stands(1, 2*ttl-1) || b.Stands(1, 2*ttl) || b.Stands(0, 0) {
		t.Error("a withdrawal is sent again for two TTLs, unless the owner asks again")
	}
	failIf(t, b.Expired(2*ttl) || !b.Expired(2*ttl+time.Nanosecond), "it expires after that")
}

// What one node alone may tell the next holder (that work was left undone) every node is
// to hear before the release is over; otherwise a majority is enough.
func TestWhoseReleaseWaitsForAll(t *testing.T) {
	holder := func(abandoned bool) Ballot {
		b := New(3)
		res := yes(10)
		res.Result.Abandoned = abandoned
		try(&b, asks(), seen(3, 10), res, res, res)
		return b
	}
	refused := New(3)
	try(&refused, asks(), seen(3, 10), yes(10), no, no)
	for name, c := range map[string]struct {
		b   Ballot
		end driver.End
		all bool
	}{
		"finished":                   {holder(false), driver.EndFinished, false},
		"finished, after an abandon": {holder(true), driver.EndFinished, true},
		"unfinished":                 {holder(false), driver.EndUnfinished, true},
		"unused":                     {holder(false), driver.EndUnused, true},
		"refused":                    {refused, driver.EndUnfinished, false},
	} {
		req := releases(false)
		req.End = c.end
		r := c.b.Release(req, 0)
		r.Sent(All(3))
		r.Answer(0, Answered)
		r.Answer(1, Answered)
		failIf(t, r.Decided() == c.all, "%s: decided by two of three: %v", name, r.Decided())
	}
}

// A majority that has nothing is as good as one that confirms: a release does not wait
// for a silent node to learn that the lease was lost.
func TestReleaseOfALostLeaseTakesAMajority(t *testing.T) {
	b := won(t)
	r := b.Release(releases(false), 0)
	r.Sent(All(3))
	r.Answer(0, NotHolder)
	stopIf(t, r.Decided(), "one node decides")
	r.Answer(1, NotHolder)
	failIf(t, !r.Decided() || r.Outcome() != NotHolder, "decided %v, outcome %v", r.Decided(), r.Outcome())
}

// An owner that was released has nothing, although some nodes have yet to hear of it, and
// say so when they are asked once more.
func TestReleaseOfAReleasedOwner(t *testing.T) {
	for confirmed, want := range map[int]Kind{1: Answered, 2: NotHolder} {
		b := won(t)
		silence(&b, Step{Round: 1}, 2)
		b.Release(releases(false), None)
		for i := range confirmed {
			b.Withdrawn(i, 0)
		}
		r := b.Release(releases(false), None)
		r.Sent(All(3))
		r.Answer(0, NotHolder)
		r.Answer(2, Answered)
		if r.Answer(1, Unknown); !r.Decided() || r.Outcome() != want {
			t.Errorf("after %d confirmations: outcome %v, want %v", confirmed, r.Outcome(), want)
		}
	}
}

// The release of one that waits is waited for where its place is, not at the queue node of now.
func TestReleaseOfAPlace(t *testing.T) {
	b := New(3)
	try(&b, queues(), seenQueue(3, 10, 2), no, no, no)
	r := b.Release(releases(false), 0)
	r.Sent(All(3))
	r.Answer(0, NotHolder)
	if r.Answer(1, NotHolder); r.Decided() {
		t.Error("its place has yet to go")
	}
	if r.Answer(2, Answered); !r.Decided() || r.Outcome() != Answered {
		t.Errorf("outcome %v: it had a place, and no lease", r.Outcome())
	}
}

// The queue node is waited for, whoever else confirmed.
func TestReleaseWaitsForTheQueueNode(t *testing.T) {
	b := won(t)
	r := b.Release(releases(false), 0)
	var some Set
	some.Add(0)
	some.Add(1)
	if r.Sent(some); !r.Waits(0) || r.Waits(2) {
		t.Error("it waits for the nodes that were told")
	}
	r.Sent(All(3))
	r.Answer(1, Answered)
	if r.Answer(2, Answered); r.Decided() {
		t.Error("decided without the queue node")
	}
	if r.Answer(0, Answered); !r.Decided() || r.Waits(0) {
		t.Error("all confirmed")
	}
}

// How a node is told that has a vote, and has yet to answer another Try: at once, and it is to
// remember it. When the caller says that a Try may still come, every node is.
func TestReleaseWhileATryIsOut(t *testing.T) {
	b := won(t)
	b.Sends(0)
	c := b
	if r := b.Release(releases(true), None); !r.Tells(0) || r.Late(0) || r.Request(0).Settled || !r.Request(1).Settled {
		t.Errorf("node 0 is told: %v, settled: %v", r.Tells(0), r.Request(0).Settled)
	}
	if r := c.Release(releases(false), None); r.Request(0).Settled || r.Request(1).Settled {
		t.Error("a node does not remember it, and a Try may come")
	}
}

// No client worked under what a node granted after the release: the next holder must not be
// told that the key was abandoned. How the lease itself ended is told as it was.
func TestEndOfAVoteThatCameAfterTheRelease(t *testing.T) {
	for name, c := range map[string]struct {
		late Answer // of node 2, to the Try
		end  driver.End
		node int
		want driver.End
	}{
		"a late vote, unfinished":   {yes(10), driver.EndUnfinished, 2, driver.EndUnused},
		"a late vote, finished":     {yes(10), driver.EndFinished, 2, driver.EndFinished},
		"an early vote, unfinished": {yes(10), driver.EndUnfinished, 1, driver.EndUnfinished},
	} {
		b := won(t)
		req := releases(true)
		req.End = c.end
		b.Release(req, None)
		b.Heard(Reply{Node: 2, Round: 1, Answer: c.late})
		w := b.withdraw(c.node)
		failIf(t, w.End != c.want, "%s: withdrawn as %v, want %v", name, w.End, c.want)
	}
}

// A release takes over from the withdrawals before it: sent beside it, they would name
// another end.
func TestReleaseEndsEarlierWithdrawals(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), yes(10), no, no)
	stopIf(t, !b.Stands(1, 0), "the vote of node 0 is not withdrawn again")
	b.Release(releases(true), None)
	failIf(t, b.Stands(1, 0), "a withdrawal is sent again after the release")
	back := b.Vanished(1)
	failIf(t, back != nil, "an owner that was released vanishes, too: %+v", back)
}

// A Withdraw that no node confirmed is sent again when its owner is given up, or the vote
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
		first     Answer
		confirmed bool
		says      Answer
		back      bool
	}{
		"its fence is too low beside the vote":   {yes(10), false, low(9), true},
		"its fence is too low for another's":     {yes(10), false, low(20), true}, // perhaps it has the vote, too
		"its fence is too low, and it has less":  {yes(10), false, low(8), false},
		"the node does not vote":                 {yes(10), false, Answer{Kind: HeldBack}, true},
		"another has the vote":                   {yes(10), false, no, false},
		"the node confirmed it":                  {yes(10), true, low(20), false},
		"the node confirmed it, and votes again": {yes(10), true, yes(12), true},
		"of a vote that may be there":            {silent, false, low(20), true},
		"of one that may be, and is confirmed":   {silent, true, low(20), false},
	} {
		b := New(3)
		s := try(&b, asks(), seen(3, 10), no, c.first, no)
		if c.first == silent {
			s = try(&b, asks(), seen(3, 11), no, low(20), no)
		}
		stopIf(t, len(s.Back) != 1 || s.Back[0].Node != 1 || s.Back[0].UpTo != 10, "%+v, want the vote of node 1 withdrawn", s)
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
	s := try(&b, asks(), seen(3, 7), no, low(11), no)
	failIf(t, len(s.Back) != 1 || s.Back[0].UpTo != 12, "%+v, want the vote withdrawn up to 12", s.Back)
	b.Withdrawn(1, 12)
	b.Withdrawn(1, 10) // read after it
	s = try(&b, asks(), seen(3, 7), no, low(11), no)
	failIf(t, len(s.Back) != 0, "%+v, and the Withdraw was confirmed", s.Back)
}

// Nor of a Try that may come after it: the node is to remember the release for that.
func TestConfirmedWithdrawBeforeATry(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no)
	try(&b, asks(), seen(3, 12), no, silent, no)
	b.Withdrawn(1, 10)
	r := b.Release(releases(true), None)
	failIf(t, r.Request(1).Settled, "a Try may still come, and the key would be granted to nobody")
}

// Nor of a release, until which a Try that had no answer may come.
func TestReleaseIsNotAnEarlierWithdraw(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no)
	try(&b, asks(), seen(3, 12), no, silent, no)
	r := b.Release(releases(false), None)
	upTo := r.Request(1).UpTo
	stopIf(t, upTo != 12, "released up to %d, want 12", upTo)
	if b.Withdrawn(1, 10); b.votes[1].settled() || !b.votes[1].withdrawing {
		t.Errorf("%+v: the node has not heard of the release, and would grant a late Try", b.votes[1])
	}
	for i := range 3 {
		b.Withdrawn(i, 12)
	}
	failIf(t, !b.Over(), "all confirmed, and the ballot stays")
}

// A release is told where a Withdraw may be lost, also while an answer is out that may be none to the release.
func TestReleaseBesideAWithdraw(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 10), no, yes(10), no)
	try(&b, asks(), seen(3, 12), yes(12), notYet, yes(12))
	r := b.Release(releases(true), None)
	failIf(t, !r.Tells(1), "node 1 may have the vote, and is not told")
}

// A Try without an answer may have left a place, and the place of a reader lets no writer in: it is given up when the node is
// asked for the vote that it lost. Once the lease is lost its owner may wait there.
func TestPlaceThatAHolderLeft(t *testing.T) {
	for name, c := range map[string]struct {
		queue Answer // what the Try was told there
		asked voting.VoteRequest
		lost  bool
		says  Answer
		back  bool
	}{
		"the node did not answer":                    {silent, voting.VoteRequest{Restore: true}, false, no, true},
		"it does not answer yet":                     {notYet, voting.VoteRequest{Restore: true}, false, no, true},
		"it did not answer, and votes now":           {silent, voting.VoteRequest{Restore: true}, false, yes(10), false},
		"it did not answer, and not to a Convert":    {silent, voting.VoteRequest{TryRequest: driver.TryRequest{Convert: true}}, false, no, false},
		"it had another holder, and no place is due": {no, voting.VoteRequest{Restore: true}, false, no, false},
		"it did not answer, and the owner waits now": {silent, voting.VoteRequest{Restore: true}, true, no, false},
	} {
		b := New(3)
		s := try(&b, queues(), seenQueue(3, 10, None), c.queue, yes(10), yes(10))
		stopIf(t, s.Outcome != Granted, "%s: %+v, want a grant", name, s)
		r, ok := b.Restore(0, voting.VoteRequest{TryRequest: asks(), Proposal: 10, Restore: c.asked.Restore})
		r.Convert = c.asked.Convert
		if c.lost {
			try(&b, queues(), seen(3, 11), no, no, no)
			try(&b, queues(), seenQueue(3, 12, 0), no, no, no)
		}
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
		stopIf(t, s.Outcome != Granted, "%s: %+v, want a grant", name, s)
		if (len(s.Back) == 1 && s.Back[0].Node == 0) != c.back || len(s.Back) > 1 {
			t.Errorf("%s: %+v, want node 0's withdrawn: %v", name, s.Back, c.back)
		}
	}
}

// What comes after a release is withdrawn where it is a vote, or may be one: no other client
// would do it. A refusal is the end of it, also for the ballot.
func TestWhatComesAfterARelease(t *testing.T) {
	asked := func() (b Ballot, s Step) {
		b = won(t)
		return b, Step{Round: 1}
	}
	adopted := func() (b Ballot, s Step) {
		b = New(3)
		b.Renewing(driver.RenewRequest{Claim: asks().Claim, TTL: ttl, Fence: 10}, 0)
		s.Ask, _ = b.Restore(2, voting.VoteRequest{TryRequest: asks(), Proposal: 10, Restore: true})
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
		failIf(t, !b.Over(), "%s: all confirmed, and the ballot stays", name)
	}
}

// A node is to remember an owner that was released, and only such a one, while a Try of it may
// still come: an owner that goes on is to be granted.
func TestWhoIsRemembered(t *testing.T) {
	b := New(3)
	after(&b, b.Ask(asks(), seen(3, 10)), seen(3, 10), yes(10), notYet, notYet)
	failIf(t, !b.withdraw(1).Settled, "one that goes on is remembered as released")
	b.gone.over = true
	failIf(t, b.withdraw(1).Settled, "it is over, and a Try that is still out would be granted")
	failIf(t, !b.withdraw(0).Settled, "it is remembered where nothing is out")
}
