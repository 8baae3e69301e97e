// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// quickSeeds cover every kind of fault.
var quickSeeds = []uint64{11957, 19798, 12554, 12785, 2717, 4703, 6792, 4190}

func TestQuickSeedsHaveEveryFault(t *testing.T) {
	have := map[Kind]bool{}
	for _, seed := range quickSeeds {
		for _, k := range Generate(seed).Kinds() {
			have[k] = true
		}
	}
	for _, c := range catalogue {
		if !have[c.kind] {
			t.Errorf("no seed has the fault %q: choose others", c.kind)
		}
	}
}

// Rule: whatever the schedule, every promise whose assumptions it keeps holds.
func TestQuickCampaign(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	checkCampaign(t, Options{Seeds: quickSeeds})
}

// checkCampaign runs schedules, and fails on a violation in any of them.
func checkCampaign(t *testing.T, o Options) {
	t.Helper()
	rep, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range rep.Skipped {
		t.Log(why)
	}
	for _, why := range rep.Broken {
		t.Error(why)
	}
	for _, o := range rep.Outcomes {
		t.Logf("seed %d: %+v in %v, back after %v, stalled for %v, free for %v", o.Schedule.Seed, o.Counts, o.Took, o.Back, o.Stalled, o.Open)
	}
	for i, o := range rep.Violations() {
		var text strings.Builder
		o.Summary(&text)
		t.Errorf("the history is in %s\n%s", rep.Histories[i], text.String())
	}
	if n := len(rep.Outcomes) + len(rep.Skipped) + len(rep.Broken); n != len(o.Seeds) {
		t.Errorf("%d of %d seeds are in the report", n, len(o.Seeds))
	}
}
