// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import "github.com/hasplock/hasp/internal/clock"

// successors are those in this client who want what an attempt asks for, or a
// hold has, after it: a cohort, or nobody.
type successors interface {
	fences() int        // how many fences to ask the store for; 0 is as 1
	waitsFor(why error) // notes what keeps the attempt waiting
	granted(h *hold)    // notes who has the key
	pass(h *hold) bool  // gives the next what h holds, once it is passing; false: there is none
	over()              // there is nothing to pass on any more
}

// alone has no successors.
type alone struct{}

func (alone) fences() int     { return 0 }
func (alone) waitsFor(error)  {}
func (alone) granted(*hold)   {}
func (alone) pass(*hold) bool { return false }
func (alone) over()           {}

// turn is a hold's place among those that follow one another on one grant of
// the store. The hold's mu guards it.
type turn struct {
	behind successors    // notified once the hold is over
	began  clock.Instant // when the store was asked for the grant
	spare  int32         // fences left for those behind
	extra  int32         // those of them that nobody waited for when the store was asked
	later  bool          // it is not the first: the store was not asked for it
	kept   bool          // nobody has had it yet, since it was kept
}

// leave returns, once, those to notify that the hold is over.
func (t *turn) leave() successors {
	behind := t.behind
	t.behind = alone{}
	return behind
}

// share leaves a grant's other fences to those behind, and returns how many they are.
func (t *turn) share(behind successors, began clock.Instant, fences int) uint64 {
	t.behind, t.began = behind, began
	t.spare = int32(max(fences, 1) - 1)
	return uint64(t.spare)
}
