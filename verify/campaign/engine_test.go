// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// Rule: without a safeguard the campaign of an engine finds a violation, in one of a few runs of a schedule in which
// hasp as it is has none.
func TestBrokenEngineVariantsAreCaught(t *testing.T) {
	testserver.Require(t, "etcd")
	t.Parallel()
	checkVariants(t, engineVariants)
}

// failovers is of tests that take minutes, and are in make verify.
func failovers(t *testing.T) {
	t.Helper()
	if os.Getenv("HASP_TEST_FAILOVERS") == "" {
		t.Skip("SKIPPED: HASP_TEST_FAILOVERS is not set")
	}
	testserver.Require(t, "redis")
}

// Rule: without a safeguard a failover loses a lease that was granted last, and the campaign finds it.
func TestBrokenReplicaVariantsAreCaught(t *testing.T) {
	failovers(t)
	t.Parallel()
	checkVariants(t, replicaVariants)
}

// Rule: a failover that loses a lease makes two holders, as the source of Redlock describes it, and the fence of the second
// is the larger one: a register that compares fences loses nothing.
func TestFailoverMakesTwoHolders(t *testing.T) {
	failovers(t)
	for _, k := range []engines.Kind{engines.Sentinel, engines.Cluster} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			s := lagging
			s.Seed, s.Store = 1, k
			checkTwoHolders(t, s)
		})
	}
}

// mostRuns bounds the search for a run that shows what a schedule can show: on a slow machine two in five do.
const mostRuns = 20

// checkTwoHolders searches runs of a schedule until two hold a key at once, and a late write is refused by its fence.
func checkTwoHolders(t *testing.T, s Schedule) {
	t.Helper()
	shown := false
	for range mostRuns {
		of := s
		of.Actions = slices.Clone(s.Actions)
		o, err := perform(t.Context(), "", &of)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		o.Summary(&text)
		t.Logf("%+v in %v, both for %v, no grant for %v: %s", o.Counts, o.Took, o.Both, o.Gap, text.String())
		if o.Violated() {
			t.Error("something else is wrong")
		}
		if shown = o.Both > 0 && o.Counts.Stale > 0; shown {
			break
		}
		s.Seed++
	}
	if !shown {
		t.Error("two holders, and a late write that is refused, were not to be seen")
	}
}

// A holder that goes on without the lease that was taken away is found, unless the machine or another fault can be the reason.
func TestUntold(t *testing.T) {
	fenced := func(r record) record { r.Fence = 7; return r }
	hold := func(end int, lost bool) []record {
		more := player.Event{What: player.Ended, Lost: lost}
		if lost {
			more.Closed = msAt(end)
		}
		return []record{ev(1, 0, player.Event{What: player.Asked}), fenced(ev(1, 0, player.Event{What: player.Granted})), fenced(ev(1, 100, player.Event{What: player.Renewed})), fenced(ev(1, end, more))}
	}
	stood := hold(1900, true)
	stood[3].Stood = time.Second
	beside := func(more player.Event) []record { // what another client says before and after
		return slices.Concat([]record{ev(2, 0, player.Event{What: player.Asked})}, hold(1300, true), []record{ev(2, 1400, more)})
	}
	cut := injected{Action: Action{Kind: Partition, Part: Begin, Client: 1, Nodes: []int{0}}, from: msAt(300), to: msAt(300)}
	for name, c := range map[string]struct {
		records  []record
		store    engines.Kind
		injected []injected
		want     string
	}{
		"told at once":           {records: hold(1010, true), store: engines.Etcd},
		"told late":              {records: hold(1300, true), store: engines.Etcd, want: "went on for 300ms and not at most 250ms"},
		"never told":             {records: hold(2500, false), store: engines.Etcd, want: "told: false"},
		"the machine stalled":    {records: stood, store: engines.Etcd},
		"another client stalled": {records: beside(player.Event{What: player.Waiting, Stood: time.Second, Slow: time.Second}), store: engines.Etcd, want: "went on for 300ms and not at most 250ms"},
		"the server stalled":     {records: beside(player.Event{What: player.Waiting, Slow: time.Second}), store: engines.Etcd},
		"by the next renewal":    {records: hold(1300, true), store: engines.MariaDB},
		"after the next renewal": {records: hold(1600, true), store: engines.MariaDB, want: "not at most 583.333333ms"},
		"not renewed yet":        {records: slices.Delete(hold(1300, true), 2, 3), store: engines.Etcd},
		"released before":        {records: hold(900, false), store: engines.Etcd},
		"released at that time":  {records: hold(1100, false), store: engines.Etcd},
		"cut off meanwhile":      {records: hold(1300, true), store: engines.Etcd, injected: []injected{cut}},
		"another's lease":        {records: []record{ev(1, 0, player.Event{What: player.Asked}), ev(1, 0, player.Event{What: player.Granted, Fence: 6}), ev(1, 5000, player.Event{What: player.Ended, Fence: 6})}, store: engines.Etcd},
	} {
		r := &run{s: &Schedule{Store: c.store, MaxTTL: time.Second}, stage: cast(3, c.records...), injected: c.injected,
			ensemble: &ensemble{taken: []takenAway{{"k", 7, msAt(1000)}}}}
		found, _, _ := r.untold(c.records)
		if text := strings.Join(found, "\n"); (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("%s: found %q, want %q", name, text, c.want)
		}
	}
}
