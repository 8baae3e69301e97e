// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "slices"

// nodes is how many nodes every model has, need how many of them a majority.
const (
	nodes = 3
	need  = nodes/2 + 1
)

// Fences is a model of proposed fences without time: a lease at a node may end at any
// moment, and messages arrive late, twice or never. The zero value of each rule is
// what hasp does; setting one removes it.
type Fences struct {
	Owners     int  // 2 or 3, each one acquisition
	Top        int8 // the largest fence that is proposed
	Duplicates int8 // messages that arrive twice
	Block      int8 // fences asked for at once; 0 means 1
	Begun      bool // nodes begin with fences of earlier holders
	Others     bool // other keys raise the floors of nodes
	Forget     bool // nodes forget the fences of a key that is free, which raises their floor
	Raises     bool // owners propose once more, with Raise
	Restores   bool // holders ask for votes with Restore, at any time from then on
	Votes      bool // judge also the order of the votes that each node gave, which must be that of their fences
	Revive     bool // judge also whether a lease can be confirmed that another's hold interrupted

	NoCompare  bool // a free node grants any proposal
	NoFloor    bool // what a node forgets is not covered by its floor
	BlindBack  bool // a Restore is not compared with the fences of the key
	Lower      bool // a standing fence becomes the proposed one, even if that is lower
	Echo       bool // the holder is answered with the fence it proposes, not with the standing one
	NoRaise    bool // the second proposal is made without Raise
	OldRounds  bool // answers of a round before the latest are counted, too
	Mixed      bool // votes for different fences are counted together
	Minority   bool // one vote is enough
	Listed     bool // the first owner's list has node 0 twice, in place of node 1, and counts both
	LongestRow bool // a row of fences is as long as the longest that was granted
	RowUnder   bool // a row of fences may begin below the floor
}

type fencesNode struct {
	owner int8 // who holds the key: 0 is A; -1 nobody
	fence int8 // its fence
	key   int8 // the largest fence of the key that is remembered
	floor int8 // the floor for all keys
}

type fencesOwner struct {
	h     [2]int8        // proposals, 0: not made
	sent  [2][nodes]int8 // how often the Try of a round was carried out
	got   [2][nodes]int8 // the fence that it was answered with, 0: none
	row   [2][nodes]int8 // how many fences
	held  int8           // the fence it holds with, 0: it does not
	first int8           // the first of the row that ends with it
	gave  [nodes]bool    // a Restore was carried out
	renew [nodes]bool    // a Renew after an interruption was carried out
	after uint8          // who had held before it began
}

type fencesState struct {
	n          [nodes]fencesNode
	o          [3]fencesOwner
	duplicates int8
	wrong      int8
}

var fencesWrong = []string{
	"",
	"two holders have the same fence",
	"an owner that began after another held got a fence that is not larger",
	"a vote of a node has a fence that is not above that of its earlier vote for another",
	"a lease stands again although another held the key in between",
}

// system returns the transition system of the model.
func (m Fences) system() system[fencesState] {
	m.Block = max(m.Block, 1)
	return system[fencesState]{
		init:  m.init(),
		next:  m.next,
		canon: m.canon,
		wrong: func(s fencesState) string { return fencesWrong[s.wrong] },
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
	o, who := &s.o[j], owner(j)
	if o.h[0] == 0 {
		for h := int8(1); h <= m.Top; h++ {
			n := s
			n.o[j].h[0] = h
			n.o[j].after = s.holders()
			emit(Step{who, Propose, -1, int(h)}, n)
		}
		return
	}
	if m.Raises && o.h[1] == 0 && o.held == 0 {
		for h := o.h[0] + 1; h <= m.Top; h++ {
			n := s
			n.o[j].h[1] = h
			if !m.OldRounds {
				n.o[j].got[0], n.o[j].row[0] = [nodes]int8{}, [nodes]int8{}
			}
			emit(Step{who, Raise, -1, int(h)}, n)
		}
	}
	for r := range o.h {
		for i := range s.n {
			if o.h[r] == 0 || o.sent[r][i] > 0 && (o.sent[r][i] > 1 || s.duplicates == m.Duplicates) {
				continue
			}
			n := s
			fence, row := m.try(&n, i, j, r)
			if fence == 0 {
				continue // a refusal changes nothing: the message might as well be in flight
			}
			act := Try
			if n.o[j].sent[r][i]++; n.o[j].sent[r][i] > 1 {
				if n.n == s.n {
					continue
				}
				n.duplicates++
				act = TryAgain
			} else if o.held == 0 && (m.OldRounds || o.h[1] == 0 || r == 1) {
				n.o[j].got[r][i], n.o[j].row[r][i] = fence, row
				m.judgeVote(&n, i, j, fence)
			}
			emit(Step{who, act, i, r + 1}, n)
		}
	}
	if o.held == 0 {
		m.count(s, j, emit)
		return
	}
	for i := range s.n {
		if m.Restores && !o.gave[i] {
			n := s
			n.o[j].gave[i] = true
			m.restore(&n.n[i], int8(j), o.held)
			emit(Step{who, Restore, i, 0}, n)
		}
		if m.Revive && s.interrupted(j) && !o.renew[i] && s.n[i].owner == int8(j) {
			n := s
			n.o[j].renew[i] = true
			if count(n.o[j].renew[:]) >= need {
				n.wrong = 4
			}
			emit(Step{who, Renew, i, 0}, n)
		}
	}
}

// try carries out a Try at a node, and returns the fence of the grant and how
// many fences it has; 0 is a refusal.
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
	o := &s.o[j]
	var fences []int8
	for r := range o.got {
		for _, f := range o.got[r] {
			if f > 0 && !slices.Contains(fences, f) {
				fences = append(fences, f)
			}
		}
	}
	want := need
	if m.Minority {
		want = 1
	}
	for _, f := range fences {
		var rows []int8 // of the nodes that count, the longest of each
		counted := [nodes]bool{}
		for i := range s.n {
			row := int8(0)
			for r := range o.got {
				if g := o.got[r][i]; g == f || m.Mixed && g > 0 && g < f {
					row = max(row, o.row[r][i])
				}
			}
			if row > 0 {
				rows, counted[i] = append(rows, row), true
			}
		}
		if len(rows) < want {
			continue
		}
		slices.Sort(rows)
		row := rows[len(rows)-want] // the most that a majority of them granted
		if m.LongestRow {
			row = rows[len(rows)-1]
		}
		n := s
		n.hold(j, f, row, counted)
		emit(Step{owner(j), Hold, -1, int(f)}, n)
	}
}

// ofNode emits what may happen to a node by itself.
func (m Fences) ofNode(s fencesState, i int, emit func(Step, fencesState)) {
	x := s.n[i]
	if x.owner >= 0 {
		n := s
		n.n[i].owner, n.n[i].fence = -1, 0
		emit(Step{"", Vanish, i, 0}, n)
	} else if m.Forget && x.key > 0 {
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
