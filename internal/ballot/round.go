// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// How many rounds one Try may take. The second is enough unless others are granted
// the key in between. A Try without a place, which may refuse its caller for good, is
// more patient with others that ask at the same time: for some node time-outs.
const (
	maxRounds = 4
	splitTime = 4
	minPause  = 125 * time.Microsecond
	maxPause  = 16 * time.Millisecond
)

// reach is less than every node accepts above what it wants.
const reach = 1<<20 - 1

// attempt is the Try under way.
type attempt struct {
	asking  bool          // it is: what comes in is its business
	begun   time.Duration // when it did
	view    View          // as its latest round began
	rounds  int           // so far
	pausing bool          // the next one begins after a pause
	last    bool          // there is no other

	queue  int  // the queue node: its refusal is respected; None: none will do
	stands bool // it is about a lease that a majority granted before
	wakes  int  // the node that a Convert waits for: it wakes the waiters in its queue
	// introduces: not every node was heard before. Then all nodes are waited for, since
	// one server may be listed twice, and only then it is known which is the queue node.
	introduces bool
}

// round is one request to all nodes.
type round struct {
	no      int                // counted over all Tries: an answer to an earlier one is no vote in this one
	ask     voting.VoteRequest // what the nodes are asked, or will be in the next round; see Step.Request
	fence   uint64             // that was asked for
	raises  Set
	asked   Set
	waits   Set  // of those, the nodes that the round waits for
	late    bool // the node time-out is over: a majority's answers are enough
	answers [MaxNodes]Answer
	twins   [2]int8 // two nodes that are one store, when they differ
}

// Outcome is what a Try has come to.
type Outcome uint8

// The outcomes.
const (
	Asking   Outcome = iota // Step.Ask is to be sent to Step.Nodes
	Pausing                 // for about Step.Pause; then Next
	Granted                 // by a majority: Step.Result
	Refused                 // Step.Result, after another Step.Jitter at random where that is set
	TooFew                  // of the nodes answered, or vote, to know
	InDoubt                 // a lease that a majority granted before may stand, or not
	OneStore                // Step.Twins are one server, which would have two votes
)

// Step is what is to be done next for a Try.
type Step struct {
	Outcome Outcome
	Round   int                // of what is sent, for Reply.Round
	Ask     voting.VoteRequest // see Request
	Queue   int                // the queue node, or None
	Raises  Set                // where a vote that the owner has gets the fence that is proposed
	Nodes   Set                // to ask
	Pause   time.Duration
	Result  driver.Result
	Jitter  time.Duration // up to so much later than Result.RetryIn
	Twins   [2]int

	Back []Withdrawal // to send; a refusal waits for the answers
	// Said, Fence and Votes are for an error: what the nodes answered, the fence that was asked for, and the nodes that granted it.
	Said   *[MaxNodes]driver.Result
	Fence  uint64
	Votes  Set
	Stays  bool // the owner keeps a place or a lease, or is to ask again or be released after an error
	Forget bool // the lease was another process's, and is over
}

// Request is what a node is asked.
func (s *Step) Request(node int) voting.VoteRequest {
	r := s.Ask
	r.Queue, r.Raise = r.Queue && node == s.Queue, s.Raises.Has(node)
	return r
}

// View is what the caller knows when a Try begins, or goes on.
type View struct {
	Now     time.Duration
	Serving Set             // the nodes to ask
	Queue   int             // the queue node, or None
	Rank    [MaxNodes]uint8 // of the nodes, in the order in which every client prefers them for the queue
	Met     bool            // every node in service was heard before
	Fence   uint64          // the next one to propose
	Limit   uint64          // above every fence that a client with a good clock proposes
	Timeout time.Duration   // of a node, for a lease of this TTL
	MaxTTL  time.Duration   // the longest lease; 0: any
}

// Seen is the fence that the next proposal should be above.
func (b *Ballot) Seen() uint64 { return b.fences.seen }

