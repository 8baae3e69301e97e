// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "testing"

// pair is a toy: two counters that differ by name only.
type pair [2]int

func toy(top, bad int) system[pair] {
	return system[pair]{
		init: []pair{{0, 0}},
		next: func(s pair, emit func(Step, pair)) {
			for i := range s {
				if s[i] < top {
					n := s
					n[i]++
					emit(Step{Act: Tick, Node: i, Value: n[i]}, n)
				}
			}
		},
		canon: func(s pair) pair { return pair{max(s[0], s[1]), min(s[0], s[1])} },
		wrong: func(s pair) string {
			if s == (pair{bad, 1}) {
				return "bad"
			}
			return ""
		},
	}
}

// A search visits each state once, up to the names, and says so when it stops early.
func TestSearchCounts(t *testing.T) {
	if r := search(toy(9, -1), 1000); r.States != 55 || r.Depth != 18 || r.Capped || r.Wrong != "" {
		t.Errorf("%+v, want 55 states to depth 18", r)
	}
	if r := search(toy(9, -1), 20); !r.Capped || r.States < 20 || r.States > 30 {
		t.Errorf("%+v, want a search that stopped at 20 states", r)
	}
}

// What is found comes with a shortest way, on which names do not change.
func TestSearchFindsShortest(t *testing.T) {
	for _, limit := range []int{1000, 10} {
		r := search(toy(9, 3), limit)
		if r.Wrong != "bad" || len(r.Steps) != 4 {
			t.Fatalf("with at most %d states: %+v, want 4 steps", limit, r)
		}
		var s pair
		for _, st := range r.Steps {
			if s[st.Node]++; s[st.Node] != st.Value {
				t.Errorf("step %v leads to %v", st, s)
			}
		}
	}
}
