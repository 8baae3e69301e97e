// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"slices"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
)

// Ballots is a model of owners that ask, give up, ask again and release, each with the ballot that package quorum ships. Messages
// arrive at any later time or never; their answers, too. Nothing expires, so an owner that was granted the key has it until its
// release begins. The nodes are the model's own: they grant, refuse and forget nothing.
type Ballots struct {
	Modes  string  // of the owners: w writes, r reads
	Tries  [3]int8 // of each owner
	Rounds int8    // of each owner, in all
	Clocks [3]int8 // what each owner proposes at first
	Queue  bool    // owners keep a place, and reserve the vote of node 0, the queue node
	Leaves bool    // owners give up during a Try, because its context ended
	Silent bool    // refused owners do not release

	// How often, in all: an answer comes late, after others' steps or after the node is given up; a request or its answer is lost,
	// or takes effect after it was given up; a request arrives twice.
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

// vote is a Vote of one owner to one node.
type vote struct {
	at     delivery
	round  int8
	fence  int8
	raises bool
	reply  reply // once it was carried out
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
	granted bool
	why     driver.Why
	fence   int8
}

// back is a Withdraw to one node.
type back struct {
	at        delivery
	upTo      int8 // 0: whatever the fence
	unsettled bool
}

type ballotsOwner struct {
	ballot int32 // of the pool
	step   int8  // phase, below
	tries  int8
	rounds int8
	fence  int8 // of the lease, while it holds
	floor  int8 // when it asked: the largest fence that was granted before that it must be above
	spent  bool // it has reached the bounds of the model
}

// Phases of an owner beside idle, asking, holding and done.
const refused = lapsed

type ballotsNode struct {
	votes [3]int8 // the fence of each owner's vote; 0: none
	tombs [3]bool // the owner was released
	key   int8    // the largest fence that was granted
	keyX  int8    // and to an owner that writes
	of    [3]ballotsMessages
}

// ballotsMessages are the messages of an owner to a node.
type ballotsMessages struct {
	votes [maxAsked]vote
	backs [maxBacks]back
}

type ballotsState struct {
	n       [nodes]ballotsNode
	o       [3]ballotsOwner
	granted [2]int8 // the largest fence that a majority granted: to any owner, and to an owner that writes
	used    [3]int8 // late, lost, twins
	wrong   verdict
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
		wrong: func(s ballotsState) string { return verdicts[s.wrong] },
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
	o, actor := &s.o[j], owner(j)
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
		emit(Step{actor, Propose, -1, int(step.Ask.Proposal)}, n)
	case o.step == asking:
		m.decideRound(s, j, emit)
	}
	if o.step == refused && !m.Silent || o.step == holding || o.step == asking && m.Leaves {
		m.release(s, j, emit)
	}
	if o.step == refused && m.Silent && !m.Queue {
		n := s
		p, b := &n.o[j], m.all[o.ballot]
		m.send(&n, j, b.Vanished(b.Tries()))
		p.ballot, p.step = m.id(b), done
		emit(Step{actor, Vanished, -1, 0}, n)
	}
}

// decideRound emits what follows when a round is decided, also because its time is over.
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
				n.wrong = says("a fence is not above those that were granted before it was asked for")
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
	m.send(s, j, step.Back)
	if step.Outcome != ballot.Asking {
		return
	}
	p := &s.o[j]
	if p.rounds = int8(step.Round); p.rounds > m.Rounds {
		p.spent = true
		return
	}
	for i := range nodes {
		if !step.Nodes.Has(i) {
			continue
		}
		votes := &s.n[m.node(j, i)].of[j].votes
		if k := slices.Index(votes[:], vote{}); k >= 0 {
			votes[k] = vote{at: sent, round: p.rounds, fence: int8(step.Ask.Proposal), raises: step.Raises.Has(i)}
		} else {
			p.spent = true
		}
	}
}

// send sends withdrawals.
func (m ballots) send(s *ballotsState, j int, all []ballot.Withdrawal) {
	for _, w := range all {
		m.sendWithdrawal(s, j, w.Node, w.WithdrawRequest)
	}
}

func (m ballots) sendWithdrawal(s *ballotsState, j, i int, w voting.WithdrawRequest) {
	backs := &s.n[m.node(j, i)].of[j].backs
	if k := slices.Index(backs[:], back{}); k >= 0 {
		backs[k] = back{sent, int8(w.UpTo), !w.Settled && !m.Settled}
	} else {
		s.o[j].spent = true
	}
}

// release emits an owner's release.
func (m ballots) release(s ballotsState, j int, emit func(Step, ballotsState)) {
	n := s
	p, b := &n.o[j], m.all[s.o[j].ballot]
	r := b.Release(driver.ReleaseRequest{Claim: m.request(j).Claim, TTL: 1, Settled: p.step != asking}, m.view(&s, j).Queue)
	for i := range nodes {
		if i < m.count() && r.Tells(i) {
			m.sendWithdrawal(&n, j, i, r.Request(i))
		}
	}
	p.ballot, p.step, p.fence = m.id(b), done, 0
	emit(Step{owner(j), Release, -1, 0}, n)
}

