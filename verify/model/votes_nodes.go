// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
)

// messages emits what owner j's messages do at node i.
func (m Votes) messages(s votesState, j, i int, emit func(Step, votesState)) {
	o, x, who := &s.o[j], &s.n[i], owner(j)
	v := o.votes[i]
	if o.phase == idle {
		return
	}
	if v.tries == 0 || v.tries == 1 && s.duplicates < m.Duplicates {
		n := s
		if m.grant(&n, j, i, o.fence > m.floor(x)) {
			if m.Releases && m.Tombs && v.released && n.n[i].tombs[j] {
				n.wrong = 3
			}
			n.o[j].votes[i].tries++
			act := Try
			if v.tries == 1 {
				n.duplicates++
				act = TryAgain
			} else if o.phase == asking {
				n.o[j].votes[i].granted = true
			}
			emit(Step{who, act, i, 1}, n)
		}
	}
	if v.giving > 0 {
		n := s
		n.o[j].votes[i].giving = 0
		if m.grant(&n, j, i, o.fence >= x.key || m.Blind) {
			if v.giving == 2 && o.begun >= 0 && v.renewed == 0 {
				n.o[j].votes[i].renewed = 2
			}
			emit(Step{who, Restore, i, 0}, n)
		}
	}
	if o.begun >= 0 && v.renewed == 0 && x.owner == int8(j) && (m.votes(&s, i) || m.WaitingRenew) {
		n := s
		n.n[i].until = max(x.until, s.now+m.TTL[j])
		n.o[j].votes[i].renewed = 1
		emit(Step{who, Renew, i, 0}, n)
	}
	if o.phase == done && !v.released {
		n := s
		n.o[j].votes[i].released = true
		n.n[i].tombs[j] = m.Tombs
		if x.owner == int8(j) {
			n.n[i].owner, n.n[i].until = nobody, 0
		}
		emit(Step{who, Released, i, 0}, n)
	}
}

// grant carries out a Try of owner j at node i; high means that its fence is high enough.
func (m Votes) grant(s *votesState, j, i int, high bool) bool {
	n := &s.n[i]
	switch {
	case !m.votes(s, i), n.tombs[j] && !m.Forgetful, m.TTL[j] > m.Max && !m.AnyTTL:
		return false
	case n.owner == nobody && high:
	case n.owner != int8(j):
		return false
	}
	n.owner, n.until = int8(j), max(n.until, s.now+m.TTL[j])
	n.key, n.top = max(n.key, s.o[j].fence), max(n.top, s.o[j].fence)
	return true
}

// floor is what a proposal must be above at a node that votes: what it
// remembers, and from its admission on all that it may have forgotten.
func (m Votes) floor(n *votesNode) int8 {
	if m.floors() {
		return n.top
	}
	return n.key
}

func (m Votes) floors() bool { return m.Rule == ByNonce && !m.NoFloor }

// admission emits what owner j's client does with the record of node i.
func (m Votes) admission(s votesState, j, i int, emit func(Step, votesState)) {
	x, v := &s.n[i], &s.o[j].votes[i]
	if x.record == voting || m.Rule == ByUptime || m.Rule == Always {
		return
	}
	n := s
	if x.record == missing { // the first client that looks writes one that waits
		n.nonce++
		n.n[i].record, n.n[i].nonce = waits, n.nonce
	}
	mark := n.n[i].nonce
	if m.Rule == ByRun {
		mark = x.life
	}
	if v.nonce != mark {
		n.o[j].votes[i].nonce, n.o[j].votes[i].seen = mark, s.now
		emit(Step{owner(j), Look, i, 0}, n)
	} else if s.now-v.seen >= m.Wait[j] {
		n.n[i].record, n.n[i].nonce = voting, 0
		emit(Step{owner(j), Admit, i, 0}, n)
	}
}

