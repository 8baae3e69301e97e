// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"slices"
)

// WriteBack is a model of an alternative that hasp does not use: every node counts its
// grants, and an owner takes the largest count of a majority as its fence and writes it
// back. The zero value writes to every node, whoever has the key there.
type WriteBack struct {
	Owners     int
	Duplicates bool        // a Try may arrive twice
	Counts     [nodes]int8 // that the nodes begin with
	Async      bool        // keys vanish at any time; else only when their owner is done

	Never   bool // nothing is written back
	Mine    bool // only where the key is still the owner's
	Counted bool // and its grant was counted
	NotOver bool // and the node's count is not above what is written
}

type writeState struct {
	holder [nodes]int8 // 0 is A; -1 nobody
	count  [nodes]int8
	o      [3]writeOwner
	wrong  int8
}

type writeOwner struct {
	phase  int8 // one of the below
	got    [nodes]int8
	chosen int8
	from   uint8 // the nodes whose grants were counted
	acked  [nodes]bool
	twin   bool
	held   bool
	after  uint8 // who had held before it began
}

const (
	idle = iota
	asking
	writing
	holding
	done
	lapsed
)

func (m WriteBack) system() system[writeState] {
	return system[writeState]{
		init:  []writeState{{holder: [nodes]int8{-1, -1, -1}, count: m.Counts}},
		next:  m.next,
		canon: m.canon,
		wrong: func(s writeState) string { return fencesWrong[s.wrong] },
	}
}

func (m WriteBack) next(s writeState, emit func(Step, writeState)) {
	for j := range m.Owners {
		if s.o[j].phase == idle {
			n := s
			n.o[j].phase = asking
			for k := range s.o {
				if s.o[k].held {
					n.o[j].after |= 1 << k
				}
			}
			emit(Step{owner(j), Propose, -1, 0}, n)
			break
		}
		m.messages(s, j, emit)
		m.decide(s, j, emit)
	}
	for i, k := range s.holder {
		if k >= 0 && (m.Async || s.o[k].phase == done) {
			n := s
			n.holder[i] = -1
			emit(Step{"", Vanish, i, 0}, n)
		}
	}
}

// messages emits what the messages of an owner do.
func (m WriteBack) messages(s writeState, j int, emit func(Step, writeState)) {
	o := &s.o[j]
	for i := range s.holder {
		if s.holder[i] < 0 && (o.got[i] == 0 || m.Duplicates && !o.twin) {
			n := s
			n.holder[i] = int8(j)
			n.count[i]++
			act := Try
			if o.got[i] == 0 {
				n.o[j].got[i] = n.count[i]
			} else {
				n.o[j].twin = true
				act = TryAgain
			}
			emit(Step{owner(j), act, i, 1}, n)
		}
		if o.phase < writing || o.chosen == 0 || o.acked[i] || m.Never || m.Counted && o.from&(1<<i) == 0 {
			continue
		}
		if m.Mine && s.holder[i] != int8(j) || m.NotOver && s.count[i] > o.chosen {
			continue // it has no effect, now
		}
		n := s
		n.o[j].acked[i] = true
		n.count[i] = max(n.count[i], o.chosen)
		emit(Step{owner(j), Write, i, int(o.chosen)}, n)
	}
}

// decide emits what an owner may decide from the answers it has.
func (m WriteBack) decide(s writeState, j int, emit func(Step, writeState)) {
	o := &s.o[j]
	switch o.phase {
	case asking:
		for set := range uint8(1 << nodes) {
			n := s
			p := &n.o[j]
			p.chosen, p.from, p.phase = 0, set, writing
			votes := 0
			for i, g := range o.got {
				if set&(1<<i) == 0 {
					continue
				}
				if g == 0 {
					votes = -nodes // not an answer
				}
				votes++
				p.chosen = max(p.chosen, g)
			}
			if votes < need {
				continue
			}
			emit(Step{owner(j), Choose, -1, int(p.chosen)}, n)
		}
	case writing:
		if count(o.acked[:]) < need && !m.Never {
			break
		}
		n := s
		n.o[j].phase, n.o[j].held = holding, true
		for k := range s.o {
			switch p := &s.o[k]; {
			case k == j || !p.held:
			case p.chosen == o.chosen:
				n.wrong = 1
			case o.after&(1<<k) != 0 && o.chosen < p.chosen:
				n.wrong = 2
			}
		}
		emit(Step{owner(j), Hold, -1, int(o.chosen)}, n)
	}
	if o.phase != done && !m.Async {
		n := s
		n.o[j].phase = done
		emit(Step{owner(j), Release, -1, 0}, n)
	}
}

func (m WriteBack) canon(s writeState) writeState {
	var column [nodes][2 + 3*3]byte
	for i := range s.holder {
		c := append(column[i][:0], byte(s.holder[i]), byte(s.count[i]))
		for j := range s.o {
			c = append(c, byte(s.o[j].got[i]), bit(s.o[j].acked[i]), s.o[j].from>>i&1)
		}
	}
	order := [nodes]int{0, 1, 2}
	slices.SortFunc(order[:], func(a, b int) int { return bytes.Compare(column[a][:], column[b][:]) })
	n := s
	for to, i := range order {
		n.holder[to], n.count[to] = s.holder[i], s.count[i]
		for j := range s.o {
			a, b := &n.o[j], &s.o[j]
			a.got[to], a.acked[to] = b.got[i], b.acked[i]
			a.from = a.from&^(1<<to) | b.from>>i&1<<to
		}
	}
	return n
}
