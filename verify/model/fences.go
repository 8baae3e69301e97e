// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// nodes is how many nodes every model has, need how many of them a majority.
const (
	nodes = 3
	need  = nodes/2 + 1
)

// Fences is a model of proposed fences without time: a lease at a node may end at any moment, and messages arrive late, twice or
// never. The zero value of each rule is what hasp does; setting one removes it.
type Fences struct {
	Owners     int  // 2 or 3, each one acquisition
	Top        int8 // the largest fence that is proposed
	Duplicates int8 // messages that arrive twice
	Block      int8 // fences asked for at once; 0 means 1
	Begun      bool // nodes begin with fences of earlier holders
	Others     bool // other keys raise the floors of nodes
	Forget     bool // nodes forget the fences of a key that is free, which raises their floor
	Raises     bool // owners propose once more, with Raise
	Withdraws  bool // an owner that proposes once more withdraws its votes first; nothing else ends a lease, and no two may hold
	Restores   bool // holders ask for votes with Restore, at any time from then on
	Votes      bool // judge also the order of the votes that each node gave, which must be that of their fences
	Revive     bool // judge also whether a lease can be confirmed that another's hold interrupted

	NoCompare  bool // a free node grants any proposal
	NoFloor    bool // what a node forgets is not covered by its floor
	BlindBack  bool // a Restore is not compared with the fences of the key
	Lower      bool // a standing fence becomes the proposed one, even if that is lower
	Echo       bool // the holder is answered with the fence it proposes, not with the standing one
	NoRaise    bool // the second proposal is made without Raise
	AnyFence   bool // a vote is withdrawn whatever its fence
	OldRounds  bool // answers of a round before the latest are counted, too
	Mixed      bool // votes for different fences are counted together
	Minority   bool // one vote is enough
	Listed     bool // the first owner's list has node 0 twice, in place of node 1, and counts both
	LongestRow bool // a row of fences is as long as the longest that was granted
	RowUnder   bool // a row of fences may begin below the floor
}

type fencesNode struct {
	owner int8 // the holder of the key: 0 is A; -1: none
	fence int8 // its fence
	key   int8 // the largest fence of the key that is remembered
	floor int8 // the floor for all keys
	of    [3]fencesMessages
}

// fencesMessages are the messages of an owner to a node.
type fencesMessages struct {
	sent  [2]int8 // how often the Try of a round was carried out
	got   [2]int8 // the fence that it was answered with, 0: none
	row   [2]int8 // how many fences
	back  bool    // a withdrawal of the first vote is in flight
	gave  bool    // a Restore was carried out
	renew bool    // a Renew after an interruption was carried out
}

type fencesOwner struct {
	h     [2]int8 // proposals, 0: not made
	held  int8    // the fence it holds with, 0: it does not
	first int8    // the first of the row that ends with it
	after uint8   // the owners that had held before it began
}

type fencesState struct {
	n          [nodes]fencesNode
	o          [3]fencesOwner
	duplicates int8
	wrong      verdict
}

// system returns the transition system of the model.
func (m Fences) system() system[fencesState] {
	m.Block = max(m.Block, 1)
	return system[fencesState]{
		init:  m.init(),
		next:  m.next,
		canon: m.canon,
		wrong: func(s fencesState) string { return verdicts[s.wrong] },
	}
}

func (m Fences) init() []fencesState {
	var s fencesState
	for i := range s.n {
		s.n[i].owner = -1
	}
	all := []fencesState{s}
	if m.Begun {
		for i := range s.n {
			s.n[i].key = 1
			all = append(all, s)
		}
	}
	return all
}

func (m Fences) next(s fencesState, emit func(Step, fencesState)) {
	for j := range m.Owners {
		m.ofOwner(s, j, emit)
		if s.o[j].h[0] == 0 {
			break // owners begin in the order of their names
		}
	}
	for i := range s.n {
		m.ofNode(s, i, emit)
	}
}

