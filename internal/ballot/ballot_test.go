// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

const ttl = 30 * time.Second

// asks is what an owner asks for.
func asks() driver.TryRequest {
	return driver.TryRequest{Claim: driver.Claim{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), Label: "{}"}, TTL: ttl, Patience: ttl}
}

// seen is a view in which all nodes serve, and the next fence is this one.
func seen(nodes int, fence uint64) View {
	return View{Serving: All(nodes), Queue: None, Met: true, Fence: fence, Limit: 1 << 40, Timeout: 50 * time.Millisecond}
}

func grants(fence uint64) driver.Result {
	return driver.Result{Granted: true, Fence: fence, TTL: ttl}
}

var held = driver.Result{Why: driver.WhyHeld, Left: time.Second, Holder: driver.Holder{Owner: "B"}}

// answers gives the ballot an answer in the round that a step began.
func answers(b *Ballot, s Step, node int, res driver.Result) []Withdrawal {
	back, _ := b.Heard(Reply{Node: node, Round: s.Round, Asked: s.Ask, Answer: Answer{Answered, res}})
	return back
}

func silence(b *Ballot, s Step, node int) {
	b.Heard(Reply{Node: node, Round: s.Round, Asked: s.Ask})
}

// What a node may say in a round.
var (
	no     = Answer{Answered, held}
	silent = Answer{}
	notYet = Answer{Kind: NotHolder + 1} // its answer is still out
)

func yes(fence uint64) Answer { return Answer{Answered, grants(fence)} }

// low is a proposal that was not above fence, or too far above it.
func low(fence uint64) Answer {
	return Answer{Answered, driver.Result{Why: voting.FenceTooLow, Fence: fence}}
}

// holds is the refusal of a node that names a holder, with what is left of its lease.
func holds(owner string, left time.Duration) Answer {
	return Answer{Answered, driver.Result{Why: driver.WhyHeld, Left: left, Holder: driver.Holder{Owner: owner}}}
}

// after gives the ballot what each node said in a round, and ends the round.
func after(b *Ballot, s Step, v View, said ...Answer) Step {
	for i, a := range said {
		if a != notYet {
			b.Heard(Reply{Node: i, Round: s.Round, Asked: s.Ask, Answer: a})
		}
	}
	return b.Next(v)
}

// try is a Try of one round.
func try(b *Ballot, req driver.TryRequest, v View, said ...Answer) Step {
	return after(b, b.Ask(req, v), v, said...)
}

// tryOut is a Try in each round of which the nodes say the same, a second later.
func tryOut(b *Ballot, req driver.TryRequest, v View, said ...Answer) Step {
	s := b.Ask(req, v)
	for s.Outcome == Asking || s.Outcome == Pausing {
		if v.Now += time.Second; s.Outcome == Pausing {
			s = b.Next(v)
		} else {
			s = after(b, s, v, said...)
		}
	}
	return s
}

// queues is what an owner asks for that waits.
func queues() driver.TryRequest {
	r := asks()
	r.Queue = true
	return r
}

// seenQueue is a view with a queue node.
func seenQueue(nodes int, fence uint64, queue int) View {
	v := seen(nodes, fence)
	v.Queue = queue
	return v
}

// failIf fails a test, which goes on, when what it saw is wrong.
func failIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Errorf(format, args...)
	}
}

// stopIf ends a test when what it saw is wrong.
func stopIf(t testing.TB, wrong bool, format string, args ...any) {
	t.Helper()
	if wrong {
		t.Fatalf(format, args...)
	}
}

func TestMajorityWins(t *testing.T) {
	b := New(5)
	s := b.Ask(asks(), seen(5, 10))
	if s.Outcome != Asking || s.Nodes != All(5) || s.Ask.Proposal != 10 || s.Raises != 0 {
		t.Fatalf("%+v, want a proposal of 10 to all", s)
	}
	for i := range 3 {
		stopIf(t, b.Decided(), "decided after %d votes of 5", i)
		answers(&b, s, i, grants(10))
	}
	stopIf(t, !b.Decided(), "three votes of 5 decide")
	if s = b.Next(seen(5, 11)); s.Outcome != Granted || s.Result.Fence != 10 || b.Fence() != 10 || len(s.Back) != 0 {
		t.Fatalf("%+v, want a grant with fence 10", s)
	}
	back := answers(&b, Step{Round: 1}, 3, grants(10))
	failIf(t, len(back) != 0, "a vote that comes later belongs to the lease: %+v", back)
}

