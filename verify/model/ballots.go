// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
)

// Ballots is a model of owners that ask, give up, ask again and release, each with the
// ballot that package quorum ships. Messages arrive at any later time or never; their
// answers, too. Nothing expires, so whoever was granted the key has it until its release
// begins. The nodes are the model's own: they grant, refuse and forget nothing.
type Ballots struct {
	Modes  string  // of the owners: w writes, r reads
	Tries  [3]int8 // of each owner
	Rounds int8    // of each owner, in all
	Clocks [3]int8 // what each owner proposes at first
	Queue  bool    // owners keep a place: node 0 is the queue node, whose vote they reserve
	Leaves bool    // owners give up during a Try, because its context ended
	Silent bool    // refused owners do not release

	// How often, in all: an answer comes late, after others' steps or after the node is
	// given up; a request or its answer is lost, or takes effect after it was given up;
	// a request arrives twice.
	Late, Lost, Duplicates int8

	AnyFence  bool // a node withdraws a vote whatever its fence
	Beside    byte // a node grants that mode beside the other
	Old       bool // an answer to an earlier round counts in this one
	Forgetful bool // the ballot is dropped between two Tries
	Settled   bool // a Release says that every Try was answered
	Minority  bool // each owner counts one node of three
}

// What owners may do in all: so many rounds, and so many withdrawals at a node.
const (
	maxAsked = 4
	maxBacks = 4
)

// sentVote is one Vote of one owner, sent to all nodes.
type sentVote struct {
	round  int8
	fence  int8
	raises [nodes]bool
	at     [nodes]delivery
	reply  [nodes]reply // by nodes that carried it out
}

// delivery is the state of a message to one node.
type delivery int8

const (
	unsent  delivery = iota // or it does not matter any more
	sent                    // it may be carried out
	carried                 // and the answer is in flight
	silent                  // given up: it may still be carried out
)

// reply is a node's answer.
type reply struct {
	why   int8 // 0: granted
	fence int8
}

const (
	saidGranted = iota
	saidHeld
	saidLow
	saidReleased
)

// back is a Withdraw to one node.
type back struct {
	upTo      int8 // 0: whatever the fence
	unsettled bool
	at        delivery
}

type ballotsOwner struct {
	ballot   int32 // of the pool
	step     int8  // phase, below
	tries    int8
	rounds   int8
	sentVote [maxAsked]sentVote
	backs    [nodes][maxBacks]back
	fence    int8 // of the lease, while it holds
	floor    int8 // when it asked: the largest fence that was granted before that it must be above
	spent    bool // it has reached the bounds of the model
}

// Phases of an owner beside idle, asking, holding and done.
const refused = lapsed

type ballotsNode struct {
	votes [3]int8 // the fence of each owner's vote; 0: none
	tombs [3]bool // the owner was released
	key   int8    // the largest fence that was granted
	keyX  int8    // and to one that writes
}

type ballotsState struct {
	n       [nodes]ballotsNode
	o       [3]ballotsOwner
	granted [2]int8 // the largest fence that a majority granted: to any, and to one that writes
	used    [3]int8 // late, lost, twins
	wrong   int8
}

var ballotsWrong = []string{
	"",
	"an owner holds the key, and a majority no longer has its vote",
	"both hold the key at once, and one of them writes",
	"a fence is not above one that was granted before it was asked for",
	"a ballot is forgotten, and a node has a vote of its owner",
	"a ballot is forgotten, and a vote may still be granted",
}

// pool numbers ballots, so that states are small.
type pool struct {
	all   []ballot.Ballot
	ids   map[ballot.Ballot]int32
	moved [][len(orders)]int32 // by number, with the nodes in another order; -1: not looked for yet
}

func (p *pool) id(b ballot.Ballot) int32 {
	id, ok := p.ids[b]
	if !ok {
		id = int32(len(p.all))
		p.all = append(p.all, b)
		p.ids[b] = id
		p.moved = append(p.moved, [len(orders)]int32{id, -1, -1, -1, -1, -1})
	}
	return id
}

// permuted returns the number of a ballot with its nodes in another order.
func (p *pool) permuted(id int32, by int) int32 {
	if p.moved[id][by] < 0 {
		to := p.id(p.all[id].Permuted(orders[by][:]))
		p.moved[id][by] = to
	}
	return p.moved[id][by]
}

// ballots is a search of the model.
type ballots struct {
	Ballots
	*pool
}

func (m Ballots) system() system[ballotsState] {
	w := ballots{m, &pool{ids: map[ballot.Ballot]int32{}}}
	var s ballotsState
	for j := range s.o {
		s.o[j].ballot = w.id(w.fresh())
	}
	return system[ballotsState]{
		init:  []ballotsState{s},
		next:  w.next,
		canon: w.canon,
		wrong: func(s ballotsState) string { return ballotsWrong[s.wrong] },
	}
}

func (m Ballots) fresh() ballot.Ballot { return ballot.New(m.count()) }

// count returns how many nodes an owner counts, and node which node of the model each of them is.
func (m Ballots) count() int {
	if m.Minority {
		return 1
	}
	return nodes
}

func (m Ballots) node(j, i int) int {
	if m.Minority {
		return j
	}
	return i
}

// seen returns owner j's number of a node of the model.
func (m Ballots) seen(i int) int {
	if m.Minority {
		return 0
	}
	return i
}

func (m Ballots) reads(j int) bool { return m.Modes[j] == 'r' }

// request returns owner j's request.
func (m Ballots) request(j int) driver.TryRequest {
	r := driver.TryRequest{Claim: driver.Claim{Key: "k", Owner: strings.Repeat(owner(j), driver.OwnerLen)}, TTL: 1, Patience: 1, Queue: m.Queue}
	if m.reads(j) {
		r.Mode = driver.Shared
	}
	return r
}

