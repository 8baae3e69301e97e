// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

// Walk follows the steps through the model once more, and returns what is wrong in
// the end; "" if nothing is, or if the model has no such step. It is fast, so that a
// counterexample that was found earlier can be confirmed.
func (t Trace) Walk() string {
	switch m := t.Model.(type) {
	case Fences:
		return walk(m.system(), t.Steps)
	case Votes:
		return walk(m.system(), t.Steps)
	case Again:
		return walk(m.system(), t.Steps)
	case Ballots:
		return walk(m.system(), t.Steps)
	case Floor:
		return walk(m.system(), t.Steps)
	case Handover:
		return walk(m.system(), t.Steps)
	case Session:
		return walk(m.system(), t.Steps)
	}
	return ""
}

// walk follows steps from the initial states, and returns what is wrong then.
func walk[S comparable](sys system[S], steps []Step) string {
	at := map[S]bool{}
	for _, s := range sys.init {
		at[s] = true
	}
	for _, st := range steps {
		to := map[S]bool{}
		for s := range at {
			sys.next(s, func(by Step, n S) {
				if by == st {
					to[n] = true
				}
			})
		}
		at = to
	}
	for s := range at {
		if why := sys.wrong(s); why != "" {
			return why
		}
	}
	return ""
}