// ofOwner emits what owner j may do, and what its messages may do.
func (m Fences) ofOwner(s fencesState, j int, emit func(Step, fencesState)) {
	o, actor := &s.o[j], owner(j)
	if o.h[0] == 0 {
		for h := int8(1); h <= m.Top; h++ {
			n := s
			n.o[j].h[0] = h
			n.o[j].after = s.holders()
			emit(Step{actor, Propose, -1, int(h)}, n)
		}
		return
	}
	if m.Raises && o.h[1] == 0 && o.held == 0 {
		for h := o.h[0] + 1; h <= m.Top; h++ {
			n := s
			n.o[j].h[1] = h
			for i := range n.n {
				v := &n.n[i].of[j]
				if v.back = m.Withdraws && v.got[0] > 0; !m.OldRounds {
					v.got[0], v.row[0] = 0, 0
				}
			}
			emit(Step{actor, Raise, -1, int(h)}, n)
		}
	}
	for r := range o.h {
		for i := range s.n {
			n := s
			v := &n.n[i].of[j]
			if o.h[r] == 0 || v.sent[r] > 0 && (v.sent[r] > 1 || s.duplicates == m.Duplicates) {
				continue
			}
			fence, row := m.try(&n, i, j, r)
			if fence == 0 || v.sent[r] > 0 && n.n == s.n {
				continue // a refusal changes nothing: the message might as well be in flight
			}
			act := Try
			if v.sent[r]++; v.sent[r] > 1 {
				n.duplicates++
				act = TryAgain
			} else if o.held == 0 && (m.OldRounds || o.h[1] == 0 || r == 1) {
				v.got[r], v.row[r] = fence, row
				m.judgeVote(&n, i, j, fence)
			}
			emit(Step{actor, act, i, r + 1}, n)
		}
	}
	for i, x := range s.n {
		if !x.of[j].back {
			continue
		}
		n := s
		y := &n.n[i]
		if y.of[j].back = false; x.owner == int8(j) && (m.AnyFence || x.fence <= o.h[0]) {
			y.owner, y.fence = -1, 0
		}
		emit(Step{actor, Released, i, 1}, n)
	}
	if o.held == 0 {
		m.count(s, j, emit)
		return
	}
	renewed := 0
	for _, x := range s.n {
		renewed += int(bit(x.of[j].renew))
	}
	for i, x := range s.n {
		if m.Restores && !x.of[j].gave {
			n := s
			n.n[i].of[j].gave = true
			m.restore(&n.n[i], int8(j), o.held)
			emit(Step{actor, Restore, i, 0}, n)
		}
		if m.Revive && s.interrupted(j) && !x.of[j].renew && x.owner == int8(j) {
			n := s
			n.n[i].of[j].renew = true
			if renewed+1 >= need {
				n.wrong = says("a lease stands again although another held the key in between")
			}
			emit(Step{actor, Renew, i, 0}, n)
		}
	}
}

// try carries out a Try at a node, and returns the fence of the grant and how many fences it has; 0 is a refusal.
func (m Fences) try(s *fencesState, i, j, r int) (fence, row int8) {
	if m.Listed && j == 0 && i == 1 {
		i = 0
	}
	n, h := &s.n[i], s.o[j].h[r]
	floor := max(n.key, n.floor)
	switch {
	case n.owner == int8(j):
		switch {
		case m.Echo:
			return h, 1
		case m.Lower:
			n.fence, n.key = h, h
		case r == 1 && !m.NoRaise && h > n.fence:
			n.fence = h
			n.key = max(n.key, h)
		case r == 1 && !m.NoRaise && h < n.fence:
			return 0, 0
		}
		return n.fence, 1
	case n.owner >= 0, h <= floor && !m.NoCompare:
		return 0, 0
	}
	row = m.Block
	if !m.RowUnder {
		row = min(row, max(h-floor, 1))
	}
	n.owner, n.fence, n.key = int8(j), h, max(n.key, h)
	return h, row
}

// restore carries out a Try with Restore at a node.
func (m Fences) restore(n *fencesNode, j, h int8) {
	if n.owner < 0 && (h >= n.key || m.BlindBack) {
		n.owner, n.fence, n.key = j, h, max(n.key, h)
	}
}