func TestMinorityIsWithdrawn(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 0, grants(10))
	answers(&b, s, 1, held)
	answers(&b, s, 2, held)
	s = b.Next(seen(3, 11))
	if s.Outcome != Refused || s.Result.Why != driver.WhyHeld || s.Result.Holder.Owner != "B" || s.Stays {
		t.Fatalf("%+v, want a refusal that names the holder", s)
	}
	if len(s.Back) != 1 || s.Back[0].Node != 0 || s.Back[0].UpTo != 10 || !s.Back[0].Settled || s.Back[0].End != driver.EndUnused {
		t.Fatalf("%+v, want the vote of node 0 withdrawn up to 10", s.Back)
	}
	failIf(t, b.Blank(), "a Withdraw is under way, and the ballot counts as blank")
	confirmed := b
	if s = b.Ask(asks(), seen(3, 11)); s.Raises != 1<<0 {
		t.Error("what stands for the earlier proposal must be raised")
	}
	confirmed.Withdrawn(0, 10)
	s = confirmed.Ask(asks(), seen(3, 11))
	failIf(t, s.Raises != 0, "the vote is back, and nodes %b are to raise it", s.Raises)
}

// Those who are silent do not keep an outcome from being known, once a majority has
// answered and the node time-out is over.
func TestLateNodesAreNotWaitedFor(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 0, held)
	b.Late(s.Round)
	stopIf(t, b.Decided(), "one answer of three decides")
	answers(&b, s, 1, held)
	stopIf(t, !b.Decided(), "the third node is waited for after its time")
	if s = b.Next(seen(3, 11)); s.Outcome != Refused {
		t.Fatalf("%+v", s)
	}
	back := answers(&b, Step{Round: 1, Ask: s.Ask}, 2, grants(10))
	if len(back) != 1 || back[0].Node != 2 || back[0].UpTo != 10 {
		t.Errorf("a vote that comes after the refusal: %+v, want it withdrawn", back)
	}
}

// An answer to an earlier round is recorded, and is no vote in this one.
func TestAnswersOfEarlierRoundsAreNoVotes(t *testing.T) {
	b := New(3)
	first := b.Ask(asks(), seen(3, 10))
	b.Silent(2, first.Round)
	answers(&b, first, 0, grants(10))
	answers(&b, first, 1, driver.Result{Why: voting.FenceTooLow, Fence: 20})
	second := b.Next(seen(3, 11))
	if second.Outcome != Asking || second.Ask.Proposal != 21 || second.Raises != 1<<0|1<<2 {
		t.Fatalf("%+v, want a round for 21", second)
	}
	answers(&b, first, 2, grants(10))
	answers(&b, second, 0, grants(21))
	failIf(t, b.Decided(), "an old vote was counted")
	failIf(t, !b.Has(2), "an old vote is forgotten: nobody would withdraw it")
}

// A refusal that was given before the grant, and read after it.
func TestAnswersOvertake(t *testing.T) {
	b := New(3)
	first := b.Ask(asks(), seen(3, 10))
	second := first
	b.Sends(2) // another Try, whose answer comes first
	second.Ask.Proposal = 12
	answers(&b, second, 2, grants(12))
	answers(&b, first, 2, held)
	failIf(t, !b.Has(2), "the vote is forgotten, and is not withdrawn")
}

// A vote that is being withdrawn counts only with a larger fence, and it takes one round
// to get there, however far that is: proposals become smaller once a node is found whose
// clock is behind.
func TestVoteBeingWithdrawnDoesNotCount(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	b.votes[1].withdrawn = 3e6
	c := b
	c.votes[1].withdrawn = 10 // exactly what is granted
	answers(&c, s, 0, grants(10))
	if answers(&c, s, 1, grants(10)); c.majority() != 0 {
		t.Error("a vote counts up to which it is being withdrawn")
	}
	b.Silent(2, s.Round)
	answers(&b, s, 0, grants(10))
	answers(&b, s, 1, grants(10))
	failIf(t, b.majority() != 0, "two votes count, and one is being withdrawn")
	if s = b.Next(seen(3, 11)); s.Outcome != Asking || s.Ask.Proposal <= 3e6 || s.Raises != All(3) {
		t.Errorf("%+v, want a round for more than %d", s, int(3e6))
	}
}

