// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// What the next Try proposes: the fence that the caller chose, unless a node knows a
// larger one, or its clock is behind; then our clock is the one that is ahead, and must
// not carry the fences of all others with it.
func TestNextProposal(t *testing.T) {
	refused := func(fence uint64) Answer {
		a := no
		a.Result.Fence = fence
		return a
	}
	const limit = 2000
	for name, c := range map[string]struct {
		said Answer // of every node, to a proposal of 1000
		want uint64 // of the next Try, for which the caller chose 1500
	}{
		"a holder with a smaller fence":     {refused(500), 1500},
		"a holder with a larger fence":      {refused(1700), 1701},
		"a holder with the limit":           {refused(limit), limit + 1},
		"a holder with one above the limit": {refused(limit + 1), 1500},
		"too far above a node's clock":      {low(500), 501},
		"not above what was granted":        {low(1200), 1500},
		"exactly what was granted":          {low(1000), 1500},
		"too far above nothing":             {low(0), 1500},
	} {
		v := seen(3, 1000)
		v.Limit = limit
		b := New(3)
		s := b.Ask(asks(), v)
		for i := range 3 {
			b.Heard(Reply{Node: i, Round: s.Round, Asked: s.Ask, Answer: c.said})
		}
		v.Fence = 1500
		if s = b.Ask(asks(), v); s.Ask.Proposal != c.want {
			t.Errorf("%s: %d is proposed, want %d", name, s.Ask.Proposal, c.want)
		}
	}
}

// The second round's proposal is one that as many as can be grant: what the nodes nearby
// want, without those whose clocks are far ahead or far behind, if a majority is left.
func TestProposalOfTheNextRound(t *testing.T) {
	const limit = 2000
	for name, c := range map[string]struct {
		said   []Answer // to a proposal of 1000
		want   uint64
		raises Set
	}{
		"all are near":                   {[]Answer{yes(1000), low(1000), low(1500)}, 1501, 1 << 0},
		"one wants the limit":            {[]Answer{yes(1000), low(1000), low(limit - 1)}, limit, 1 << 0},
		"one wants more than the limit":  {[]Answer{yes(1000), low(1000), low(limit)}, 1001, 1 << 0},
		"most want more than the limit":  {[]Answer{yes(1000), low(limit), low(limit + reach)}, limit + 1 + reach, 1 << 0},
		"most want the limit at most":    {[]Answer{yes(1000), low(limit - 1), low(limit)}, limit, 1 << 0},
		"and one wants even more":        {[]Answer{low(limit), low(limit + 5), low(limit + 6 + reach)}, limit + 6, 0},
		"two of five are far behind":     {[]Answer{low(20), low(20), yes(1000), yes(1000), low(1005)}, 1006, 1<<2 | 1<<3},
		"most are far behind":            {[]Answer{low(20), low(30), yes(1000)}, 31, 1 << 2},
		"two fences, and nothing is low": {[]Answer{yes(1000), yes(1200), silent}, 1200, All(3)},
		"somebody else's, and some low":  {[]Answer{yes(1000), yes(1200), low(1500)}, 1501, 1 << 0},
	} {
		v := seen(len(c.said), 1000)
		v.Limit = limit
		b := New(len(c.said))
		if s := try(&b, asks(), v, c.said...); s.Outcome != Asking || s.Ask.Proposal != c.want || s.Raises != c.raises {
			t.Errorf("%s: %+v, want a round for %d that raises %b", name, s, c.want, c.raises)
		}
	}
}

