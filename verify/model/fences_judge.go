// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
)

// hold makes j a holder and judges its fences.
func (s *fencesState) hold(j int, fence, row int8, counted [nodes]bool) {
	o := &s.o[j]
	o.held, o.first = fence, fence-row+1
	for k := range s.o {
		p := &s.o[k]
		if k == j || p.held == 0 {
			continue
		}
		if o.first <= p.held && p.first <= o.held {
			s.wrong = 1
		} else if o.after&(1<<k) != 0 && o.first <= p.held {
			s.wrong = 2
		}
	}
	// From now on only the votes that it counted matter.
	o.got, o.row = [2][nodes]int8{}, [2][nodes]int8{}
	for i, c := range counted {
		if c {
			o.got[0][i] = fence
		}
	}
}

// judgeVote judges a vote that j may count: it comes after the votes that
// others have from that node and may count, or did.
func (m Fences) judgeVote(s *fencesState, i, j int, fence int8) {
	for k := range s.o {
		if m.Votes && k != j && fence <= max(s.o[k].got[0][i], s.o[k].got[1][i]) {
			s.wrong = 3
		}
	}
}

// holders returns the set of those who hold, or held.
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
	var column [nodes][4 + 3*9]byte
	for i := range s.n {
		c := append(column[i][:0], byte(s.n[i].owner), byte(s.n[i].fence), byte(s.n[i].key), byte(s.n[i].floor))
		for j := range m.Owners {
			o := &s.o[j]
			c = append(c, byte(o.sent[0][i]), byte(o.sent[1][i]), byte(o.got[0][i]), byte(o.got[1][i]),
				byte(o.row[0][i]), byte(o.row[1][i]), bit(o.gave[i]), bit(o.renew[i]))
		}
	}
	order := [nodes]int{0, 1, 2}
	slices.SortFunc(order[:], func(a, b int) int { return bytes.Compare(column[a][:], column[b][:]) })
	n := s
	for to, i := range order {
		n.n[to] = s.n[i]
		for j := range m.Owners {
			a, b := &n.o[j], &s.o[j]
			for r := range a.sent {
				a.sent[r][to], a.got[r][to], a.row[r][to] = b.sent[r][i], b.got[r][i], b.row[r][i]
			}
			a.gave[to], a.renew[to] = b.gave[i], b.renew[i]
		}
	}
	return n
}

// dropStale removes messages that can have no effect any more: floors never fall, and
// a node that is not the owner's only becomes so again by a Restore.
func (m Fences) dropStale(s *fencesState) {
	for j := range s.o {
		o := &s.o[j]
		for r, h := range o.h {
			for i, n := range s.n {
				if h > 0 && o.sent[r][i] == 0 && (n.owner != int8(j) || o.held > 0 && !m.Raises) && h <= max(n.key, n.floor) && o.h[1] <= max(n.key, n.floor) && (o.h[1] > 0 || o.held > 0 || !m.Raises) {
					o.sent[r][i] = 1
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

func count(bs []bool) (n int) {
	for _, b := range bs {
		n += int(bit(b))
	}
	return n
}