// What is withdrawn while there is a lease takes no vote of the lease.
func TestWithdrawSparesTheLease(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 0, grants(10))
	answers(&b, s, 1, grants(10))
	b.Next(seen(3, 11))
	w := b.withdraw(1)
	failIf(t, w.UpTo != 9, "it takes votes up to %d, and the lease has 10", w.UpTo)
}

// Votes that were counted are known to be there, although an older answer that was
// read later said otherwise: Release waits for them.
func TestCountedVotesAreKnown(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 1, grants(10))
	b.Sends(1)
	b.Heard(Reply{Node: 1, Asked: s.Ask, Answer: Answer{Answered, held}})
	answers(&b, s, 0, grants(10))
	if s = b.Next(seen(3, 11)); s.Outcome != Granted || !b.Has(1) {
		t.Errorf("%+v: a vote that was counted is forgotten", s)
	}
}

// The TTL of a grant is what a majority keeps it for, that of a renewal what each
// of those keep it for who count.
func TestTTLIsThatOfAMajority(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	for i, ttl := range []time.Duration{30, 10, 20} {
		res := grants(10)
		res.TTL = ttl
		answers(&b, s, i, res)
	}
	if s = b.Next(seen(3, 11)); s.Result.TTL != 20 {
		t.Errorf("a grant for 30, 10 and 20 ns is one for %d", s.Result.TTL)
	}
	for _, ttls := range [][]time.Duration{{30, 10}, {10, 30}} {
		r := NewRenewal(3)
		for i, ttl := range ttls {
			r.Answer(i, Answered, driver.Renewal{TTL: ttl}, false)
		}
		got, known := r.Outcome(false)
		failIf(t, !known || got.TTL != 10, "a renewal for %v ns is one for %d", ttls, got.TTL)
	}
}

