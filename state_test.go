// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"slices"
	"testing"
)

func TestStates(t *testing.T) {
	all := []state{held, converting, kept, passing, released, lost, closed}
	if len(all) != int(states) {
		t.Fatalf("%d states here, %d in all", len(all), states)
	}
	ends := []state{passing, released, lost, closed}
	for _, c := range []struct {
		from   state
		stands bool
		to     []state
	}{
		{held, true, append([]state{converting}, ends...)},
		{converting, true, append([]state{held, converting}, ends...)},
		{kept, true, []state{held, released, lost, closed}},
		{passing, false, []state{released}},
		{released, false, nil},
		{lost, false, nil},
		{closed, false, nil},
	} {
		if c.from.stands() != c.stands {
			t.Errorf("state %d stands: %v", c.from, !c.stands)
		}
		for _, to := range all {
			s := c.from
			want := c.from
			ok := slices.Contains(c.to, to)
			if ok {
				want = to
			}
			if got := s.become(to); got != ok || s != want {
				t.Errorf("from %d to %d: %v, and then it is %d", c.from, to, got, s)
			}
		}
	}
}

// An ended lease is never valid again: work under it was stopped.
func TestNothingStandsAgain(t *testing.T) {
	for s := range states {
		for n := range states {
			if next[s][n] && !s.stands() && n.stands() {
				t.Errorf("state %d becomes %d", s, n)
			}
		}
	}
}