// What one round comes to; the name of each case is its rule.
func TestWhatARoundComesTo(t *testing.T) {
	named := func(node string) Answer {
		a := yes(10)
		a.Result.Run = node
		return a
	}
	const near = uint64(voting.MaxFenceSkew / 2 / time.Microsecond)
	free, queue, far, reads := seen(3, 10), seenQueue(3, 10, 0), seen(3, 1000), asks()
	far.Limit, reads.Mode = 2000, driver.Shared
	for rule, c := range map[string]struct {
		req  driver.TryRequest
		v    View
		said [3]Answer
		want Outcome
		next uint64 // what the second round proposes
	}{
		"others have the votes: a second round could only take them":         {asks(), free, [3]Answer{yes(10), no, no}, Refused, 0},
		"the queue node has others first, whatever the fence is":             {queues(), queue, [3]Answer{no, yes(10), low(20)}, Refused, 0},
		"with the queue node's vote: all who asked give back what they have": {queues(), queue, [3]Answer{yes(10), no, no}, Pausing, 0},
		"with the queue node's vote: nobody has the others":                  {queues(), queue, [3]Answer{yes(10), silent, silent}, TooFew, 0},
		"its turn, for a larger fence: others are about to give back":        {queues(), queue, [3]Answer{low(20), no, no}, Asking, 21},
		"stores with names of their own are no twins":                        {asks(), free, [3]Answer{named("a"), named("b"), named("c")}, Granted, 0},
		"a node that has an earlier fence of ours is not far behind":         {asks(), far, [3]Answer{yes(900), low(1200), low(5000)}, Asking, 1201},
		"what comes with an error is no vote":                                {asks(), free, [3]Answer{yes(10), {Unknown, grants(10)}, {HeldBack, grants(10)}}, TooFew, 0},
		"a reader, where nobody has the queue, heeds nobody":                 {reads, free, [3]Answer{no, no, no}, Refused, 0},
		"a node whose clock is behind says nothing of the key":               {asks(), free, [3]Answer{low(9), no, silent}, TooFew, 0},
		"nor does one whose clock is ahead":                                  {asks(), free, [3]Answer{low(10 + near + 1), no, silent}, TooFew, 0},
		"one that granted what others propose at the same time refuses":      {asks(), free, [3]Answer{low(10 + near), no, silent}, Refused, 0},
	} {
		b := New(3)
		if s := try(&b, c.req, c.v, c.said[:]...); s.Outcome != c.want || c.next > 0 && s.Ask.Proposal != c.next {
			t.Errorf("%s: %+v, want outcome %v, and a round for %d", rule, s, c.want, c.next)
		}
	}
}

// Only the queue node is asked for a place, and only for an owner that waits: a place elsewhere would keep others out.
func TestWhoIsAskedForAPlace(t *testing.T) {
	for _, req := range []driver.TryRequest{asks(), queues()} {
		b := New(3)
		s := b.Ask(req, seenQueue(3, 10, 1))
		for i := range 3 {
			place := s.Request(i).Queue
			failIf(t, place != (req.Queue && i == 1), "it waits: %v, and node %d is asked for a place: %v", req.Queue, i, place)
		}
	}
}

// How long a Try goes on while every proposal is overtaken. One with a place ends after
// four rounds and waits its turn; one that would tell somebody no goes on for four node
// time-outs, and pauses between its rounds then, so as not to keep others from getting on.
func TestHowLongATryGoesOn(t *testing.T) {
	overtaken := func(s Step) []Answer {
		return []Answer{low(s.Ask.Proposal), low(s.Ask.Proposal), low(s.Ask.Proposal)}
	}
	b := New(3)
	v := seen(3, 10) // without a queue node
	s := b.Ask(queues(), v)
	for round := 1; round < maxRounds; round++ {
		if s = after(&b, s, v, overtaken(s)...); s.Outcome != Asking {
			t.Fatalf("after round %d: %+v, want another", round, s)
		}
	}
	if s = after(&b, s, v, overtaken(s)...); s.Outcome != Refused {
		t.Errorf("after round %d: %+v, want a refusal", maxRounds, s)
	}

	b = New(3)
	s = b.Ask(asks(), v)
	for round := 1; round < maxRounds; round++ {
		if s = after(&b, s, v, overtaken(s)...); s.Outcome != Asking {
			t.Fatalf("without a place, after round %d: %+v, want another", round, s)
		}
	}
	goesOn := func() {
		t.Helper()
		if s = after(&b, s, v, overtaken(s)...); s.Outcome != Pausing || s.Pause <= 0 {
			t.Fatalf("%v after it began: %+v, want a pause", v.Now, s)
		}
	}
	goesOn()
	s = b.Next(v) // a round that begins early ends as the others
	goesOn()
	v.Now = splitTime * v.Timeout
	s = b.Next(v)
	goesOn()
	v.Now++
	s = b.Next(v)
	if s = after(&b, s, v, overtaken(s)...); s.Outcome != Refused {
		t.Errorf("%v after it began: %+v, want a refusal", v.Now, s)
	}
}