// Ask begins a Try; see [driver.Driver].
func (b *Ballot) Ask(req driver.TryRequest, v View) Step {
	mode, leased := b.req.Mode, b.lease.fence != 0
	if b.lease.shared {
		mode = driver.Shared
	}
	switch {
	case req.Convert, leased && b.lease.shared && req.Mode == mode:
		return b.convert(req, v)
	case leased && req.Mode != mode: // it was overtaken by a Convert
		return Step{Outcome: Refused, Stays: true, Result: driver.Result{
			Why: driver.WhyHeld, Holder: driver.Holder{Owner: req.Owner, Label: req.Label, Mode: mode}}}
	}
	b.begin(req, v.Now)
	r := b.newTry(req, v)
	b.attempt.asking = true
	if b.attempt.stands = leased; leased { // no waiter in the queue is overtaken
		r.ask.Proposal = b.lease.fence
		b.attempt.queue, b.attempt.introduces, b.attempt.last = None, false, true
	} else {
		r.ask.Proposal = b.propose(v.Fence)
		r.raises = b.raises()
	}
	r.ask.Queue = req.Queue && !b.attempt.introduces
	return b.send(v)
}

// newTry is the state before the first round of a Try.
func (b *Ballot) newTry(req driver.TryRequest, v View) *round {
	b.attempt = attempt{begun: v.Now, view: v, queue: v.Queue, wakes: None, introduces: !v.Met}
	b.round = round{no: b.round.no, ask: voting.VoteRequest{TryRequest: req}}
	return &b.round
}

// propose chooses the fence of a Try.
func (b *Ballot) propose(next uint64) uint64 {
	if b.fences.far && b.fences.seen > 0 {
		next = b.fences.seen + 1 // our clock is ahead of a node's: not to put the others ahead of it, too
	}
	return max(next, b.fences.seen+1)
}

// send begins a round.
func (b *Ballot) send(v View) Step {
	r := &b.round
	r.no++
	b.attempt.rounds++
	b.attempt.last = b.attempt.last || b.attempt.rounds >= maxRounds && (r.ask.Queue || v.Now-b.attempt.begun > splitTime*v.Timeout)
	r.asked, r.late, r.answers = 0, false, [MaxNodes]Answer{}
	r.fence = FenceOf(r.ask)
	b.fences.top = max(b.fences.top, r.fence)
	for i := range b.nodes {
		switch {
		case !v.Serving.Has(i):
			r.answers[i].Kind = NotAsked
		case b.Sends(i):
			r.asked.Add(i)
		}
	}
	r.waits = r.asked
	return Step{Outcome: Asking, Round: r.no, Ask: r.ask, Queue: b.attempt.queue, Raises: r.raises, Nodes: r.asked}
}

// Silent notes that a node is not waited for any longer in a round: it did not answer.
// What it answers later is recorded all the same.
func (b *Ballot) Silent(node, round int) (counts bool) {
	r := &b.round
	if round != r.no || !r.waits.Has(node) {
		return false
	}
	r.waits.Drop(node)
	return true
}

// Late notes that the node time-out of a round is over: nodes that are slower than most
// decide nothing but what errors say.
func (b *Ballot) Late(round int) { b.round.late = b.round.late || round == b.round.no }

// Decided says that a round is over: the outcome is known, or all nodes answered or had
// their time.
func (b *Ballot) Decided() bool {
	r := &b.round
	return r.waits == 0 || r.late && r.asked.Len()-r.waits.Len() >= b.Need() || b.elected() && !b.waitsOn()
}

// Next goes on after a round, or a pause.
func (b *Ballot) Next(v View) Step {
	r := &b.round
	b.attempt.view = v
	if b.attempt.pausing {
		b.attempt.pausing = false
		return b.send(v)
	}
	r.waits = 0
	if b.attempt.introduces {
		b.attempt.introduces, b.attempt.queue = false, v.Queue
	}
	switch {
	case r.ask.Convert:
		return b.converted()
	case b.elected():
		return b.won()
	}
	again := b.again()
	if b.req.Queue && !r.ask.Queue {
		r.ask.Queue, again = true, true
	}
	switch {
	case b.attempt.last || !again && !b.split():
		if b.attempt.stands && !b.overturned() {
			return b.inDoubt()
		}
		return b.lostRace()
	case again && b.attempt.rounds < maxRounds:
		return b.send(v)
	}
	b.attempt.pausing = true
	return Step{Outcome: Pausing, Pause: min(minPause<<min(b.attempt.rounds, 10), maxPause)}
}

