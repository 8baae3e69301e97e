// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
)

// quickSeeds cover every kind of fault of Redlock, and of one Redis, which has a schedule without faults of the server. Of other
// engines they are few: make verify has more, and the engines of three servers.
var quickSeeds = map[Store][]uint64{
	Redlock: {11957, 19798, 12554, 12785, 2717, 4703, 6792, 4190},
	Redis:   {33, 194, 230, 547, 90, 26747, 13416, 11417},

	engines.Etcd:             {1, 2},
	engines.ZooKeeper:        {1, 2},
	engines.Postgres:         {1, 2},
	engines.MariaDB:          {1},
	engines.SQLite:           {1, 2},
	engines.SentinelReplicas: {1},
	engines.ClusterReplicas:  {1},
}

func TestQuickSeedsHaveEveryFault(t *testing.T) {
	for _, of := range []Store{Redlock, Redis} {
		have := map[Kind]bool{}
		for _, seed := range quickSeeds[of] {
			for _, k := range Generate(of, seed).Kinds() {
				have[k] = true
			}
		}
		for _, c := range catalogueOf(of) {
			if !have[c.kind] {
				t.Errorf("%s: no seed has the fault %q: choose others", of, c.kind)
			}
		}
	}
}

// Rule: whatever the schedule, every promise of a store whose assumptions it keeps holds.
func TestQuickCampaigns(t *testing.T) {
	for of, seeds := range quickSeeds {
		t.Run(string(of), func(t *testing.T) {
			requireStore(t, of)
			t.Parallel()
			checkCampaign(t, Options{Seeds: seeds, Of: of, Parallel: map[Store]int{Redis: 8}[of]})
		})
	}
}

// requireStore skips a test where the server is missing: a campaign cannot.
func requireStore(t *testing.T, of Store) {
	t.Helper()
	switch of {
	case engines.SQLite:
	case engines.Etcd:
		testserver.Require(t, "etcd")
	case engines.ZooKeeper:
		testserver.RequireZooKeeper(t)
	case engines.Postgres:
		testserver.RequirePostgres(t)
	case engines.MariaDB:
		testserver.Require(t, "mariadb")
	default:
		testserver.Require(t, "redis")
	}
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