// The queue node's votes are wanted, for the sake of those in its queue: as long as only
// the proposal was too low there it is asked again, but not for a fence that others would
// refuse, and not for ever.
func TestQueueNodeThatWantsALargerFence(t *testing.T) {
	b := New(3)
	v := seenQueue(3, 10, 0)
	s := b.Ask(queues(), v)
	for round := 1; round < maxRounds; round++ {
		if s = after(&b, s, v, low(s.Ask.Proposal+9), yes(s.Ask.Proposal), yes(s.Ask.Proposal)); s.Outcome != Asking {
			t.Fatalf("after round %d: %+v, want another", round, s)
		}
	}
	if s = after(&b, s, v, low(s.Ask.Proposal+9), yes(s.Ask.Proposal), yes(s.Ask.Proposal)); s.Outcome != Granted {
		t.Errorf("after round %d: %+v, want what the majority granted", maxRounds, s)
	}
	for _, limit := range []uint64{15, 20} {
		b, v := New(3), seenQueue(3, 10, 0)
		v.Limit = limit
		if s := try(&b, queues(), v, low(20), yes(10), yes(10)); s.Outcome != Granted {
			t.Errorf("limit %d: %+v, want a grant without the queue node", limit, s)
		}
	}
}

// A queue node whose refusal names more than the longest lease has a wrong clock, and is
// passed over: it would keep everybody out for as long. Nothing else passes it over.
func TestQueueNodeWithAWrongClock(t *testing.T) {
	far := time.Hour
	lowFar := low(20)
	lowFar.Result.Left = far
	for name, c := range map[string]struct {
		queue, other Answer
		maxTTL       time.Duration
		want         Outcome
	}{
		"longer than any lease":             {holds("B", far), yes(10), time.Minute, Granted},
		"as long as the longest":            {holds("B", time.Minute), yes(10), time.Minute, Refused},
		"any lease may be as long":          {holds("B", far), yes(10), 0, Refused},
		"another node has the wrong clock":  {holds("B", time.Second), holds("B", far), time.Minute, Refused},
		"it only wants a larger fence":      {lowFar, yes(10), time.Minute, Asking},
		"another one wants a larger fence":  {holds("B", time.Second), lowFar, time.Minute, Refused},
		"another grants, with a long lease": {holds("B", time.Second), Answer{Answered, driver.Result{Granted: true, Fence: 10, Left: far}}, time.Minute, Refused},
	} {
		b, v := New(5), seenQueue(5, 10, 0)
		v.MaxTTL = c.maxTTL
		s := try(&b, queues(), v, c.queue, c.other, yes(10), yes(10), yes(10))
		failIf(t, s.Outcome != c.want, "%s: %+v, want outcome %v", name, s, c.want)
	}
}

// Who writes waits for every answer when one says that the key was abandoned: what the
// others know of it would be told to the next holder, too. Who reads tells nobody.
func TestWhoWaitsToHearOfAnAbandonedKey(t *testing.T) {
	abandoned := grants(10)
	abandoned.Abandoned = true
	for mode, waits := range map[driver.Mode]bool{driver.Exclusive: true, driver.Shared: false} {
		b := New(3)
		req := asks()
		req.Mode = mode
		s := b.Ask(req, seen(3, 10))
		answers(&b, s, 0, abandoned)
		answers(&b, s, 1, grants(10))
		failIf(t, b.Decided() == waits, "mode %v: decided %v without the third", mode, b.Decided())
		if answers(&b, s, 2, grants(10)); !b.Decided() {
			t.Errorf("mode %v: all answered, and nothing is decided", mode)
		}
	}
}

// A node is given up in the round that it was silent in, once, and in no other: who is
// slow in one round may be the vote that the next one needs.
func TestSilenceCountsInItsRound(t *testing.T) {
	b := New(3)
	first := b.Ask(asks(), seen(3, 10))
	failIf(t, !b.Silent(2, first.Round) || b.Silent(2, first.Round), "it counts the first time, and not the second")
	second := after(&b, first, seen(3, 11), yes(10), low(20))
	failIf(t, b.Silent(2, first.Round), "the silence of an earlier round counts")
	answers(&b, second, 0, grants(21))
	stopIf(t, b.Decided(), "node 2 is not waited for")
	if answers(&b, second, 2, grants(21)); b.Next(seen(3, 12)).Outcome != Granted {
		t.Error("node 2 has no vote in the second round")
	}
}

