// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

// Floor is a model of one node's memory of the fences of one key: per key for a while after the grant, and then by the general
// floor, which follows all fences in two rotations. Time is counted in tens of seconds and has no end; fences are only above or
// below the last one of the key. The zero value is what hasp does.
type Floor struct {
	Steps int8 // how far the wall clock may be off, in either direction

	Short bool // the key's fences are forgotten after half the time
	Once  bool // a rotation takes the newest number for the floor: the middle one is left out
	Never bool // the floor is not rotated when long idle
	Eager bool // the store forgets the key's fences by its clock alone, when no proposal comes
}

const (
	rotation = 2 // 20 s
	keeping  = 6 // 60 s
)

// floorState has times relative to now. Of each floor number it only has whether it covers the last fence of the key.
type floorState struct {
	off      int8 // of the wall clock from the true time
	since    int8 // from the last rotation to now
	left     int8 // until the key's fences are forgotten
	age      int8 // of the last grant, by the true time; at most rotation
	kept     bool // they are remembered
	mid, old bool // these numbers cover the key's last fence; the newest one always does
	wrong    verdict
}

func (m Floor) system() system[floorState] {
	return system[floorState]{
		init:  []floorState{{since: 2 * rotation, age: rotation, mid: true, old: true}},
		next:  m.next,
		wrong: func(s floorState) string { return verdicts[s.wrong] },
	}
}

func (m Floor) next(s floorState, emit func(Step, floorState)) {
	tick := m.shift(s, 1)
	tick.age = min(s.age+1, rotation)
	emit(Step{"", Tick, -1, 1}, tick)
	for by := int8(1); by <= keeping; by++ {
		if s.off+by <= m.Steps {
			n := m.shift(s, by)
			n.off += by
			emit(Step{"", Jump, 0, int(by)}, n)
		}
		if s.off-by >= -m.Steps {
			n := m.shift(s, -by)
			n.off -= by
			emit(Step{"", Back, 0, int(by)}, n)
		}
	}
	if m.Eager && s.kept && s.left <= 0 {
		n := s
		n.kept = false
		emit(Step{"", Forget, 0, 0}, n)
	}
	// A proposal for this key, too low or granted, comes after the same rotation as a proposal for another key.
	n := m.rotate(s)
	if n.old && n.age < rotation && m.Steps == 0 {
		n.wrong = says("the floor for all keys is above a fence that was granted less than a rotation ago")
	}
	emit(Step{"", Access, 0, 0}, n)
	ask := n
	if !n.kept && !n.old {
		ask.wrong = says("a fence that is not above the last one of the key would be granted")
	}
	emit(Step{"", Ask, 0, 0}, ask)
	n.kept, n.left, n.age = true, keeping, 0
	if m.Short {
		n.left = keeping / 2
	}
	n.mid, n.old = false, false
	emit(Step{"", Grant, 0, 0}, n)
}

// shift moves the wall clock. Distances are capped where a larger one makes no difference, however far the clock can still go back.
func (m Floor) shift(s floorState, by int8) floorState {
	s.since = min(s.since+by, 2*(rotation+m.Steps))
	if s.kept {
		s.left = max(s.left-by, -2*m.Steps)
	}
	return s
}

// rotate rotates the floor, as every proposal does first.
func (m Floor) rotate(s floorState) floorState {
	if s.kept && s.left <= 0 {
		s.kept = false
	}
	switch {
	case s.since >= 2*rotation && !m.Never:
		s.mid, s.old, s.since = true, true, 0
	case s.since >= rotation || s.since < 0:
		s.old, s.mid, s.since = s.mid || m.Once, true, 0
	}
	if !s.kept {
		s.left = 0
	}
	return s
}
