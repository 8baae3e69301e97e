// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// The queue node alone can keep a key from those whom a majority would grant it for half
// a second, and no longer: a node that missed a release would keep everybody out for as
// long as the lease lasts there. Nor for less: the key may be about to be handed on.
func TestHowLongTheQueueNodeAloneIsHeeded(t *testing.T) {
	b2s := holds("B", 2*time.Second)
	c2s := holds("C", 2*time.Second)
	released := b2s
	released.Result.Why = driver.WhyReleased
	reads := b2s
	reads.Result.Holder.Mode = driver.Shared
	grant := yes(0) // of what is proposed
	type moment struct {
		now  time.Duration
		said [3]Answer
	}
	at := func(ms int, said ...Answer) moment {
		return moment{time.Duration(ms) * time.Millisecond, [3]Answer(said)}
	}
	alone := func(ms int, queue Answer) moment { return at(ms, queue, grant, grant) }
	for name, c := range map[string]struct {
		mode  driver.Mode
		tries []moment
		want  Outcome // of the last one; the others are refused
	}{
		"for less than that": {driver.Exclusive,
			[]moment{alone(0, b2s), alone(499, b2s)}, Refused},
		"for as long as that": {driver.Exclusive,
			[]moment{alone(0, b2s), alone(500, b2s)}, Granted},
		"each holder anew": {driver.Exclusive,
			[]moment{alone(0, b2s), alone(600, c2s)}, Refused},
		"whether it asks or not, by those who write": {driver.Exclusive,
			[]moment{alone(0, b2s), alone(300, b2s), alone(600, b2s)}, Granted},
		"by those who read, for as long as a writer asks": {driver.Shared,
			[]moment{alone(0, b2s), alone(300, b2s), alone(600, b2s)}, Refused},
		"by those who read, from when a writer asked last": {driver.Shared,
			[]moment{alone(0, b2s), alone(300, b2s), alone(900, holds("B", 1400*time.Millisecond))}, Granted},
		"by those who read, who find that a writer asked since": {driver.Shared,
			[]moment{alone(0, b2s), alone(600, b2s)}, Refused},
		"by those who read, when it keeps them behind a waiting writer": {driver.Shared,
			[]moment{alone(0, reads), alone(600, reads)}, Refused},
		"by those who write, when it names a reader": {driver.Exclusive,
			[]moment{alone(0, reads), alone(600, reads)}, Granted},
		"a turn in the queue, which ends by itself": {driver.Exclusive,
			[]moment{alone(0, holds("B", 300*time.Millisecond)), alone(600, holds("B", 300*time.Millisecond))}, Refused},
		"one whose lease comes to its end": {driver.Exclusive,
			[]moment{alone(0, holds("B", time.Second)), alone(600, holds("B", 400*time.Millisecond))}, Granted},
		"a proposal that is too low elsewhere is no refusal": {driver.Exclusive,
			[]moment{at(0, b2s, grant, low(20)), alone(600, b2s)}, Granted},
		"and a Try between that too few answered": {driver.Exclusive,
			[]moment{alone(0, b2s), at(300, b2s, silent, silent), alone(600, b2s)}, Granted},
		"and a Try between that another refused": {driver.Exclusive,
			[]moment{alone(0, b2s), at(300, b2s, b2s, grant), alone(600, b2s)}, Refused},
		"and a Try between of which another says that it was released": {driver.Exclusive,
			[]moment{alone(0, b2s), at(300, b2s, released, c2s), alone(600, b2s)}, Granted},
		"not from when nodes were silent": {driver.Exclusive,
			[]moment{at(0, b2s, grant, silent), alone(600, b2s)}, Refused},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(3)
			var got Step
			for i, a := range c.tries {
				req := queues()
				req.Mode = c.mode
				v := seenQueue(3, uint64(10+i), 0)
				v.Now = a.now
				s := b.Ask(req, v)
				for n := range a.said {
					if a.said[n].Result.Granted {
						a.said[n].Result.Fence = s.Ask.Proposal
					}
				}
				if got = after(&b, s, v, a.said[:]...); i < len(c.tries)-1 && got.Outcome == Granted {
					t.Fatalf("granted by Try %d: %+v", i, got)
				}
			}
			failIf(t, got.Outcome != c.want, "%+v, want outcome %v", got, c.want)
		})
	}
}

// When one asks again whom only the queue node refuses: once the half second is over, and
// not after the hint that it was told to wait for.
func TestWhenToAskTheQueueNodeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		others   Answer
		left, in time.Duration // at the queue node
		want     time.Duration
	}{
		"a hint is to be waited for": {yes(10), 2 * time.Second, 0, heedTime},
		"later than that":            {yes(10), 2 * time.Second, time.Second, heedTime},
		"sooner than that":           {yes(10), 2 * time.Second, heedTime / 5, heedTime / 5},
		"it is not alone, a hint":    {no, 2 * time.Second, 0, 0},
		"it is not alone, too soon":  {no, 2 * time.Second, time.Second / 2, time.Second},
		"a turn in the queue":        {yes(10), heedTime / 2, 0, 0},
	} {
		queue := holds("B", c.left)
		queue.Result.RetryIn = c.in
		b := New(3)
		s := try(&b, queues(), seenQueue(3, 10, 0), queue, c.others, c.others)
		if s.Outcome != Refused || s.Result.RetryIn != c.want || s.Jitter != 0 {
			t.Errorf("%s: %v, again in %v, want %v", name, s.Outcome, s.Result.RetryIn, c.want)
		}
	}
}

