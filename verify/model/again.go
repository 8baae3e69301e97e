// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

// Again is a model of an owner A that got no majority, withdraws its votes, and
// asks again, while its earlier messages are still in flight. It proposes 1, then 2,
// with Raise. B asks once and proposes 3. Nothing expires: an owner that counted a
// majority holds for ever. The zero value is sound.
type Again struct {
	AnyFence bool // a vote is withdrawn whatever its fence
	Stood    bool // the second Try is made without Raise, and a standing fence of before it counts
}

type againState struct {
	owner, fence, key [nodes]int8
	round             int8           // of A: 0 or 1
	tried             [3][nodes]bool // A's two Tries, and B's
	got               [2][nodes]int8 // votes that A and B may count, by their fences
	back              [nodes]bool    // a withdrawal of A's first vote is in flight
	held              [2]bool
}

func (m Again) system() system[againState] {
	return system[againState]{
		init: []againState{{owner: [nodes]int8{nobody, nobody, nobody}}},
		next: m.next,
		wrong: func(s againState) string {
			if s.held[0] && s.held[1] {
				return votesWrong[1]
			}
			return ""
		},
	}
}

func (m Again) next(s againState, emit func(Step, againState)) {
	for r := range s.tried {
		m.try(s, r, emit)
	}
	for j := range s.held {
		for f := int8(1); f <= 3 && !s.held[j]; f++ {
			votes := 0
			for _, g := range s.got[j] {
				votes += int(bit(g == f))
			}
			if votes >= need {
				n := s
				n.held[j] = true
				emit(Step{owner(j), Hold, -1, int(f)}, n)
			}
		}
	}
	if s.round == 0 && !s.held[0] {
		n := s
		n.round = 1
		for i, g := range s.got[0] {
			n.back[i] = g > 0
		}
		n.got[0] = [nodes]int8{}
		emit(Step{owner(0), Release, -1, 1}, n)
		return
	}
	for i, b := range s.back {
		if !b {
			continue
		}
		n := s
		n.back[i] = false
		if s.owner[i] == 0 && (m.AnyFence || s.fence[i] <= 1) {
			n.owner[i], n.fence[i] = nobody, 0
		}
		emit(Step{owner(0), Released, i, 1}, n)
	}
}

// try emits what the r-th Try does: A's first and second, or B's.
func (m Again) try(s againState, r int, emit func(Step, againState)) {
	if r == 1 && s.round == 0 {
		return
	}
	j, h := int8(r/2), int8(r+1)
	for i := range s.owner {
		if s.tried[r][i] {
			continue
		}
		n := s
		n.tried[r][i] = true
		switch {
		case s.owner[i] == j && h > s.fence[i] && !m.Stood, s.owner[i] == nobody && h > s.key[i]:
			n.owner[i], n.fence[i], n.key[i] = j, h, max(h, s.key[i])
		case s.owner[i] != j:
			continue // refused
		}
		if !s.held[j] && (j == 1 || int8(r) == s.round) {
			n.got[j][i] = n.fence[i]
		}
		emit(Step{owner(int(j)), Try, i, r%2 + 1}, n)
	}
}
