// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// twin is an answer of a node that is the same server as another.
func twin(a Answer) Answer {
	a.Result.Run = "one"
	return a
}

func nodesOf(ws []Withdrawal) (s Set) {
	for _, w := range ws {
		s.Add(w.Node)
	}
	return s
}

// What an owner keeps that got no majority. The queue node's vote is reserved while it
// goes on to ask, so that others do not ask at the same time; any other vote is withdrawn,
// or it keeps the key from everybody. A place stays with who waits there.
func TestWhatALoserKeeps(t *testing.T) {
	tooLong := Answer{Answered, driver.Result{Why: voting.TTLTooLong}}
	waiting := func(b *Ballot) { try(b, queues(), seenQueue(5, 8, 0), no, no, no, no, no) }
	reserved := func(b *Ballot) { tryOut(b, queues(), seenQueue(5, 8, 0), yes(8), no, no, no, no) }
	nothing := func(*Ballot) {}
	for name, c := range map[string]struct {
		before   func(b *Ballot)
		req      driver.TryRequest
		queue    int
		said     [5]Answer
		outcome  Outcome
		place    int
		reserved bool
		back     Set
		stays    bool
	}{
		"the queue node's vote": {nothing, queues(), 0,
			[5]Answer{yes(10), yes(10), no, no, no}, Refused, 0, true, 1 << 1, true},
		"the queue node's vote, reserved again": {reserved, queues(), 0,
			[5]Answer{yes(10), yes(10), no, no, no}, Refused, 0, true, 1 << 1, true},
		"the queue node's vote, which was reserved, after errors": {reserved, queues(), 0,
			[5]Answer{yes(10), silent, silent, silent, silent}, TooFew, None, false, 1 << 0, true},
		"without the queue": {nothing, asks(), 0,
			[5]Answer{yes(10), no, no, no, no}, Refused, None, false, 1 << 0, false},
		"after errors": {nothing, queues(), 0,
			[5]Answer{yes(10), silent, silent, silent, silent}, TooFew, None, false, 1 << 0, true},
		"after errors, without the queue": {nothing, asks(), 0,
			[5]Answer{yes(10), silent, silent, silent, silent}, TooFew, None, false, 1 << 0, true},
		"for a TTL that most refuse": {nothing, asks(), 0,
			[5]Answer{yes(10), tooLong, tooLong, tooLong, tooLong}, TooFew, None, false, 1 << 0, true},
		"of one server twice": {nothing, queues(), 0,
			[5]Answer{twin(yes(10)), twin(yes(10)), no, no, no}, OneStore, None, false, 1<<0 | 1<<1, true},
		"of one server twice, which is a majority": {nothing, queues(), 0,
			[5]Answer{twin(yes(10)), twin(yes(10)), yes(10), no, no}, OneStore, None, false, 1<<0 | 1<<1 | 1<<2, true},
		"of one server twice, which refuses once": {nothing, asks(), 0,
			[5]Answer{twin(yes(10)), twin(no), no, no, no}, OneStore, None, false, 1 << 0, false},
		"of one server twice, for which the proposal was too low": {nothing, asks(), 0,
			[5]Answer{twin(yes(10)), twin(low(20)), yes(10), no, no}, OneStore, None, false, 1<<0 | 1<<2, false},
		"a place that it did not ask for": {nothing, asks(), 0,
			[5]Answer{no, no, no, no, no}, Refused, None, false, 0, false},
		"a place": {nothing, queues(), 0,
			[5]Answer{no, no, no, no, no}, Refused, 0, false, 0, true},
		"the place that it had": {waiting, asks(), 0,
			[5]Answer{no, no, no, no, no}, Refused, 0, false, 0, true},
		"a place, beside the one that it had where the queue was": {waiting, queues(), 1,
			[5]Answer{no, no, no, no, no}, Refused, 1, false, 1 << 0, true},
		"the place that it had, whose node is silent": {waiting, queues(), 0,
			[5]Answer{silent, no, no, no, no}, Refused, 0, false, 0, true},
		"the place that it had, while the next queue node is silent": {waiting, queues(), 1,
			[5]Answer{no, silent, no, no, no}, Refused, None, false, 1 << 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(5)
			c.before(&b)
			started := b.round.no
			s := tryOut(&b, c.req, seenQueue(5, 10, c.queue), c.said[:]...)
			if c.outcome != Refused && b.round.no != started+1 {
				t.Errorf("%d rounds: it asks others again, and nothing can come of it", b.round.no-started)
			}
			place, reserved := b.Place()
			if s.Outcome != c.outcome || place != c.place || reserved != c.reserved || nodesOf(s.Back) != c.back || s.Stays != c.stays {
				t.Errorf("outcome %v, place %d, reserved %v, withdrawn %b, stays %v\nwant %+v", s.Outcome, place, reserved, nodesOf(s.Back), s.Stays, c)
			}
		})
	}
}