// Introduces says that the round under way waits for all nodes, to know their stores.
func (b *Ballot) Introduces() bool { return b.attempt.introduces }

// count counts an answer of the round.
func (b *Ballot) count(a Reply) {
	r := &b.round
	r.answers[a.Node] = a.Answer
	if a.Kind != Answered {
		return
	}
	for i := range b.nodes {
		if o := &r.answers[i]; i != a.Node && o.Result.Run != "" && o.Result.Run == a.Result.Run {
			r.twins = [2]int8{int8(i), int8(a.Node)}
		}
	}
	if b.attempt.queue == a.Node && r.refused(a.Node) && b.attempt.view.MaxTTL > 0 && a.Result.Left > b.attempt.view.MaxTTL {
		b.attempt.queue = None // its clock was stepped back: it would be in the way for as long
	}
	if v := &b.votes[a.Node]; a.Result.Granted && a.Result.Fence <= v.withdrawn {
		// A request is under way that takes this vote: it counts with a larger fence.
		r.answers[a.Node].Result = driver.Result{Why: voting.FenceTooLow, Fence: max(v.withdrawn, FenceOf(r.ask)), Run: a.Result.Run}
	}
	if res := &r.answers[a.Node].Result; !res.Granted { // what is above limit only the node that says it would grant
		if res.Fence <= b.attempt.view.Limit {
			b.fences.seen = max(b.fences.seen, res.Fence)
		}
		b.fences.far = b.fences.far || res.Why == voting.FenceTooLow && res.Fence < FenceOf(r.ask)
	}
}

// sameStore says that two nodes are one server.
func (r *round) sameStore() bool { return r.twins[0] != r.twins[1] }

// says says that a node refused for that reason.
func (r *round) says(node int, why driver.Why) bool { return r.answers[node].refuses(why) }

// refused says that a node has another holder, or others in its queue.
func (r *round) refused(node int) bool { return node != None && r.says(node, driver.WhyHeld) }

// tooLow says that the proposal was too low for a node.
func (r *round) tooLow(node int) bool { return r.says(node, voting.FenceTooLow) }

func (r *round) granted(node int) bool { return node != None && r.answers[node].grants() }

// would are the nodes that grant the key, for this fence or a larger one.
func (r *round) would(nodes int) (s Set) {
	for i := range nodes {
		if r.granted(i) || r.tooLow(i) {
			s.Add(i)
		}
	}
	return s
}

// majority are the nodes that granted one fence, if they are enough.
func (b *Ballot) majority() (votes Set) {
	r := &b.round
	for i := range b.nodes {
		if !r.granted(i) {
			continue
		}
		votes = 0
		for j := range b.nodes {
			if r.granted(j) && r.answers[j].Result.Fence == r.answers[i].Result.Fence {
				votes.Add(j)
			}
		}
		if votes.Len() >= b.Need() {
			return votes
		}
	}
	return 0
}

// elected says that a majority granted one fence, and that the queue node is not
// against it. Its refusal is respected for the sake of those in its queue, and when
// the proposal was too low for it only, it is asked with another.
func (b *Ballot) elected() bool {
	r := &b.round
	if b.majority() == 0 || r.sameStore() || b.attempt.introduces {
		return false
	}
	if b.attempt.queue == None {
		return true
	}
	low := r.tooLow(b.attempt.queue) && !b.attempt.last && r.answers[b.attempt.queue].Result.Fence < b.attempt.view.Limit
	return !r.waits.Has(b.attempt.queue) && !b.blocks() && !low
}