// A holder that only the queue node knows is heeded for half a second in all: a waiter that
// meets somebody's vote at the other nodes meanwhile does not wait for as long once more.
func TestHeedIsNotBegunAnew(t *testing.T) {
	b := New(3)
	r := asks()
	r.Queue = true
	stale := driver.Result{Why: driver.WhyHeld, Left: 10 * time.Second, Holder: driver.Holder{Owner: "STALE"}}
	ask := func(at time.Duration, fence uint64, others driver.Result) Step {
		v := seen(3, fence)
		v.Now, v.Queue = at, 0
		s := b.Ask(r, v)
		answers(&b, s, 0, stale)
		others.Fence = s.Ask.Proposal
		answers(&b, s, 1, others)
		answers(&b, s, 2, others)
		return b.Next(v)
	}
	if s := ask(0, 10, grants(0)); s.Outcome != Refused || s.Result.RetryIn != heedTime {
		t.Fatalf("%+v, want the stale holder heeded for %v", s, heedTime)
	}
	if s := ask(heedTime/2, 20, held); s.Outcome != Refused {
		t.Fatalf("%+v, want a refusal", s)
	}
	if s := ask(heedTime, 30, grants(0)); s.Outcome != Granted {
		t.Errorf("%+v, want a grant: it was heeded for long enough", s)
	}
}

// Of several that the queue node alone knows, each is named when the one before it is gone: they are heeded together. One
// that may have its vote since is heeded from then on.
func TestHeedOfSeveral(t *testing.T) {
	names := func(owner string, left time.Duration, fence uint64) Answer {
		a := holds(owner, left)
		a.Result.Fence = fence
		return a
	}
	for name, c := range map[string]struct {
		fence, next uint64 // of the queue node's refusals
		queue       int    // the queue node then
		others      bool   // are in the way at first
		between     bool   // others are in the way between the two
		left        time.Duration
	}{
		"beside it":          {fence: 5, next: 5, left: heedTime / 2},
		"granted since":      {fence: 5, next: 6, left: heedTime},
		"not known":          {left: heedTime},
		"another queue node": {fence: 5, next: 5, queue: 1, left: heedTime},
		"none before it":     {fence: 5, next: 5, others: true, left: heedTime},
		"none since":         {fence: 5, next: 5, between: true, left: heedTime},
	} {
		for _, last := range []Answer{
			names("SECOND", turnTime/2, c.next), // no handover: it was named before
			names("THIRD", 10*time.Second, c.next),
		} {
			b, other := New(3), yes(10)
			if c.others {
				other = no
			}
			ask := func(at time.Duration, queue int, stale, other Answer) Step {
				v := seenQueue(3, 10+uint64(at), queue)
				v.Now = at
				said := []Answer{other, other, other}
				said[queue] = stale
				return try(&b, queues(), v, said...)
			}
			if s := ask(0, 0, names("FIRST", 10*time.Second, c.fence), other); s.Outcome != Refused || !c.others && s.Result.RetryIn != heedTime {
				t.Fatalf("%s: %+v, want the first one heeded for %v", name, s, heedTime)
			}
			if c.between {
				ask(heedTime/4, c.queue, names("SECOND", 10*time.Second, c.next), no)
			}
			if s := ask(heedTime/2, c.queue, names("SECOND", 10*time.Second, c.next), yes(20)); s.Outcome != Refused || s.Result.RetryIn != c.left {
				t.Errorf("%s: %+v, want the second one heeded for %v", name, s, c.left)
			}
			if s := ask(heedTime, c.queue, last, yes(30)); (s.Outcome == Granted) != (c.left < heedTime) {
				t.Errorf("%s, then %s: %+v", name, last.Result.Holder.Owner, s)
			}
		}
	}
}

// While a node does not answer that may make the majority, the half second goes on: who is
// refused asks again when it is over.
func TestHeedGoesOnWhileANodeIsSilent(t *testing.T) {
	b, v := New(3), seenQueue(3, 10, 0)
	b2s := holds("B", 2*time.Second)
	try(&b, queues(), v, b2s, yes(10), yes(10))
	v.Now = 300 * time.Millisecond
	if s := try(&b, queues(), v, b2s, yes(10), silent); s.Outcome != Refused || s.Result.RetryIn != heedTime-v.Now {
		t.Errorf("%+v, want it again in %v", s, heedTime-v.Now)
	}
}
