// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestASeedGivesItsScheduleAgain(t *testing.T) {
	seen := map[string]uint64{}
	for seed := range uint64(500) {
		text := Generate(seed).String()
		if again := Generate(seed).String(); again != text {
			t.Fatalf("seed %d gives\n%s\nand then\n%s", seed, text, again)
		}
		_, text, _ = strings.Cut(text, ": ")
		if other, ok := seen[text]; ok {
			t.Errorf("seeds %d and %d give the same schedule", other, seed)
		}
		seen[text] = seed
	}
}

// Rule: whatever a schedule breaks it mends, so that progress can be asked for,
// and every fault comes to be in turn.
func TestSchedules(t *testing.T) {
	count := map[Kind]int{}
	for seed := range uint64(2000) {
		s := Generate(seed)
		if len(s.Actions) == 0 || s.Actions[len(s.Actions)-1].At > time.Duration(faultsLast+500)*time.Millisecond {
			t.Fatalf("the faults are none, or last too long:\n%v", s)
		}
		open := map[string]int{}
		var busy [nodes]Kind // by what is under way there
		for i, a := range s.Actions {
			for _, n := range a.Nodes {
				switch {
				case a.Client >= 0: // its links
				case a.Part == End:
					busy[n] = ""
				case busy[n] != "" && busy[n] != a.Kind: // some begin twice
					t.Fatalf("%v during %q:\n%v", a, busy[n], s)
				case slices.ContainsFunc(s.Actions[i:], func(b Action) bool {
					return b.Kind == a.Kind && b.Part == End && slices.Equal(b.Nodes, a.Nodes)
				}):
					busy[n] = a.Kind
				}
			}
			if i > 0 && a.At < s.Actions[i-1].At {
				t.Fatalf("out of order:\n%v", s)
			}
			a.At, a.By = 0, 0
			part := a.Part
			a.Part = ""
			switch part {
			case Begin:
				open[a.String()]++
			case End:
				open[a.String()]--
			}
		}
		for what, n := range open {
			if n != 0 && !slices.ContainsFunc([]Kind{Flush, Delete, ClockForward, ClockBack, ResetLinks}, func(k Kind) bool { return strings.Contains(what, string(k)) }) {
				t.Fatalf("%q does not end:\n%v", what, s)
			}
		}
		for _, k := range s.Kinds() {
			count[k]++
		}
	}
	for _, c := range catalogue {
		if count[c.kind] < 2000/len(catalogue)*3/4 {
			t.Errorf("%q occurs in %d of 2000 schedules", c.kind, count[c.kind])
		}
	}
}

func act(k Kind, p Part, by time.Duration, on ...int) Action {
	return Action{Kind: k, Part: p, Nodes: on, Client: -1, By: by}
}

func TestWhatASchedulesBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		actions         []Action
		overlap, repeat bool
	}{
		"nothing":                        {},
		"restarts":                       {actions: []Action{act(RestartEmpty, End, 0, 1), act(AllEmpty, End, 0, 2), act(Flush, Begin, 0, 3)}},
		"writes refused":                 {actions: []Action{act(RefuseWrites, Begin, 0, 1)}},
		"forward":                        {actions: []Action{act(ClockForward, Begin, time.Minute, 1)}, overlap: true},
		"forward while held back":        {actions: []Action{act(ClockHeldBack, End, time.Minute, 1)}},
		"back":                           {actions: []Action{act(ClockBack, Begin, -time.Minute, 1), act(Flush, Begin, 0, 2)}},
		"back, and forgets":              {actions: []Action{act(ClockBack, Begin, -time.Minute, 1), act(Flush, Begin, 0, 1)}, repeat: true},
		"back by little, and forgets":    {actions: []Action{act(ClockBack, Begin, -time.Second, 1), act(Flush, Begin, 0, 1)}},
		"the lock is deleted":            {actions: []Action{act(Delete, Begin, 0, 1)}, overlap: true},
		"what it knows is evicted":       {actions: []Action{act(Evict, Begin, 0, 1)}, overlap: true, repeat: true},
		"a replica that is not promoted": {actions: []Action{act(Promote, Prepare, 0, 1)}},
	} {
		s := Schedule{Store: Redlock, Actions: c.actions}
		if got := len(s.MayOverlap()) > 0; got != c.overlap {
			t.Errorf("%s: exclusion may break: %v", name, s.MayOverlap())
		}
		if got := len(s.MayRepeat()) > 0; got != c.repeat {
			t.Errorf("%s: fences may fall: %v", name, s.MayRepeat())
		}
	}
}