// What an owner may have at a node, after what the node said last.
func TestWhatARefusalSaysOfEarlierVotes(t *testing.T) {
	type reply struct {
		fence uint64
		kind  Kind
		res   driver.Result
	}
	granted := reply{10, Answered, grants(10)}
	unknown := reply{10, Unknown, driver.Result{}}
	low := reply{20, Answered, driver.Result{Why: voting.FenceTooLow, Fence: 20}}
	far := func(above uint64) reply {
		return reply{20, Answered, driver.Result{Why: voting.FenceTooLow, Fence: above}}
	}
	for name, c := range map[string]struct {
		replies []reply
		has     bool
	}{
		"too low, and nothing before":            {[]reply{low}, false},
		"granted, and then too low":              {[]reply{granted, low}, true},
		"no answer, and then too low":            {[]reply{unknown, low}, true},
		"no answer, and then too far above that": {[]reply{unknown, far(10)}, true},
		"no answer, and then just above that":    {[]reply{unknown, far(9)}, true},
		"no answer, and then too far above less": {[]reply{unknown, far(8)}, false},
		"no answer, and then a TTL too long":     {[]reply{unknown, {20, Answered, driver.Result{Why: voting.TTLTooLong}}}, true},
		"granted, and then of another for it":    {[]reply{granted, {10, Answered, held}}, false},
		"granted, and then held back":            {[]reply{granted, {20, HeldBack, driver.Result{}}}, true},
		"granted, and then of another":           {[]reply{granted, {20, Answered, held}}, false},
		"granted, and then not sent":             {[]reply{granted, {20, NotSent, driver.Result{}}}, true},
		"no answer, and then of another":         {[]reply{unknown, {20, Answered, held}}, false},
		"granted, and then a TTL too long":       {[]reply{granted, {20, Answered, driver.Result{Why: voting.TTLTooLong}}}, true},
		"granted, and then released":             {[]reply{granted, {20, Answered, driver.Result{Why: driver.WhyReleased}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(3)
			b.Ask(asks(), seen(3, 10))
			for _, a := range c.replies {
				b.Sends(1)
				b.Heard(Reply{Node: 1, Asked: voting.VoteRequest{TryRequest: asks(), Proposal: a.fence}, Answer: Answer{a.kind, a.res}})
			}
			stopIf(t, b.Has(1) != c.has, "the owner may have the vote: %v, want %v", b.Has(1), c.has)
			if c.has {
				w := b.withdraw(1)
				failIf(t, w.UpTo != 10, "votes up to %d are withdrawn, want 10", w.UpTo)
			}
		})
	}
}

// A node that is not waited for any longer is no part of the outcome, or a grant could
// come of a round that is over.
func TestAnswersThatAreNotWaitedForDoNotCount(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	answers(&b, s, 0, grants(10))
	b.Silent(1, s.Round)
	_, counts := b.Heard(Reply{Node: 1, Round: s.Round, Asked: s.Ask, Answer: yes(10)})
	failIf(t, counts || b.Decided(), "a node that fell silent counts in its round")
	failIf(t, !b.Has(1), "its vote is forgotten: nobody would withdraw it")
	b.Heard(Reply{Node: 2, Round: s.Round, Asked: s.Ask, Answer: low(20)})
	second := b.Next(seen(3, 11))
	_, counts = b.Heard(Reply{Node: 1, Round: s.Round, Asked: s.Ask, Answer: low(30)})
	failIf(t, counts, "an answer to the first round counts in the second: its error would be told as the reason")
	_, counts = b.Heard(Reply{Node: 1, Round: second.Round, Asked: second.Ask, Answer: yes(21)})
	failIf(t, !counts, "an answer to the round under way does not count")
}

// What comes after a refusal is withdrawn where it is a vote that nobody wants, and
// nothing else is: a needless Withdraw costs a request, and a missing one keeps the key
// from others until it expires.
func TestWhatComesAfterARefusal(t *testing.T) {
	// reserved has the vote of node 0, the queue node, and asks again.
	reserved := func(b *Ballot) { tryOut(b, queues(), seenQueue(3, 12, 0), yes(12), no, no) }
	// waiting has a place at node 0.
	waiting := func(b *Ballot) { try(b, queues(), seenQueue(3, 12, 0), no, no, no) }
	refused := func(b *Ballot) { try(b, asks(), seen(3, 12), no, no, no) }
	withdrawn := func(b *Ballot) { try(b, asks(), seen(3, 12), yes(12), no, no) }
	for name, c := range map[string]struct {
		then func(b *Ballot)
		node int
		late Answer
		back bool
	}{
		"a vote":                                    {refused, 2, yes(10), true},
		"a refusal":                                 {refused, 2, no, false},
		"an error":                                  {refused, 2, silent, false},
		"the vote that is reserved":                 {reserved, 0, yes(10), false},
		"a vote where one is being withdrawn":       {withdrawn, 0, yes(10), true},
		"another vote, beside the reserved one":     {reserved, 2, yes(10), true},
		"a refusal, beside the reserved one":        {reserved, 2, no, false},
		"a vote where the owner has its place":      {waiting, 0, yes(10), true},
		"a vote while the owner waits elsewhere":    {waiting, 2, yes(10), true},
		"a refusal where the owner has its place":   {waiting, 0, no, false},
		"a refusal while the owner waits elsewhere": {waiting, 2, no, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(3)
			first := b.Ask(asks(), seen(3, 10))
			after(&b, first, seen(3, 10), notYet, notYet, notYet)
			c.then(&b)
			back, _ := b.Heard(Reply{Node: c.node, Round: first.Round, Asked: first.Ask, Answer: c.late})
			if (len(back) > 0) != c.back || c.back && back[0].Node != c.node {
				t.Errorf("%+v, want it withdrawn: %v", back, c.back)
			}
		})
	}
}