// That a round is late stays known, also when the timer of an earlier one fires after it.
func TestLateRoundStaysLate(t *testing.T) {
	b := New(3)
	first := b.Ask(asks(), seen(3, 10))
	second := after(&b, first, seen(3, 11), yes(10), low(20), silent)
	if b.Late(first.Round); b.round.late {
		t.Error("the second round is late before it began")
	}
	b.Late(second.Round)
	b.Late(first.Round)
	answers(&b, second, 0, held)
	if answers(&b, second, 1, held); !b.Decided() {
		t.Error("the third node is waited for after its time")
	}
}

// The first round with nodes that nobody met waits for all of them, and the next one asks
// for a place.
func TestFirstRoundMeetsAll(t *testing.T) {
	b, v := New(3), seenQueue(3, 10, 0)
	v.Met = false
	s := b.Ask(queues(), v)
	stopIf(t, !b.Introduces() || s.Ask.Queue, "%+v, want a round that meets the nodes", s)
	answers(&b, s, 1, grants(10))
	if answers(&b, s, 2, grants(10)); b.Decided() {
		t.Error("decided before all were met: two may be one server")
	}
	if s = after(&b, s, v, no); b.Introduces() || s.Outcome != Asking || !s.Ask.Queue || s.Queue != 0 {
		t.Errorf("%+v, want a round with the queue", s)
	}
	b = New(3)
	if b.Ask(asks(), seen(3, 10)); b.Introduces() {
		t.Error("nodes that were met are met again")
	}
}

// A Try of a lease that is released meanwhile ends with its round.
func TestTryOfALeaseThatIsReleased(t *testing.T) {
	b := won(t)
	s := b.Ask(asks(), seen(3, 11))
	answers(&b, s, 0, grants(10))
	b.Release(releases(false), None)
	answers(&b, s, 1, driver.Result{Why: voting.FenceTooLow, Fence: 20})
	silence(&b, s, 2)
	if s = b.Next(seen(3, 12)); s.Outcome == Asking || s.Outcome == Pausing {
		t.Errorf("%+v, want an end", s)
	}
}

// Whoever keeps one vote and waits for the others does so in the order in which every
// client prefers the nodes, or two that see different queue nodes wait for each other. A
// node that says nothing, or grants, has no holder who could wait.
func TestWhoReservesTheQueueNodesVote(t *testing.T) {
	for name, c := range map[string]struct {
		said     [5]Answer
		reserved bool
	}{
		"nodes after it have another holder":  {[5]Answer{silent, yes(10), no, no, no}, true},
		"a node before it has another holder": {[5]Answer{no, yes(10), no, no, no}, false},
		"a node before it grants":             {[5]Answer{yes(10), yes(10), no, no, no}, true},
	} {
		for _, ranked := range []bool{true, false} {
			b, v := New(5), seenQueue(5, 10, 1)
			if ranked {
				v.Rank = [MaxNodes]uint8{0, 1, 2, 3, 4}
			}
			s := tryOut(&b, queues(), v, c.said[:]...)
			if node, reserved := b.Place(); reserved != (c.reserved || !ranked) || reserved && node != 1 {
				t.Errorf("%s, ranked %v: %+v, place %d, reserved %v", name, ranked, s, node, reserved)
			}
		}
	}
}

// One node that is far behind is enough for the next proposal to be a small one.
func TestOneNodeIsFarBehind(t *testing.T) {
	b := New(3)
	try(&b, asks(), seen(3, 1000), low(500), no, no)
	s := b.Ask(asks(), seen(3, 1500))
	failIf(t, s.Ask.Proposal != 501, "%d is proposed, want 501", s.Ask.Proposal)
}

// What has to be waited for before a majority counts: the queue node, and in the first round
// everybody.
func TestWhoIsWaitedFor(t *testing.T) {
	met := seen(3, 10)
	unmet := met
	unmet.Met = false
	for name, c := range map[string]struct {
		v       View
		decided bool
	}{"nobody": {met, true}, "the queue node": {seenQueue(3, 10, 0), false}, "who was never met": {unmet, false}} {
		b := New(3)
		s := b.Ask(queues(), c.v)
		answers(&b, s, 1, grants(10))
		if answers(&b, s, 2, grants(10)); b.Decided() != c.decided {
			t.Errorf("%s: decided %v", name, b.Decided())
		}
	}
}
