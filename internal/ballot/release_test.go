// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
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
	if r.Decided() {
		t.Error("the queue node has not answered: its waiters may not know")
	}
	r.Answer(0, Answered)
	if !r.Decided() || r.Outcome() != Answered {
		t.Errorf("decided %v, outcome %v", r.Decided(), r.Outcome())
	}
}

func TestReleaseDoesNotWaitForTheQueueNodeForEver(t *testing.T) {
	b := won(t)
	r := b.Release(releases(false), 2)
	r.Sent(All(3))
	r.Answer(0, Answered)
	r.Overdue()
	if r.Decided() {
		t.Error("one answer of three decides")
	}
	r.Answer(1, Answered)
	if !r.Decided() || r.Outcome() != Answered {
		t.Errorf("decided %v, outcome %v", r.Decided(), r.Outcome())
	}
}

// A node whose answer to a Try is still out is told once it is there: a Release before it
// would have to be remembered.
func TestReleaseLeavesLateNodes(t *testing.T) {
	b := won(t)
	r := b.Release(releases(true), None)
	if r.Tells(2) || !r.Late(2) {
		t.Fatal("node 2 is told before it answered")
	}
	if b.Over() {
		t.Error("the ballot ends before node 2 answered")
	}
	back := answers(&b, Step{Round: 1}, 2, grants(10))
	if len(back) != 1 || back[0].Node != 2 || !back[0].Over || back[0].UpTo != 10 {
		t.Fatalf("%+v, want node 2's vote withdrawn", back)
	}
	for i := range 3 {
		b.Withdrawn(i, 0)
	}
	if !b.Over() {
		t.Error("all confirmed, and the ballot stays")
	}
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
	if r := b.Release(releases(true), None); r.Tells(2) || r.Late(2) || !r.Tells(1) {
		t.Error("node 2 was never asked, and is told")
	}
}

func TestReleaseByAStrangerTellsAll(t *testing.T) {
	r := Stranger(3, releases(true), 0)
	r.Sent(All(3))
	for i := range 3 {
		if !r.Tells(i) || r.Request(i).UpTo != 0 {
			t.Errorf("node %d: %+v", i, r.Request(i))
		}
		if r.Decided() {
			t.Errorf("decided after %d answers", i)
		}
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
			if !r.Decided() || r.Outcome() != c.want {
				t.Errorf("outcome %v, want %v", r.Outcome(), c.want)
			}
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
	if !b.Over() {
		t.Error("nothing is left, and the ballot stays")
	}
}

func TestStands(t *testing.T) {
	b := New(3)
	b.Ask(asks(), seen(3, 10))
	if !b.Stands(1, 2*ttl-1) || b.Stands(1, 2*ttl) || b.Stands(0, 0) {
		t.Error("a withdrawal is sent again for two TTLs, unless the owner asks again")
	}
	if b.Expired(2*ttl) || !b.Expired(2*ttl+time.Nanosecond) {
		t.Error("it expires after that")
	}
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
		"finished":                   {holder(false), driver.Finished, false},
		"finished, after an abandon": {holder(true), driver.Finished, true},
		"unfinished":                 {holder(false), driver.Unfinished, true},
		"unused":                     {holder(false), driver.Unused, true},
		"refused":                    {refused, driver.Unfinished, false},
	} {
		req := releases(false)
		req.End = c.end
		r := c.b.Release(req, 0)
		r.Sent(All(3))
		r.Answer(0, Answered)
		r.Answer(1, Answered)
		if r.Decided() == c.all {
			t.Errorf("%s: decided by two of three: %v", name, r.Decided())
		}
	}
}

// A majority that has nothing is as good as one that confirms: a release does not wait
// for a silent node to learn that the lease was lost.
func TestReleaseOfALostLeaseTakesAMajority(t *testing.T) {
	b := won(t)
	r := b.Release(releases(false), 0)
	r.Sent(All(3))
	r.Answer(0, NotHolder)
	if r.Decided() {
		t.Fatal("one node decides")
	}
	r.Answer(1, NotHolder)
	if !r.Decided() || r.Outcome() != NotHolder {
		t.Errorf("decided %v, outcome %v", r.Decided(), r.Outcome())
	}
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
