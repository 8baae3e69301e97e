// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"cmp"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/verify/engines"
)

func TestMain(m *testing.M) {
	WorkerMain()
	os.Exit(m.Run())
}

var (
	lasting = flag.Duration("for", 3*time.Second, "for how long processes are killed and stopped; beyond the default, no store has fewer of them")
	seeded  = flag.Uint64("seed", 0, "of what is drawn; 0: any")
)

// try runs the options on each kind of store. It takes fewer processes for SQLite,
// since many of them delay each other on a machine that is busy with other tests.
func try(t *testing.T, o Options) {
	t.Helper()
	for _, kind := range []engines.Kind{engines.SQLite, engines.Redis} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel() // they mostly wait
			o := o
			o.Store, o.Seed, o.For = engines.Start(t, kind), cmp.Or(*seeded, rand.Uint64()), *lasting
			if kind == engines.SQLite && o.For <= 3*time.Second {
				o.Processes = min(o.Processes, 12)
			}
			out, err := Run(t, o)
			if err != nil {
				t.Fatalf("seed %d: %v", o.Seed, err)
			}
			t.Logf("seed %d: %v", o.Seed, out)
			if o.Kill && out.Killed < o.Faults || o.Stop && out.Stopped < o.Faults {
				t.Errorf("seed %d: fewer than %d faults of a kind", o.Seed, o.Faults)
			}
			for _, f := range out.Found {
				t.Errorf("seed %d: %s", o.Seed, f)
			}
		})
	}
}

// Rule: n slots have n holders at most, each slot one at a time, whichever process is
// killed; and what a killed one held is free after its TTL.
func TestSemaphoreOf64Processes(t *testing.T) {
	try(t, Options{Kind: Semaphore, Processes: 64, TTL: time.Second, Kill: true, Faults: 3})
}

// Rule: LockAll of keys in any order does not deadlock, and what a killed process
// had, of all or some of its keys, is free after its TTL.
func TestLockAllOf32Processes(t *testing.T) {
	try(t, Options{Kind: LockAll, Processes: 32, TTL: time.Second, Kill: true, Faults: 3})
}

// Rule: there is one leader at most at any instant, and the fences of leaders
// rise, whichever process is killed, or stopped for longer than its TTL.
func TestElection(t *testing.T) {
	try(t, Options{Kind: Election, Processes: 8, TTL: time.Second, Kill: true, Stop: true, Faults: 2})
}

// Rule: a writer is alone, whichever process is killed or stopped; later holders learn of a
// writer's death.
func TestReadersAndWriters(t *testing.T) {
	try(t, Options{Kind: ReadWrite, Processes: 16, TTL: time.Second, Kill: true, Stop: true, Faults: 2})
}

// Each oracle notices the fault that it is for, in one of some runs.
func TestFaultsAreFound(t *testing.T) {
	const most = 20
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"one more than the limit": {Options{Kind: Semaphore}, "where the limit is"},
		"one slot for all":        {Options{Kind: Semaphore}, "two have slot 0"},
		"writers share":           {Options{Kind: ReadWrite}, "two holders of"},
		"fences fall":             {Options{Kind: LockAll}, "does not rise"},
		"leases too long":         {Options{Kind: Election, Stop: true, Faults: 2}, "two holders of"},
		"deaths hidden":           {Options{Kind: Election, Kill: true, Faults: 3}, "no later holder learned"},
		"deaths made up":          {Options{Kind: Election}, "and all had"},
		"nothing released":        {Options{Kind: LockAll, Patience: 5 * time.Second}, "after the last fault"},
		"no hints":                {Options{Kind: ReadWrite, TTL: 30 * time.Second}, "stood open"},
		"the dead hold on":        {Options{Kind: Election, Kill: true, Faults: 3, Patience: 5 * time.Second}, "after the last fault"},
	} {
		t.Run(name, func(t *testing.T) { // not in parallel: several have to hold it at once
			var out *Outcome
			for seed := range uint64(most) {
				o := c.o
				o.TTL, o.For = cmp.Or(o.TTL, time.Second), time.Second
				o.Processes, o.Slots, o.Seed, o.broken = 5, 2, seed, name
				kind := engines.SQLite
				if name == "no hints" || o.Kind == Semaphore { // where waiters poll, the slots are empty most of the time
					kind = engines.Redis
				}
				o.Store = engines.Start(t, kind)
				var err error
				if out, err = Run(t, o); err != nil {
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