// A ballot stays known while anything of its owner may be left, or a vote would stay at
// its node with nobody to withdraw it.
func TestWhatKeepsABallot(t *testing.T) {
	for name, v := range map[string]vote{
		"a Try that has not returned":   {pending: 1},
		"a Try without an answer":       {unknown: true},
		"a vote":                        {granted: true},
		"a Withdraw that may come late": {withdrawing: true},
	} {
		b := New(3)
		b.gone.over = true
		stopIf(t, !b.Over() || !b.Blank(), "nothing is under way")
		b.votes[2] = v
		failIf(t, b.Over() || b.Blank(), "%s: over %v, blank %v", name, b.Over(), b.Blank())
	}
	for name, change := range map[string]func(b *Ballot){
		"a fence that was granted":   func(b *Ballot) { b.votes[2].fence = 10 },
		"a fence that was withdrawn": func(b *Ballot) { b.votes[2].withdrawn = 10 },
		"a fence without an answer":  func(b *Ballot) { b.votes[2].open = 10 },
		"a place":                    func(b *Ballot) { b.place.node = 2 },
		"a lease":                    func(b *Ballot) { b.lease.fence = 10 },
	} {
		b := New(3)
		if change(&b); b.Blank() {
			t.Errorf("%s: the ballot counts as blank", name)
		}
	}
}

// One that was never asked for has nothing that could expire: it is about to ask. A lease
// that was adopted expires like any other.
func TestExpiry(t *testing.T) {
	b := New(3)
	failIf(t, b.Expired(time.Hour), "a new ballot expires before its first Try")
	b.Renewing(driver.RenewRequest{Claim: asks().Claim, TTL: ttl, Fence: 7}, 0)
	failIf(t, b.Expired(2*ttl) || !b.Expired(2*ttl+1), "an adopted lease is known for two TTLs")
}

// A ballot without anything under way is over only once its owner was released.
func TestWhenABallotIsOver(t *testing.T) {
	b := New(3)
	failIf(t, b.Over(), "before its first Try")
	b.Release(releases(false), None)
	for i := range 3 {
		b.Withdrawn(i, 0)
	}
	failIf(t, !b.Over(), "it stays after the release")
}

// Nothing is sent for an owner that was released: a node that hears of it after the
// release would grant the key to nobody.
func TestNothingIsSentAfterARelease(t *testing.T) {
	b := won(t)
	b.Release(releases(true), None)
	failIf(t, b.Sends(2), "a Try goes out after the release")
}

// A ballot is a value: it can be copied and compared.
func TestBallotIsAValue(t *testing.T) {
	b := New(3)
	s := b.Ask(asks(), seen(3, 10))
	saved := b
	answers(&b, s, 0, grants(10))
	stopIf(t, saved == b, "an answer changed nothing")
	answers(&saved, s, 0, grants(10))
	failIf(t, saved != b, "the same events lead to two states")
}

// A ballot whose nodes are named otherwise is the same in everything else: what happens next
// is the same, of other nodes.
func TestPermuted(t *testing.T) {
	order, back := []int{2, 0, 1}, []int{1, 2, 0} // node i is order[i], and the way back
	begun := func() (b Ballot) {
		b = New(3)
		v := seenQueue(3, 10, 1)
		v.Serving.Drop(0)
		s := b.Ask(queues(), v)
		answers(&b, s, 2, twin(yes(10)).Result)
		return b
	}
	waiting := New(3)
	try(&waiting, queues(), seenQueue(3, 10, 1), no, no, no)
	twins := New(3)
	s := twins.Ask(queues(), seenQueue(3, 10, 1))
	answers(&twins, s, 1, twin(yes(10)).Result)
	answers(&twins, s, 2, twin(yes(10)).Result)
	for name, b := range map[string]Ballot{"new": New(3), "begun": begun(), "waiting": waiting, "of one server twice": twins, "with a lease": won(t)} {
		p := b.Permuted(order)
		failIf(t, p.Permuted(back) != b, "%s: there and back it is another", name)
		for i, from := range order {
			if p.Has(i) != b.Has(from) || p.round.asked.Has(i) != b.round.asked.Has(from) || p.round.waits.Has(i) != b.round.waits.Has(from) {
				t.Errorf("%s: node %d is not node %d of before", name, i, from)
			}
			if (p.place.node == i) != (b.place.node == from) || (p.attempt.queue == i) != (b.attempt.queue == from) {
				t.Errorf("%s: node %d has the queue, or node %d had it", name, i, from)
			}
		}
		failIf(t, p.round.sameStore() != b.round.sameStore(), "%s: twins: %v", name, p.round.twins)
	}
	if p := twins.Permuted(order); p.round.twins != [2]int8{2, 0} && p.round.twins != [2]int8{0, 2} {
		t.Errorf("nodes %v are one server, want 0 and 2", p.round.twins)
	}
}
