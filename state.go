// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

// state is what has become of a hold.
type state uint8

const (
	held       state = iota // somebody has the key
	converting              // and it counts as shared, which the store may not know yet
	kept                    // the store granted it, and nobody has it: it waits for its turn
	passing                 // its last lease was released, for the next turn if there is one
	released                // its last lease was released, and the store is told
	lost                    // it ended before that: by the clock, or by the store's answer
	closed                  // its client was closed
	states                  // how many there are
)

// next says which states a state can become. Lost and closed are for good: a
// renewal that succeeds later does not bring a hold back, since the work under
// it was told to stop.
var next = [states][states]bool{
	held:       {converting: true, passing: true, released: true, lost: true, closed: true},
	converting: {held: true, converting: true, passing: true, released: true, lost: true, closed: true},
	kept:       {held: true, released: true, lost: true, closed: true},
	passing:    {released: true},
}

// stands says that the key may be relied on until the deadline.
func (s state) stands() bool { return s <= kept }

// become changes the state, and says whether it could.
func (s *state) become(n state) bool {
	if !next[*s][n] {
		return false
	}
	*s = n
	return true
}