// waitsOn says that an owner that is elected should have the answer of more nodes:
// what they know of a holder that did not release the key is over when this one does,
// and would be told to one after it.
func (b *Ballot) waitsOn() bool {
	r := &b.round
	return r.waits.Has(b.attempt.wakes) || r.ask.Mode == driver.Exclusive && b.abandoned()
}

// abandoned says that a previous holder did not release the key. One node that voted
// knows it: of the majority that did, the others may have forgotten, or be away.
func (b *Ballot) abandoned() bool {
	return slices.ContainsFunc(b.round.answers[:], func(a Answer) bool { return a.grants() && a.Result.Abandoned })
}

// again prepares another round with a higher fence, where that may help: the
// proposal was too low somewhere, or nodes have granted this owner different
// ones.
func (b *Ballot) again() bool {
	r := &b.round
	if r.sameStore() || b.blocks() {
		return false
	}
	var atLeast []uint64 // what each node would grant
	for i := range b.nodes {
		switch {
		case r.tooLow(i):
			atLeast = append(atLeast, r.answers[i].Result.Fence+1)
		case r.granted(i):
			atLeast = append(atLeast, r.answers[i].Result.Fence)
		}
	}
	slices.Sort(atLeast)
	turn := b.attempt.queue != None && r.tooLow(b.attempt.queue) // the key is ours there, for a larger fence
	if !turn && len(atLeast) < b.Need() {
		return false
	}
	r.raises = b.raises()
	r.ask.Proposal = b.raised(atLeast)
	return true
}

// raises are the nodes that may still have a vote for an earlier proposal. Another client
// may ask for the same owner, and have a majority for what it proposed as soon as nodes vote
// that found a proposal too low: a vote for that stays as it is until they were asked again.
func (b *Ballot) raises() (s Set) {
	r := &b.round
	low := slices.ContainsFunc(r.answers[:], func(a Answer) bool { return a.refuses(voting.FenceTooLow) })
	for i := range b.nodes {
		foreign := r.granted(i) && r.answers[i].Result.Fence != r.ask.Proposal
		if !b.votes[i].quiet() && !(low && foreign) {
			s.Add(i)
		}
	}
	return s
}

// raised is the fence for another round, of what each node would grant. A node with
// fences far ahead is left out when the others are a majority: they would refuse
// what it wants.
//
// Nodes with clocks far behind refuse the proposal for being too large, and any
// above it; when it takes their votes, it must become smaller.
func (b *Ballot) raised(atLeast []uint64) uint64 {
	r := &b.round
	near := slices.Clone(atLeast)
	for i := range b.nodes {
		if fence := r.answers[i].Result.Fence; r.tooLow(i) && fence < r.ask.Proposal {
			at, _ := slices.BinarySearch(near, fence+1)
			near = slices.Delete(near, at, at+1)
		}
	}
	if len(near) < b.Need() {
		return atLeast[min(b.Need(), len(atLeast))-1]
	}
	h, limit := near[b.Need()-1], b.attempt.view.Limit
	if h > limit { // it is our clock that is behind
		limit = h + reach
	}
	for _, more := range near {
		if more <= limit {
			h = max(h, more)
		}
	}
	return h
}

// split says that we have the queue node's vote, and other owners have other nodes':
// owners that asked at the same time withdraw what they have, and the holder before
// us, if the queue node's vote was handed on, is about to be released everywhere.
func (b *Ballot) split() bool {
	r := &b.round
	if r.sameStore() || !r.granted(b.attempt.queue) {
		return false
	}
	for i := range b.nodes {
		if r.refused(i) {
			return true
		}
	}
	return false
}

// overruled says that a node that comes before the queue node has another holder:
// another client sees another queue node. Owners that keep one vote and wait for others
// must do so in one order, or all wait for each other.
func (b *Ballot) overruled() bool {
	r, rank := &b.round, &b.attempt.view.Rank
	for i := range b.nodes {
		if r.refused(i) && rank[i] < rank[b.attempt.queue] {
			return true
		}
	}
	return false
}