// view returns what owner j knows: all nodes are in service, and no time passes.
func (m Ballots) view(s *ballotsState, j int) ballot.View {
	v := ballot.View{Serving: ballot.All(nodes), Queue: ballot.None, Met: true, Limit: 1 << 20, Timeout: -1}
	for i := range v.Rank {
		v.Rank[i] = uint8(i)
	}
	if m.Queue {
		v.Queue = 0
	}
	v.Fence = uint64(m.Clocks[j] + 3*s.o[j].tries)
	return v
}

func (m ballots) next(s ballotsState, emit func(Step, ballotsState)) {
	if s.wrong != 0 {
		return
	}
	yield := func(st Step, n ballotsState) {
		m.judge(&n)
		emit(st, n)
	}
	for j := range m.Modes {
		m.decide(s, j, yield)
		for i := range nodes {
			m.votes(s, j, i, yield)
			m.withdrawals(s, j, i, yield)
		}
	}
}

// decide emits what an owner's client does by itself.
func (m ballots) decide(s ballotsState, j int, emit func(Step, ballotsState)) {
	o, who := &s.o[j], owner(j)
	switch {
	case o.spent:
		return
	case (o.step == idle || o.step == refused) && o.tries < m.Tries[j]:
		n := s
		p, b := &n.o[j], m.all[o.ballot]
		if m.Forgetful {
			b = m.fresh()
		}
		p.tries++
		p.step = asking
		if p.floor = s.granted[1]; !m.reads(j) {
			p.floor = s.granted[0]
		}
		step := b.Ask(m.request(j), m.view(&s, j))
		m.carry(&n, j, step)
		p.ballot = m.id(b)
		emit(Step{who, Propose, -1, int(step.Ask.Proposal)}, n)
	case o.step == asking:
		m.decideRound(s, j, emit)
	}
	if o.step == refused && !m.Silent || o.step == holding || o.step == asking && m.Leaves {
		m.release(s, j, emit)
	}
	if o.step == refused && m.Silent && !m.Queue {
		n := s
		p, b := &n.o[j], m.all[o.ballot]
		m.send(p, j, b.Vanished(b.Tries()))
		p.ballot, p.step = m.id(b), done
		emit(Step{who, Vanished, -1, 0}, n)
	}
}

// decideRound emits what follows when a round is decided, also because its time is
// over.
func (m ballots) decideRound(s ballotsState, j int, emit func(Step, ballotsState)) {
	o := &s.o[j]
	for late := range 2 {
		b := m.all[o.ballot]
		if late == 1 {
			b.Late(int(o.rounds))
		}
		if !b.Decided() {
			continue
		}
		n := s
		p := &n.o[j]
		step := b.Next(m.view(&s, j))
		if step.Outcome == ballot.Pausing {
			step = b.Next(m.view(&s, j))
		}
		act := Step{owner(j), Refused, -1, 0}
		switch step.Outcome {
		case ballot.Asking:
			act = Step{owner(j), Raise, -1, int(step.Ask.Proposal)}
		case ballot.Granted:
			p.step, p.fence = holding, int8(step.Result.Fence)
			act = Step{owner(j), Hold, -1, int(p.fence)}
			if p.fence <= p.floor {
				n.wrong = 3
			}
			n.granted[0] = max(n.granted[0], p.fence)
			if !m.reads(j) {
				n.granted[1] = max(n.granted[1], p.fence)
			}
		default:
			p.step = refused
		}
		m.carry(&n, j, step)
		p.ballot = m.id(b)
		emit(act, n)
		return // that it was late makes no difference to what was decided before
	}
}

// carry sends the messages of a step.
func (m ballots) carry(s *ballotsState, j int, step ballot.Step) {
	p := &s.o[j]
	m.send(p, j, step.Back)
	if step.Outcome != ballot.Asking {
		return
	}
	k := slices.IndexFunc(p.sentVote[:], func(a sentVote) bool { return a == sentVote{} })
	if p.rounds = int8(step.Round); p.rounds > m.Rounds || k < 0 {
		p.spent = true
		return
	}
	p.sentVote[k] = sentVote{round: p.rounds, fence: int8(step.Ask.Proposal)}
	for i := range nodes {
		if step.Nodes.Has(i) {
			p.sentVote[k].at[m.node(j, i)], p.sentVote[k].raises[m.node(j, i)] = sent, step.Raises.Has(i)
		}
	}
}

// send sends withdrawals.
func (m ballots) send(p *ballotsOwner, j int, all []ballot.Withdrawal) {
	for _, w := range all {
		m.sendWithdrawal(p, m.node(j, w.Node), back{int8(w.UpTo), !w.Settled && !m.Settled, sent})
	}
}

func (m ballots) sendWithdrawal(p *ballotsOwner, i int, w back) {
	for k := range p.backs[i] {
		if p.backs[i][k].at == unsent {
			p.backs[i][k] = w
			return
		}
	}
	p.spent = true
}

// release emits an owner's release.
func (m ballots) release(s ballotsState, j int, emit func(Step, ballotsState)) {
	n := s
	p, b := &n.o[j], m.all[s.o[j].ballot]
	r := b.Release(driver.ReleaseRequest{Claim: m.request(j).Claim, TTL: 1, Settled: p.step != asking}, m.view(&s, j).Queue)
	for i := range nodes {
		if i < m.count() && r.Tells(i) {
			w := r.Request(i)
			m.sendWithdrawal(p, m.node(j, i), back{int8(w.UpTo), !w.Settled && !m.Settled, sent})
		}
	}
	p.ballot, p.step, p.fence = m.id(b), done, 0
	emit(Step{owner(j), Release, -1, 0}, n)
}
