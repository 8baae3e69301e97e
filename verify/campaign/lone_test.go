// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// quickLoneSeeds cover every kind of fault, and have one schedule without faults of
// the server.
var quickLoneSeeds = []uint64{33, 194, 230, 547, 90, 26747, 13416, 11417}

func TestQuickLoneSeedsHaveEveryFault(t *testing.T) {
	have := map[Kind]bool{}
	for _, seed := range quickLoneSeeds {
		for _, k := range GenerateLone(seed).Kinds() {
			have[k] = true
		}
	}
	for _, c := range loneCatalogue {
		if !have[c.kind] {
			t.Errorf("no seed has the fault %q: choose others", c.kind)
		}
	}
}

// Rule: whatever the schedule, every promise of one server whose assumptions it keeps holds.
func TestQuickLoneCampaign(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	checkCampaign(t, Options{Seeds: quickLoneSeeds, Lone: true, Parallel: 8})
}

// Rule: a schedule of one server ends every fault that it begins, a seed always gives
// the same schedule, and every fault occurs, with a node record and without.
func TestLoneSchedules(t *testing.T) {
	count := map[Store]map[Kind]int{Redis: {}, RedisNode: {}}
	const all = 2000
	for seed := range uint64(all) {
		s := GenerateLone(seed)
		if text := s.String(); GenerateLone(seed).String() != text {
			t.Fatalf("seed %d gives another schedule the second time than\n%s", seed, text)
		}
		open := map[string]int{}
		for i, a := range s.Actions {
			if i > 0 && a.At < s.Actions[i-1].At || len(a.Nodes) > 1 {
				t.Fatalf("out of order, or of nodes that are not there:\n%v", s)
			}
			part := a.Part
			a.At, a.By, a.Part = 0, 0, ""
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
			count[s.Store][k]++
		}
	}
	for store, kinds := range count {
		for _, c := range loneCatalogue {
			if kinds[c.kind] < all/2/len(loneCatalogue)*3/4 {
				t.Errorf("%q occurs in %d of %d schedules, %s", c.kind, kinds[c.kind], all, store)
			}
		}
	}
}

func TestWhatALoneScheduleBreaks(t *testing.T) {
	split := act(Split, Begin, 0, 0)
	safe := split
	safe.How = guarded
	for name, c := range map[string]struct {
		actions                 []Action
		alone, recorded, repeat bool // exclusion may break without a record, with one; fences may fall without one
	}{
		"nothing":                     {},
		"restart":                     {actions: []Action{act(RestartEmpty, End, 0, 0)}, alone: true},
		"restart with all its data":   {actions: []Action{act(RestartAOF, End, 0, 0)}},
		"forward":                     {actions: []Action{act(ClockForward, Begin, time.Minute, 0)}, alone: true, recorded: true},
		"back":                        {actions: []Action{act(ClockBack, Begin, -time.Second, 0)}},
		"back, and forgets":           {actions: []Action{act(ClockBack, Begin, -time.Second, 0), act(Flush, Begin, 0, 0)}, alone: true, repeat: true},
		"an old master that goes on":  {actions: []Action{split}, alone: true, recorded: true},
		"an old master that stops":    {actions: []Action{safe}, alone: true},
		"partitions and stopped ones": {actions: []Action{act(CutAll, Begin, 0, 0), act(StopNode, Begin, 0, 0), act(ClientStop, Begin, 0)}},
	} {
		for store, may := range map[Store]bool{Redis: c.alone, RedisNode: c.recorded} {
			s := Schedule{Store: store, Actions: c.actions}
			if got := len(s.MayOverlap()) > 0; got != may {
				t.Errorf("%s, %s: exclusion may break: %q", name, store, s.MayOverlap())
			}
			if got := len(s.MayRepeat()) > 0; got != (c.repeat && store == Redis) {
				t.Errorf("%s, %s: fences may fall: %q", name, store, s.MayRepeat())
			}
		}
	}
}
