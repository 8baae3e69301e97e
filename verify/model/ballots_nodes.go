// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
)

// votes emits what may happen to owner j's Votes at node i. A node answers at once,
// except for as many answers as may be late.
func (m ballots) votes(s ballotsState, j, i int, emit func(Step, ballotsState)) {
	for k := range s.o[j].sentVote {
		a, st := &s.o[j].sentVote[k], Step{owner(j), Try, i, int(s.o[j].sentVote[k].round)}
		switch a.at[i] {
		case sent:
			n := s
			n.o[j].sentVote[k].reply[i] = m.grant(&n, j, i, a.fence, a.raises[i])
			late := n
			m.hear(n, j, k, i, ballot.Answered, unsent, st, emit)
			if s.used[0] < m.Late {
				late.used[0]++
				late.o[j].sentVote[k].at[i] = carried
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
			n.o[j].sentVote[k].at[i] = unsent
			m.grant(&n, j, i, a.fence, a.raises[i])
			emit(st, n)
		}
		if (a.at[i] == sent || a.at[i] == carried) && s.used[0] < m.Late {
			n := s
			p, b := &n.o[j], m.all[s.o[j].ballot]
			if b.Silent(m.seen(i), int(a.round)) {
				n.used[0]++
				p.ballot = m.id(b)
				emit(Step{owner(j), Overdue, i, int(a.round)}, n)
			}
		}
		if (a.at[i] == sent || a.at[i] == carried) && s.used[2] < m.Duplicates {
			n := s
			n.used[2]++
			m.grant(&n, j, i, a.fence, a.raises[i])
			emit(Step{owner(j), TryAgain, i, int(a.round)}, n)
		}
	}
}

// hear emits that owner j gets, or will not get, the answer to its request k at node i.
func (m ballots) hear(n ballotsState, j, k, i int, kind ballot.Kind, to delivery, st Step, emit func(Step, ballotsState)) {
	p, b := &n.o[j], m.all[n.o[j].ballot]
	q := &p.sentVote[k]
	r := driver.VoteRequest{TryRequest: m.request(j), Proposal: uint64(q.fence), Raise: q.raises[i]}
	a := ballot.Reply{Node: m.seen(i), Round: int(q.round), Asked: r, Answer: ballot.Answer{Kind: kind}}
	if kind == ballot.Answered {
		a.Result = m.result(&n, i, q.reply[i])
	}
	if m.Old {
		a.Round = int(p.rounds)
	}
	q.at[i], q.reply[i] = to, reply{}
	back, _ := b.Heard(a)
	m.send(p, j, back)
	p.ballot = m.id(b)
	emit(st, n)
}

// result converts an answer to a driver.Result.
func (m ballots) result(s *ballotsState, i int, a reply) driver.Result {
	switch a.why {
	case saidGranted:
		return driver.Result{Granted: true, Fence: uint64(a.fence), TTL: 1}
	case saidLow:
		return driver.Result{Why: driver.FenceTooLow, Fence: uint64(a.fence)}
	case saidReleased:
		return driver.Result{Why: driver.Released}
	}
	res := driver.Result{Why: driver.Held, Left: 1}
	for j, fence := range s.n[i].votes {
		if fence != 0 {
			res.Holder.Owner = owner(j)
			if m.reads(j) {
				res.Holder.Mode = driver.Shared
			}
		}
	}
	return res
}

// grant carries out a Vote of owner j at node i.
func (m ballots) grant(s *ballotsState, j, i int, fence int8, raise bool) reply {
	n := &s.n[i]
	if n.tombs[j] {
		return reply{why: saidReleased}
	}
	if has := n.votes[j]; has != 0 {
		switch {
		case !raise:
			return reply{fence: has}
		case fence < has:
			return reply{saidLow, has}
		}
	} else {
		for o := range m.Modes {
			beside := m.reads(j) && m.reads(o) || m.Beside != 0 && m.Modes[j] == m.Beside
			if o != j && n.votes[o] != 0 && !beside {
				return reply{why: saidHeld}
			}
		}
		floor := n.key
		if m.reads(j) {
			floor = n.keyX
		}
		if fence <= floor {
			return reply{saidLow, floor}
		}
	}
	n.votes[j], n.key = fence, max(n.key, fence)
	if !m.reads(j) {
		n.keyX = max(n.keyX, fence)
	}
	return reply{fence: fence}
}

// withdrawals emits what may happen to owner j's Withdraws at node i. One whose answer is
// lost is sent again, and is then not settled if its owner was released.
func (m ballots) withdrawals(s ballotsState, j, i int, emit func(Step, ballotsState)) {
	for k, w := range s.o[j].backs[i] {
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
				late.o[j].backs[i][k].at = carried
				emit(st, late)
			}
			if s.used[1] < m.Lost {
				again.used[1]++
				again.o[j].backs[i][k].unsettled = w.unsettled || again.o[j].step == done && !m.Settled
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
	p, b := &n.o[j], m.all[n.o[j].ballot]
	upTo := uint64(p.backs[i][k].upTo)
	p.backs[i][k] = back{}
	b.Withdrawn(m.seen(i), upTo)
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
				s.wrong = 1
			}
			for k := range j {
				if s.o[k].step == holding && !(m.reads(j) && m.reads(k)) {
					s.wrong = 2
				}
			}
		}
		b := &m.all[o.ballot]
		if forgotten := o.step == done && b.Over() || o.step == refused && b.Blank(); forgotten && m.Duplicates == 0 && !o.spent {
			m.leftovers(s, j)
		}
	}
}