// votes emits what may happen to owner j's Votes at node i. A node answers at once, except for as many answers as may be late.
func (m ballots) votes(s ballotsState, j, i int, emit func(Step, ballotsState)) {
	for k, a := range s.n[i].of[j].votes {
		st := Step{owner(j), Try, i, int(a.round)}
		switch a.at {
		case sent:
			n := s
			n.n[i].of[j].votes[k].reply = m.grant(&n, j, i, a)
			late := n
			m.hear(n, j, k, i, ballot.Answered, unsent, st, emit)
			if s.used[0] < m.Late {
				late.used[0]++
				late.n[i].of[j].votes[k].at = carried
				emit(st, late)
			}
			if s.used[1] < m.Lost {
				lost := s
				lost.used[1]++
				m.hear(lost, j, k, i, ballot.Unknown, silent, Step{owner(j), Silent, i, int(a.round)}, emit)
			}
		case carried:
			m.hear(s, j, k, i, ballot.Answered, unsent, Step{owner(j), Answer, i, int(a.round)}, emit)
		case silent:
			n := s
			n.n[i].of[j].votes[k] = vote{}
			m.grant(&n, j, i, a)
			emit(st, n)
		}
		waits := a.at == sent || a.at == carried
		if waits && s.used[0] < m.Late {
			n := s
			p, b := &n.o[j], m.all[s.o[j].ballot]
			if b.Silent(m.seen(i), int(a.round)) {
				n.used[0]++
				p.ballot = m.id(b)
				emit(Step{owner(j), Overdue, i, int(a.round)}, n)
			}
		}
		if waits && s.used[2] < m.Duplicates {
			n := s
			n.used[2]++
			m.grant(&n, j, i, a)
			emit(Step{owner(j), TryAgain, i, int(a.round)}, n)
		}
	}
}

// hear emits that owner j gets, or will not get, the answer to its request k at node i.
func (m ballots) hear(n ballotsState, j, k, i int, kind ballot.Kind, to delivery, st Step, emit func(Step, ballotsState)) {
	p, b, q := &n.o[j], m.all[n.o[j].ballot], &n.n[i].of[j].votes[k]
	r := voting.VoteRequest{TryRequest: m.request(j), Proposal: uint64(q.fence), Raise: q.raises}
	a := ballot.Reply{Node: m.seen(i), Round: int(q.round), Asked: r, Answer: ballot.Answer{Kind: kind}}
	if kind == ballot.Answered {
		a.Result = m.result(&n, i, q.reply)
	}
	if m.Old {
		a.Round = int(p.rounds)
	}
	if q.at, q.reply = to, (reply{}); to == unsent {
		*q = vote{}
	}
	back, _ := b.Heard(a)
	m.send(&n, j, back)
	p.ballot = m.id(b)
	emit(st, n)
}

// result converts an answer to a driver.Result.
func (m ballots) result(s *ballotsState, i int, a reply) driver.Result {
	res := driver.Result{Granted: a.granted, Why: a.why, Fence: uint64(a.fence)}
	if a.granted {
		res.TTL = 1
	} else if a.why == driver.WhyHeld {
		res.Left = 1
		for j, fence := range s.n[i].votes {
			if fence != 0 {
				res.Holder = driver.Holder{Owner: owner(j), Mode: m.request(j).Mode}
			}
		}
	}
	return res
}

// grant carries out a Vote of owner j at node i.
func (m ballots) grant(s *ballotsState, j, i int, a vote) reply {
	n, fence := &s.n[i], a.fence
	if n.tombs[j] {
		return reply{why: driver.WhyReleased}
	}
	if has := n.votes[j]; has != 0 {
		switch {
		case !a.raises:
			return reply{granted: true, fence: has}
		case fence < has:
			return reply{why: voting.FenceTooLow, fence: has}
		}
	} else {
		for o := range m.Modes {
			beside := m.reads(j) && m.reads(o) || m.Beside != 0 && m.Modes[j] == m.Beside
			if o != j && n.votes[o] != 0 && !beside {
				return reply{why: driver.WhyHeld}
			}
		}
		floor := n.key
		if m.reads(j) {
			floor = n.keyX
		}
		if fence <= floor {
			return reply{why: voting.FenceTooLow, fence: floor}
		}
	}
	n.votes[j], n.key = fence, max(n.key, fence)
	if !m.reads(j) {
		n.keyX = max(n.keyX, fence)
	}
	return reply{granted: true, fence: fence}
}