// faults emits the faults that node i may have.
func (m Votes) faults(s votesState, i int, emit func(Step, votesState)) {
	if m.Lives && s.o[0].phase != holding {
		return
	}
	x := s.n[i]
	empty := votesNode{owner: nobody, record: missing, life: x.life, up: x.up, top: x.top, saved: x.saved}
	if s.used[0] < m.Restarts {
		n := s
		n.used[0]++
		n.n[i] = empty
		n.n[i].restarted(s.now)
		emit(Step{"", Restart, i, 0}, n)
	}
	if s.used[1] < m.Reloads && !x.saved.there {
		n := s
		n.n[i].saved = votesSaved{true, x.record == voting, x.owner, x.until, x.key}
		emit(Step{"", Snapshot, i, 0}, n)
	}
	if s.used[1] < m.Reloads && x.saved.there {
		n := s
		n.used[1]++
		n.n[i] = empty
		y := &n.n[i]
		y.restarted(s.now)
		y.owner, y.until, y.key, y.saved = x.saved.owner, x.saved.until, x.saved.key, votesSaved{}
		if m.Rule == ByMark && x.saved.admitted {
			y.record = voting
		}
		y.expire(s.now)
		emit(Step{"", Reload, i, 0}, n)
	}
	if s.used[2] < m.Flushes {
		n := s
		n.used[2]++
		n.n[i] = empty
		emit(Step{"", Flush, i, 0}, n)
	}
	if s.used[3] < m.Jumps {
		n := s
		n.used[3]++
		n.n[i].up -= m.Wait[0]
		if m.Rule == ByNonce { // what it holds expires early
			n.n[i].until -= m.Max
			n.n[i].expire(s.now)
		}
		emit(Step{"", Jump, i, int(m.Max)}, n)
	}
	for j := range x.tombs {
		if x.tombs[j] {
			n := s
			n.n[i].tombs[j] = false
			emit(Step{"", TombEnds, i, j}, n)
		}
	}
}

func (n *votesNode) restarted(now int8) {
	n.life++
	n.up = now
}

// canon sorts the nodes that may lose their data, and the others.
func (m Votes) canon(s votesState) votesState {
	m.dropStale(&s)
	var column [nodes][]byte
	var room [nodes][48]byte
	for i := range s.n {
		x := &s.n[i]
		c := append(room[i][:0], byte(x.owner), byte(x.until), byte(x.key), byte(x.top), byte(x.record), byte(x.nonce), byte(x.life), byte(x.up),
			bit(x.tombs[0]), bit(x.tombs[1]), bit(x.saved.there), bit(x.saved.admitted), byte(x.saved.owner), byte(x.saved.until), byte(x.saved.key))
		for j := range s.o {
			v := &s.o[j].votes[i]
			c = append(c, byte(v.tries), bit(v.granted), byte(v.renewed), byte(v.giving), bit(v.released), byte(v.nonce), byte(v.seen))
		}
		column[i] = c
	}
	order := [nodes]int{0, 1, 2}
	by := func(a, b int) int { return bytes.Compare(column[a], column[b]) }
	slices.SortFunc(order[:m.Flaky], by)
	slices.SortFunc(order[m.Flaky:], by)
	n := s
	for to, i := range order {
		n.n[to] = s.n[i]
		for j := range s.o {
			n.o[j].votes[to] = s.o[j].votes[i]
		}
	}
	return n
}

// dropStale removes what can have no effect any more, so that states that only differ
// in it are equal.
func (m Votes) dropStale(s *votesState) {
	for i := range s.n {
		x := &s.n[i]
		x.up = max(x.up, s.now-m.Wait[0])
		if m.Rule != ByUptime {
			x.up = 0
		}
		if m.Rule != ByRun && !m.Lives {
			x.life = 0
		}
		if !m.floors() {
			x.top = 0
		}
		if s.used[1] >= m.Reloads {
			x.saved = votesSaved{}
		}
		forgets := !m.floors() && i < m.Flaky && (s.used[0] < m.Restarts || s.used[1] < m.Reloads || s.used[2] < m.Flushes)
		for j := range s.o {
			o, v := &s.o[j], &s.o[j].votes[i]
			if m.Rule == ByRun {
				v.seen = max(v.seen, s.now-m.Wait[j])
			} else if x.record != waits || v.nonce != x.nonce {
				v.nonce, v.seen = -1, 0
			} else {
				v.nonce, v.seen = 1, max(v.seen, s.now-m.Wait[j])
			}
			if o.phase != idle && !forgets && !m.Restores && x.owner != int8(j) && m.floor(x) >= o.fence && v.tries <= m.Duplicates {
				v.tries = m.Duplicates + 1 // the Try would be refused
			}
		}
		if x.record == waits && m.Rule != ByRun {
			x.nonce = 1
		}
	}
	s.nonce = 1
	for j := range s.o {
		o := &s.o[j]
		if o.phase == asking && !m.Elapsed && s.now >= o.sent+m.TTL[j] || o.phase == holding && !m.Late && s.now >= o.deadline {
			o.stop(lapsed)
			for i := range o.votes {
				o.votes[i].giving = min(o.votes[i].giving, 1)
			}
		}
	}
}
