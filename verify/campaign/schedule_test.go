// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/verify/engines"
)

// Rule: whatever a schedule breaks it mends, so that progress can be asked for, a seed always gives the same schedule, and every
// fault comes to be in turn.
func TestSchedules(t *testing.T) {
	const all = 2000
	for _, of := range slices.Concat([]Store{Redlock, Redis, RedisNode}, engines.Kinds, engines.Replicated) {
		t.Run(string(of), func(t *testing.T) {
			count, seen := map[Kind]int{}, map[string]uint64{}
			for seed := range uint64(all) {
				s := Generate(of, seed)
				text := s.String()
				if again := Generate(of, seed).String(); again != text {
					t.Fatalf("seed %d gives\n%s\nand then\n%s", seed, text, again)
				}
				_, text, _ = strings.Cut(text, ": ")
				if other, ok := seen[text]; ok && of == Redlock && seed < 500 {
					t.Errorf("seeds %d and %d give the same schedule", other, seed)
				}
				seen[text] = seed
				checkSchedule(t, s)
				for _, k := range s.Kinds() {
					count[k]++
				}
			}
			from := catalogueOf(of)
			for _, c := range from {
				if count[c.kind] < all/len(from)*3/4 {
					t.Errorf("%q occurs in %d of %d schedules", c.kind, count[c.kind], all)
				}
			}
		})
	}
}

// once lists the faults that do not end.
var once = []Kind{Flush, Delete, ClockForward, ClockBack, ResetLinks, Break, Revoke, Terminate, Switch, Reshard}

func checkSchedule(t *testing.T, s *Schedule) {
	t.Helper()
	if len(s.Actions) == 0 || s.Store == Redlock && s.Actions[len(s.Actions)-1].At > time.Duration(faultsLast+500)*time.Millisecond {
		t.Fatalf("the faults are none, or last too long:\n%v", s)
	}
	open, down := map[string]int{}, 0
	var busy [nodes]Kind // of Redlock, by what is under way there
	for i, a := range s.Actions {
		if i > 0 && a.At < s.Actions[i-1].At || slices.ContainsFunc(a.Nodes, func(n int) bool { return n >= s.on() }) {
			t.Fatalf("out of order, or of nodes that are not there:\n%v", s)
		}
		by := map[Part]int{Begin: 1, End: -1}[a.Part]
		if s.engine() && a.Client < 0 && a.Kind != CutAll && !slices.Contains(once, a.Kind) {
			if down += by; down > 1 {
				t.Fatalf("two servers have a fault at once:\n%v", s)
			}
		}
		for _, n := range a.Nodes {
			switch {
			case s.Store != Redlock || a.Client >= 0: // its links
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
		a.At, a.By, a.Part = 0, 0, ""
		open[a.String()] += by
	}
	for what, n := range open {
		if n != 0 && !slices.ContainsFunc(once, func(k Kind) bool { return strings.Contains(what, string(k)) }) {
			t.Fatalf("%q does not end:\n%v", what, s)
		}
	}
}

func act(k Kind, p Part, by time.Duration, on ...int) Action {
	return Action{Kind: k, Part: p, Nodes: on, Client: -1, By: by}
}

// Rule: of each store a schedule knows whether two may hold a key, and whether fences may fall.
func TestWhatAScheduleBreaks(t *testing.T) {
	split := act(Split, Begin, 0, 0)
	safe := split
	safe.How = guarded
	one, alone := []Store{Redis, RedisNode}, []Store{Redis}
	five := []Store{Redlock}
	for name, c := range map[string]struct {
		of              []Store
		actions         []Action
		overlap, repeat []Store // where that may be
	}{
		"nothing":                        {of: slices.Concat(five, one)},
		"restarts":                       {of: five, actions: []Action{act(RestartEmpty, End, 0, 1), act(AllEmpty, End, 0, 2), act(Flush, Begin, 0, 3)}},
		"writes refused":                 {of: five, actions: []Action{act(RefuseWrites, Begin, 0, 1)}},
		"forward":                        {of: five, actions: []Action{act(ClockForward, Begin, time.Minute, 1)}, overlap: five},
		"forward while held back":        {of: five, actions: []Action{act(ClockHeldBack, End, time.Minute, 1)}},
		"back":                           {of: five, actions: []Action{act(ClockBack, Begin, -time.Minute, 1), act(Flush, Begin, 0, 2)}},
		"back, and forgets":              {of: five, actions: []Action{act(ClockBack, Begin, -time.Minute, 1), act(Flush, Begin, 0, 1)}, repeat: five},
		"back by little, and forgets":    {of: five, actions: []Action{act(ClockBack, Begin, -time.Second, 1), act(Flush, Begin, 0, 1)}},
		"the lock is deleted":            {of: five, actions: []Action{act(Delete, Begin, 0, 1)}, overlap: five},
		"what it knows is evicted":       {of: five, actions: []Action{act(Evict, Begin, 0, 1)}, overlap: five, repeat: five},
		"a replica that is not promoted": {of: five, actions: []Action{act(Promote, Prepare, 0, 1)}},

		"one restarts":                    {of: one, actions: []Action{act(RestartEmpty, End, 0, 0)}, overlap: alone},
		"one restarts with all its data":  {of: one, actions: []Action{act(RestartAOF, End, 0, 0)}},
		"one forward":                     {of: one, actions: []Action{act(ClockForward, Begin, time.Minute, 0)}, overlap: one},
		"one back":                        {of: one, actions: []Action{act(ClockBack, Begin, -time.Second, 0)}},
		"one back, and forgets":           {of: one, actions: []Action{act(ClockBack, Begin, -time.Second, 0), act(Flush, Begin, 0, 0)}, overlap: alone, repeat: alone},
		"an old master that goes on":      {of: one, actions: []Action{split}, overlap: one},
		"an old master that stops":        {of: one, actions: []Action{safe}, overlap: alone},
		"one with partitions and stopped": {of: one, actions: []Action{act(CutAll, Begin, 0, 0), act(StopNode, Begin, 0, 0), act(ClientStop, Begin, 0)}},
	} {
		for _, of := range c.of {
			s := Schedule{Store: of, Actions: c.actions}
			if got := s.MayOverlap(); (len(got) > 0) != slices.Contains(c.overlap, of) {
				t.Errorf("%s, %s: exclusion may break: %q", name, of, got)
			}
			if got := s.MayRepeat(); (len(got) > 0) != slices.Contains(c.repeat, of) {
				t.Errorf("%s, %s: fences may fall: %q", name, of, got)
			}
		}
	}
}