// leftovers checks an owner whose ballot is about to be forgotten: every vote that it may
// still have must be covered by a Withdraw in flight.
func (m ballots) leftovers(s *ballotsState, j int) {
	for i := range s.n {
		n, o := &s.n[i], &s.o[j]
		takes := func(w back) bool { return w.at == sent && (w.upTo == 0 || w.upTo >= n.votes[j]) }
		if n.votes[j] != 0 && !slices.ContainsFunc(o.backs[i][:], takes) {
			s.wrong = 4
		}
		buries := n.tombs[j] || slices.ContainsFunc(o.backs[i][:], func(w back) bool { return w.at == sent && w.unsettled })
		for k := range o.sentVote {
			if at := o.sentVote[k].at[i]; (at == sent || at == silent) && !buries {
				s.wrong = 5
			}
		}
	}
}

// canon sorts the nodes, and removes what can have no effect any more, so that states
// that only differ in it are equal.
func (m ballots) canon(s ballotsState) ballotsState {
	for j := range m.Modes {
		o := &s.o[j]
		for k := range o.sentVote {
			if o.sentVote[k].at == [nodes]delivery{} {
				o.sentVote[k] = sentVote{}
			}
			for i, at := range o.sentVote[k].at {
				o.sentVote[k].raises[i] = o.sentVote[k].raises[i] && at != unsent
			}
		}
		slices.SortFunc(o.sentVote[:], func(a, b sentVote) int { return cmp.Compare(b.round, a.round) })
		for i := range o.backs {
			slices.SortFunc(o.backs[i][:], func(a, b back) int {
				return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.upTo, b.upTo), cmp.Compare(bit(a.unsettled), bit(b.unsettled)))
			})
		}
		if b := &m.all[o.ballot]; o.step == done && b.Over() && !m.Leaves && m.Duplicates == 0 {
			o.ballot, o.rounds, o.tries, o.floor = m.id(m.fresh()), 0, 0, 0
		}
	}
	if m.Queue || m.Minority {
		return s // nodes differ
	}
	least, key := s, m.encode(&s)
	for by := 1; by < len(orders); by++ {
		p := m.reordered(s, by)
		if k := m.encode(&p); bytes.Compare(k[:], key[:]) < 0 {
			least, key = p, k
		}
	}
	return least
}

// orders are the permutations of three nodes.
var orders = [...][nodes]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}

// reordered returns the state with its nodes in another order.
func (m ballots) reordered(s ballotsState, by int) ballotsState {
	p := s
	for i, from := range orders[by] {
		p.n[i] = s.n[from]
		for j := range m.Modes {
			p.o[j].backs[i] = s.o[j].backs[from]
			for k := range p.o[j].sentVote {
				to, a := &p.o[j].sentVote[k], &s.o[j].sentVote[k]
				to.at[i], to.reply[i], to.raises[i] = a.at[from], a.reply[from], a.raises[from]
			}
		}
	}
	for j := range m.Modes {
		p.o[j].ballot = m.permuted(s.o[j].ballot, by)
	}
	return p
}

// encode is a state in bytes, as far as the order of nodes matters.
func (m ballots) encode(s *ballotsState) (key [512]byte) {
	b := key[:0]
	for i := range s.n {
		n := &s.n[i]
		b = append(b, byte(n.votes[0]), byte(n.votes[1]), byte(n.votes[2]), bit(n.tombs[0]), bit(n.tombs[1]), bit(n.tombs[2]), byte(n.key), byte(n.keyX))
		for j := range m.Modes {
			for _, a := range s.o[j].sentVote {
				b = append(b, byte(a.at[i]), byte(a.reply[i].why), byte(a.reply[i].fence), bit(a.raises[i]))
			}
			for _, w := range s.o[j].backs[i] {
				b = append(b, byte(w.at), byte(w.upTo), bit(w.unsettled))
			}
		}
	}
	for j := range m.Modes {
		b = binary.BigEndian.AppendUint32(b, uint32(s.o[j].ballot))
	}
	return key
}