// withdrawals emits what may happen to owner j's Withdraws at node i. If the answer is
// lost, the Withdraw is sent again, and is then not settled if its owner was released.
func (m ballots) withdrawals(s ballotsState, j, i int, emit func(Step, ballotsState)) {
	for k, w := range s.n[i].of[j].backs {
		st := Step{owner(j), Released, i, int(w.upTo)}
		switch w.at {
		case sent:
			n := s
			m.withdraw(&n, j, i, w)
			again := n
			m.confirm(n, j, k, i, st, emit)
			if s.used[0] < m.Late {
				late := again
				late.used[0]++
				late.n[i].of[j].backs[k].at = carried
				emit(st, late)
			}
			if s.used[1] < m.Lost {
				again.used[1]++
				again.n[i].of[j].backs[k].unsettled = w.unsettled || again.o[j].step == done && !m.Settled
				emit(Step{owner(j), Silent, i, int(w.upTo)}, again)
			}
		case carried:
			m.confirm(s, j, k, i, Step{owner(j), Answer, i, int(w.upTo)}, emit)
		}
		if w.at != unsent && s.used[2] < m.Duplicates {
			n := s
			n.used[2]++
			m.withdraw(&n, j, i, w)
			emit(st, n)
		}
	}
}

// confirm emits that owner j learns that its Withdraw k at node i was carried out.
func (m ballots) confirm(n ballotsState, j, k, i int, st Step, emit func(Step, ballotsState)) {
	p, b, w := &n.o[j], m.all[n.o[j].ballot], &n.n[i].of[j].backs[k]
	b.Withdrawn(m.seen(i), uint64(w.upTo))
	*w = back{}
	p.ballot = m.id(b)
	emit(st, n)
}

// withdraw carries out a Withdraw of owner j at node i.
func (m ballots) withdraw(s *ballotsState, j, i int, w back) {
	n := &s.n[i]
	if f := n.votes[j]; f != 0 && (w.upTo == 0 || f <= w.upTo || m.AnyFence) {
		n.votes[j] = 0
	}
	if w.unsettled && n.votes[j] == 0 {
		n.tombs[j] = true
	}
}

// judge records what is wrong with a state.
func (m ballots) judge(s *ballotsState) {
	for j := range m.Modes {
		o := &s.o[j]
		if o.step == holding {
			votes := 0
			for i := range s.n {
				votes += int(bit(s.n[i].votes[j] == o.fence))
			}
			if votes < need && !m.Minority {
				s.wrong = says("an owner holds the key, and a majority no longer has its vote")
			}
			for k := range j {
				if s.o[k].step == holding && !(m.reads(j) && m.reads(k)) {
					s.wrong = says("both hold the key at once, and one of them writes")
				}
			}
		}
		b := &m.all[o.ballot]
		if forgotten := o.step == done && b.Over() || o.step == refused && b.Blank(); forgotten && m.Duplicates == 0 && !o.spent {
			m.leftovers(s, j)
		}
	}
}

// leftovers checks an owner before its ballot is forgotten: a Withdraw in flight must cover
// every vote that the owner may still have.
func (m ballots) leftovers(s *ballotsState, j int) {
	for i := range s.n {
		n := &s.n[i]
		of := &n.of[j]
		takes := func(w back) bool { return w.at == sent && (w.upTo == 0 || w.upTo >= n.votes[j]) }
		if n.votes[j] != 0 && !slices.ContainsFunc(of.backs[:], takes) {
			s.wrong = says("a ballot is forgotten, and a node has a vote of its owner")
		}
		buries := n.tombs[j] || slices.ContainsFunc(of.backs[:], func(w back) bool { return w.at == sent && w.unsettled })
		if !buries && slices.ContainsFunc(of.votes[:], func(v vote) bool { return v.at == sent || v.at == silent }) {
			s.wrong = says("a ballot is forgotten, and a vote may still be granted")
		}
	}
}

// canon sorts messages and nodes, and removes what can have no effect any more, so that states that only differ in it are equal.
func (m ballots) canon(s ballotsState) ballotsState {
	for j := range m.Modes {
		for i := range s.n {
			slices.SortFunc(s.n[i].of[j].votes[:], compare)
			slices.SortFunc(s.n[i].of[j].backs[:], compare)
		}
		o := &s.o[j]
		if b := &m.all[o.ballot]; o.step == done && b.Over() && !m.Leaves && m.Duplicates == 0 {
			o.ballot, o.rounds, o.tries, o.floor = m.id(m.fresh()), 0, 0, 0
		}
	}
	if m.Queue || m.Minority {
		return s // nodes differ
	}
	least := s
	for by := 1; by < len(orders); by++ {
		p := s
		for i, from := range orders[by] {
			p.n[i] = s.n[from]
		}
		for j := range m.Modes {
			p.o[j].ballot = m.permuted(s.o[j].ballot, by)
		}
		if cmp.Or(compare(p.n, least.n), cmp.Compare(p.o[0].ballot, least.o[0].ballot),
			cmp.Compare(p.o[1].ballot, least.o[1].ballot), cmp.Compare(p.o[2].ballot, least.o[2].ballot)) < 0 {
			least = p
		}
	}
	return least
}

// orders are the permutations of three nodes.
var orders = [...][nodes]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}
