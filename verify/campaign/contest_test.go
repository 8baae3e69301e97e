// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
)

var (
	lasting = flag.Duration("for", 3*time.Second, "for how long processes are killed and stopped; beyond the default, no store has fewer of them")
	seeded  = flag.Uint64("seed", 0, "of what is drawn; 0: any")
)

// try runs the options on each kind of store. It takes fewer processes for SQLite,
// since many of them delay each other on a machine that is busy with other tests.
func try(t *testing.T, o contest) {
	t.Helper()
	for _, kind := range []engines.Kind{engines.SQLite, engines.Redis} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they mostly wait
			o := o
			o.store, o.seed, o.lasts = engines.Start(t, kind), cmp.Or(*seeded, rand.Uint64()), *lasting
			if kind == engines.SQLite && o.lasts <= 3*time.Second {
				o.processes = min(o.processes, 12)
			}
			out, err := o.run(t.Context())
			if err != nil {
				t.Fatalf("seed %d: %v", o.seed, err)
			}
			t.Logf("seed %d: %v", o.seed, out)
			if o.kill && out.Killed < o.faults || o.stop && out.Stopped < o.faults {
				t.Errorf("seed %d: fewer than %d faults of a kind", o.seed, o.faults)
			}
			for _, f := range out.Found {
				t.Errorf("seed %d: %s", o.seed, f)
			}
		})
	}
}

// Rule: n slots have n holders at most, each slot one at a time, whichever process is
// killed; and what a killed one held is free after its TTL.
func TestSemaphoreOf64Processes(t *testing.T) {
	try(t, contest{use: semaphore, processes: 64, slots: 5, ttl: time.Second, kill: true, faults: 3})
}

// Rule: LockAll of keys in any order does not deadlock, and what a killed process
// had, of all or some of its keys, is free after its TTL.
func TestLockAllOf32Processes(t *testing.T) {
	try(t, contest{use: lockAll, processes: 32, ttl: time.Second, kill: true, faults: 3})
}

// Rule: there is one leader at most at any instant, and the fences of leaders
// rise, whichever process is killed, or stopped for longer than its TTL.
func TestElection(t *testing.T) {
	try(t, contest{use: election, processes: 8, ttl: time.Second, kill: true, stop: true, faults: 2})
}

// Rule: a writer is alone, whichever process is killed or stopped; later holders learn of a writer's death.
func TestReadersAndWriters(t *testing.T) {
	try(t, contest{use: readWrite, processes: 16, ttl: time.Second, kill: true, stop: true, faults: 2})
}

// contestFaults are what the driver of a client can do without, by name, to show that each oracle notices.
var contestFaults = map[string]broken.Fault{
	"one more than the limit": broken.OneMore,
	"one slot for all":        broken.OneSlot,
	"writers share":           broken.EverybodyShares,
	"fences fall":             broken.FallingFences,
	"leases too long":         broken.TooLong,
	"deaths hidden":           broken.DeathsHidden,
	"deaths made up":          broken.DeathsMadeUp,
	"nothing released":        broken.All(broken.Outliving, broken.NoRelease),
	"no hints":                broken.All(broken.NoHints, broken.NoRetry),
	"the dead hold on":        broken.Outliving,
}

func init() {
	for name, fault := range contestFaults {
		variants["contest, "+name] = &variant{whole: fault}
	}
}

// Each oracle notices the fault that it is for, in one of some runs.
func TestFaultsAreFound(t *testing.T) {
	const most = 20
	for name, c := range map[string]struct {
		o    contest
		want string
	}{
		"one more than the limit": {contest{use: semaphore}, "where the limit is"},
		"one slot for all":        {contest{use: semaphore}, "two have slot 0"},
		"writers share":           {contest{use: readWrite}, "two holders of"},
		"fences fall":             {contest{use: lockAll}, "does not rise"},
		"leases too long":         {contest{use: election, stop: true, faults: 2}, "two holders of"},
		"deaths hidden":           {contest{use: election, kill: true, faults: 3}, "no later holder learned"},
		"deaths made up":          {contest{use: election}, "and all had"},
		"nothing released":        {contest{use: lockAll, patience: 5 * time.Second}, "after the last fault"},
		"no hints":                {contest{use: readWrite, ttl: 30 * time.Second}, "stood open"},
		"the dead hold on":        {contest{use: election, kill: true, faults: 3, patience: 5 * time.Second}, "after the last fault"},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: several have to hold it at once
			var out *contested
			for seed := range uint64(most) {
				o := c.o
				o.ttl, o.lasts = cmp.Or(o.ttl, time.Second), time.Second
				o.processes, o.slots, o.seed, o.broken = 5, 2, seed, "contest, "+name
				kind := engines.SQLite
				if name == "no hints" || o.use == semaphore { // where waiters poll, the slots are empty most of the time
					kind = engines.Redis
				}
				o.store = engines.Start(t, kind)
				var err error
				if out, err = o.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(strings.Join(out.Found, "\n"), c.want) {
					return
				}
			}
			t.Errorf("%v\nfound %q, want one with %q", out, out.Found, c.want)
		})
	}
}