// Whom a refusal names: the holder of most nodes, as people see who is in the way, and the
// first of two that have as many.
func TestWhomARefusalNames(t *testing.T) {
	b1, c1, nobody := holds("B", 1), holds("C", 1), holds("", 1)
	for name, c := range map[string]struct {
		said [3]Answer
		want string
	}{
		"most, and last":     {[3]Answer{b1, c1, c1}, "C"},
		"most, and first":    {[3]Answer{c1, c1, b1}, "C"},
		"as many":            {[3]Answer{b1, c1, yes(10)}, "B"},
		"one does not know":  {[3]Answer{nobody, b1, yes(10)}, "B"},
		"no one knows":       {[3]Answer{nobody, nobody, nobody}, ""},
		"one that is silent": {[3]Answer{silent, c1, b1}, "C"},
	} {
		b := New(3)
		if s := try(&b, queues(), seen(3, 10), c.said[0], c.said[1], c.said[2]); s.Outcome != Refused || s.Result.Holder.Owner != c.want {
			t.Errorf("%s: %+v, want the holder %q", name, s, c.want)
		}
	}
}

// Why an owner is refused, and how long a majority is in its way: that it was released
// only a majority can say, since one node alone may say so by a request that came late.
func TestReasonOfARefusal(t *testing.T) {
	released := Answer{Answered, driver.Result{Why: driver.WhyReleased}}
	for name, c := range map[string]struct {
		said [3]Answer
		why  driver.Why
		left time.Duration
	}{
		"held":                    {[3]Answer{holds("B", 1), holds("B", 3), holds("B", 2)}, driver.WhyHeld, 2},
		"held, as two know":       {[3]Answer{holds("B", 3), holds("B", 1), silent}, driver.WhyHeld, 3},
		"held, one says released": {[3]Answer{holds("B", 3), released, holds("B", 1)}, driver.WhyHeld, 3},
		"two say released":        {[3]Answer{released, released, holds("B", 1)}, driver.WhyReleased, 0},
	} {
		b := New(3)
		s := try(&b, asks(), seen(3, 10), c.said[0], c.said[1], c.said[2])
		failIf(t, s.Outcome != Refused || s.Result.Why != c.why || s.Result.Left != c.left, "%s: %+v", name, s)
	}
}

// A lease that is asked for again is lost only when a majority says so, of different
// servers. Otherwise nothing of it is withdrawn: its holder works on.
func TestWhenALeaseIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		said    [3]Answer
		outcome Outcome
		lost    bool
		votes   Set
	}{
		"most nodes have another holder":        {[3]Answer{yes(10), no, no}, Refused, true, 0},
		"most nodes know that it was released":  {[3]Answer{yes(10), {Answered, driver.Result{Why: driver.WhyReleased}}, no}, Refused, true, 0},
		"most nodes granted a larger fence":     {[3]Answer{yes(10), low(20), low(20)}, Refused, true, 0},
		"one server is listed twice":            {[3]Answer{twin(no), twin(no), yes(10)}, OneStore, false, 0},
		"one node lost it, another is silent":   {[3]Answer{yes(10), low(20), silent}, InDoubt, false, 1 << 0},
		"one node has it with another fence":    {[3]Answer{yes(10), yes(9), silent}, InDoubt, false, 1 << 0},
		"two nodes are silent":                  {[3]Answer{silent, yes(10), silent}, InDoubt, false, 1 << 1},
		"one node refuses, another is held off": {[3]Answer{no, {Kind: HeldBack}, yes(10)}, InDoubt, false, 1 << 2},
	} {
		b := won(t)
		s := try(&b, asks(), seen(3, 11), c.said[0], c.said[1], c.said[2])
		if s.Outcome != c.outcome || (b.Fence() == 0) != c.lost || s.Votes != c.votes || !c.lost && len(s.Back) > 0 {
			t.Errorf("%s: %+v, fence %d", name, s, b.Fence())
		}
	}
}

// Of a lease whose fence is not known every grant is one of it, and silence is not: the
// error names who said nothing.
func TestVotesOfALeaseWithoutAFence(t *testing.T) {
	b := New(3)
	req := converts()
	req.Fence = 0
	s := try(&b, req, seen(3, 11), yes(7), silent, silent)
	failIf(t, s.Outcome != InDoubt || s.Votes != 1<<0, "%+v, want a vote of node 0 alone", s)
}

// When one asks again that was refused: who has the queue node's vote soon, and the others
// after a pause that grows.
func TestWhenTheRefusedAskAgain(t *testing.T) {
	b := New(3)
	if s := tryOut(&b, queues(), seenQueue(3, 10, 0), yes(10), no, no); s.Result.RetryIn != 2*minBackoff || s.Jitter != s.Result.RetryIn {
		t.Errorf("with the queue node's vote: %v and %v", s.Result.RetryIn, s.Jitter)
	}
	b = New(3)
	for _, want := range []time.Duration{4 * minBackoff, 8 * minBackoff} {
		if s := try(&b, queues(), seen(3, 10), no, no, no); s.Result.RetryIn != want || s.Jitter != want {
			t.Errorf("without: %v and %v, want %v", s.Result.RetryIn, s.Jitter, want)
		}
	}
}

// An error says what the nodes said.
func TestWhatTheNodesSaid(t *testing.T) {
	tooLong := driver.Result{Why: voting.TTLTooLong, TTL: time.Second}
	b := New(3)
	s := try(&b, asks(), seen(3, 10), yes(10), Answer{Answered, tooLong}, silent)
	if s.Outcome != TooFew || s.Said == nil || s.Said[1] != tooLong || !s.Said[0].Granted || s.Votes != 1 {
		t.Errorf("%+v", s)
	}
}