// count emits the ways in which owner j may count a majority.
func (m Fences) count(s fencesState, j int, emit func(Step, fencesState)) {
	want := need
	if m.Minority {
		want = 1
	}
	for f := int8(1); f <= m.Top; f++ {
		var rows []int8 // of the nodes that count, the longest of each
		counted, given := [nodes]bool{}, false
		for i, x := range s.n {
			row := int8(0)
			for r, g := range x.of[j].got {
				given = given || g == f
				if g == f || m.Mixed && g > 0 && g < f {
					row = max(row, x.of[j].row[r])
				}
			}
			if row > 0 {
				rows, counted[i] = append(rows, row), true
			}
		}
		if !given || len(rows) < want {
			continue
		}
		slices.Sort(rows)
		row := rows[len(rows)-want] // the most that a majority of them granted
		if m.LongestRow {
			row = rows[len(rows)-1]
		}
		n := s
		m.hold(&n, j, f, row, counted)
		emit(Step{owner(j), Hold, -1, int(f)}, n)
	}
}

// ofNode emits what may happen to a node by itself.
func (m Fences) ofNode(s fencesState, i int, emit func(Step, fencesState)) {
	x := s.n[i]
	if x.owner >= 0 && !m.Withdraws {
		n := s
		n.n[i].owner, n.n[i].fence = -1, 0
		emit(Step{"", Vanish, i, 0}, n)
	} else if x.owner < 0 && m.Forget && x.key > 0 {
		n := s
		n.n[i].key = 0
		if !m.NoFloor {
			n.n[i].floor = max(x.floor, x.key)
		}
		emit(Step{"", Forget, i, 0}, n)
	}
	if m.Others && x.floor < m.Top-1 {
		n := s
		n.n[i].floor = m.Top - 1
		emit(Step{"", Others, i, int(m.Top - 1)}, n)
	}
}

// hold makes j a holder and judges its fences.
func (m Fences) hold(s *fencesState, j int, fence, row int8, counted [nodes]bool) {
	o := &s.o[j]
	o.held, o.first = fence, fence-row+1
	for k := range s.o {
		p := &s.o[k]
		if k == j || p.held == 0 {
			continue
		}
		if m.Withdraws {
			s.wrong = says("both hold the key at once")
		} else if o.first <= p.held && p.first <= o.held {
			s.wrong = says("two holders have the same fence")
		} else if o.after&(1<<k) != 0 && o.first <= p.held {
			s.wrong = says("an owner that began after another held got a fence that is not larger")
		}
	}
	// From now on only the votes that it counted matter.
	for i, c := range counted {
		v := &s.n[i].of[j]
		if v.got, v.row = [2]int8{}, [2]int8{}; c {
			v.got[0] = fence
		}
	}
}

// judgeVote judges a vote that j may count: it comes after the votes that others have from that node and may count, or did.
func (m Fences) judgeVote(s *fencesState, i, j int, fence int8) {
	for k, v := range s.n[i].of {
		if m.Votes && k != j && fence <= max(v.got[0], v.got[1]) {
			s.wrong = says("a vote of a node has a fence that is not above that of its earlier vote for another")
		}
	}
}

// holders returns the set of owners that hold, or held.
func (s *fencesState) holders() (set uint8) {
	for j := range s.o {
		if s.o[j].held > 0 {
			set |= 1 << j
		}
	}
	return set
}

// interrupted reports whether an owner with a larger fence than j's has held.
func (s *fencesState) interrupted(j int) bool {
	for k := range s.o {
		if s.o[k].held > s.o[j].held {
			return true
		}
	}
	return false
}

// canon sorts the nodes: they differ only in name.
func (m Fences) canon(s fencesState) fencesState {
	if m.Listed {
		return s
	}
	if !m.NoCompare && !m.NoFloor && !m.Lower && !(m.Restores && m.Raises) {
		m.dropStale(&s)
	}
	slices.SortFunc(s.n[:], compare)
	return s
}

// dropStale removes messages that can have no effect any more: floors never fall, and
// a node that is not the owner's only becomes so again by a Restore.
func (m Fences) dropStale(s *fencesState) {
	for j := range s.o {
		o := &s.o[j]
		for r, h := range o.h {
			for i, n := range s.n {
				if h > 0 && n.of[j].sent[r] == 0 && (n.owner != int8(j) || o.held > 0 && !m.Raises) && h <= max(n.key, n.floor) && o.h[1] <= max(n.key, n.floor) && (o.h[1] > 0 || o.held > 0 || !m.Raises) {
					s.n[i].of[j].sent[r] = 1
				}
			}
		}
	}
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}
