// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import "github.com/hasplock/hasp/verify/model"

// What is wrong, as the models call it.
const (
	sameFence   = "two holders have the same fence"
	notLarger   = "an owner that began after another held got a fence that is not larger"
	revived     = "a lease stands again although another held the key in between"
	bothHold    = "both hold the key at once"
	interrupted = "a lease was renewed although another held the key in between"
	lateTry     = "a Try that came after its Release was granted, while the node remembered the Release"
)

// judge records who held, and the first thing that is wrong.
type judge struct {
	began map[int]int // how many had held when an owner began
	held  []*lease
	wrong string
}

// lease is a lease that an owner believes to hold.
type lease struct {
	owner       int
	first, last uint64
	stands      func() bool // as far as the owner knows, now
	stirred     bool        // another owner has held since
}

func (j *judge) finds(wrong string) {
	if j.wrong == "" {
		j.wrong = wrong
	}
}

func (j *judge) begins(owner int) {
	if j.began == nil {
		j.began = map[int]int{}
	}
	j.began[owner] = len(j.held)
}

// ofFences reports whether a model is about fences, not about leases in time.
func ofFences(m any) bool {
	switch m.(type) {
	case model.Fences:
		return true
	}
	return false
}

// holds judges a new holder.
func (j *judge) holds(l *lease, m any) {
	fences := ofFences(m)
	for k, o := range j.held {
		switch {
		case o.owner == l.owner:
			continue
		case fences && l.first <= o.last && o.first <= l.last:
			j.finds(sameFence)
		case fences && k < j.began[l.owner] && l.first <= o.last:
			j.finds(notLarger)
		case !fences && o.stands() && l.stands():
			j.finds(bothHold)
		}
		o.stirred = true
	}
	j.held = append(j.held, l)
}

// renews judges a lease that its owner has renewed.
func (j *judge) renews(l *lease, m any) {
	fences := ofFences(m)
	if l.stirred && fences {
		j.finds(revived)
	}
	for _, o := range j.held {
		if o.owner != l.owner && !fences && o.stands() && l.stands() {
			j.finds(bothHold)
		}
	}
	if l.stirred {
		j.finds(interrupted)
	}
}
