// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/redis/go-redis/v9/logging"
)

func TestMain(m *testing.M) {
	ClientMain()
	logging.Disable()
	room = make(chan struct{}, 8) // each has a dozen processes that are judged by the clock
	os.Exit(m.Run())
}

// quickSeeds cover every kind of fault of Redlock, and of one Redis, which has a schedule without faults of the server. Of other
// engines they are few: make verify has more, and the engines of three servers.
var quickSeeds = map[Store][]uint64{
	Redlock:   {11957, 19798, 12554, 12785, 2717, 4703, 6792, 4190},
	Redis:     {13416, 11417},
	RedisNode: {33, 194, 230, 547, 90, 26747},

	engines.Etcd:             {1, 2},
	engines.ZooKeeper:        {1, 2},
	engines.Postgres:         {1, 2},
	engines.MariaDB:          {1},
	engines.SQLite:           {1, 2},
	engines.SentinelReplicas: {1},
	engines.ClusterReplicas:  {1},
}

func TestQuickSeedsHaveEveryFault(t *testing.T) {
	for _, stores := range [][]Store{{Redlock}, {Redis, RedisNode}} {
		have := map[Kind]bool{}
		for _, of := range stores {
			for _, seed := range quickSeeds[of] {
				for _, k := range Generate(of, seed).Kinds() {
					have[k] = true
				}
			}
		}
		for _, c := range catalogueOf(stores[0]) {
			if !have[c.kind] {
				t.Errorf("%s: no seed has the fault %q: choose others", stores, c.kind)
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
			checkCampaign(t, Options{Seeds: seeds, Of: of, Parallel: map[Store]int{RedisNode: 6}[of]})
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

func TestReport(t *testing.T) {
	outcome := func(seed uint64, k Kind, v ...Verdict) *Outcome {
		return &Outcome{Schedule: &Schedule{Seed: seed}, Kinds: []Kind{k}, Verdicts: v, Counts: Counts{Locks: 10, BareLosts: 1}}
	}
	rep := &Report{Of: Redlock, Outcomes: []*Outcome{
		outcome(1, Flush, Verdict{Oracle: Exclusion}),
		outcome(2, Flush, Verdict{Oracle: Exclusion, Found: []string{"two holders"}}),
		outcome(3, ClockForward, Verdict{Oracle: Exclusion, May: []string{"a clock"}, Found: []string{"two holders"}}),
		outcome(4, ClockForward, Verdict{Oracle: Exclusion, May: []string{"a clock"}}),
	}, Skipped: []string{"no clock"}}
	rep.Outcomes[1].Schedule.Wired, rep.Outcomes[1].Unknown = true, 3
	if v := rep.Violations(); len(v) != 1 || v[0].Schedule.Seed != 2 {
		t.Errorf("violations: %+v", v)
	}
	var text strings.Builder
	rep.Markdown(&text)
	for _, want := range []string{
		"| one holder at a time, or readers only | **1 of 2** | 1 of 2 |\n\n40 locks", "FLUSHALL: 2; clock of a voting node steps forward: 2 (1).",
		"4 updates lost in a register without fences", "- no clock", "Of 3 keys the history was too long", "In 1 of them the links",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
}

// withProcesses runs f with processes that neither report anything nor end.
func withProcesses(t *testing.T, f func(r *run)) {
	t.Helper()
	_, err := testserver.Perform(t.Context(), func(p *testserver.Program) any {
		r := &run{s: &Schedule{}, t: p, patience: 100 * time.Millisecond, over: 1000}
		r.open(func(int) (*exec.Cmd, player.Job) { return exec.Command("sleep", "1000"), player.Job{} })
		f(r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A client that never gets the lock again is found, and a client that gets it late.
func TestProgressIsJudged(t *testing.T) {
	withProcesses(t, func(r *run) {
		got := func(id int, at Mono) {
			r.stage.Do(func() { r.hear(nil, r.stage.All[id], &player.Event{What: player.Granted, At: at}) })
		}
		got(0, r.over+1)
		got(1, r.over-1) // before the faults had ended
		got(2, r.over.Add(recoveryLimit+time.Second))
		late := strings.Join(r.recover(), "\n")
		for _, want := range []string{"client 2 never", "client 3 had the lock only", "client 4 never"} {
			if !strings.Contains(late, want) {
				t.Errorf("found %q, want %q in it", late, want)
			}
		}
		if strings.Contains(late, "client 1") {
			t.Errorf("found %q: client 1 had it in time", late)
		}
	})
}

// A client that does not end is found.
func TestHangIsFound(t *testing.T) {
	withProcesses(t, func(r *run) {
		r.injectClient(Action{Kind: ClientKill, Part: Begin})
		r.stage.Await(time.Minute, func() bool { return r.stage.All[0].Left })
		if hung := r.stopClients(); len(hung) != clients-1 || !strings.Contains(hung[0], "client 2 hangs") {
			t.Errorf("found %q", hung)
		}
	})
}

// An interrupted campaign ends what it started, and says so.
func TestInterrupted(t *testing.T) {
	testserver.Require(t, "redis")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rep, err := Run(ctx, Options{Seeds: []uint64{1}})
	if err == nil || len(rep.Outcomes) != 0 {
		t.Errorf("got %+v, %v", rep, err)
	}
}
