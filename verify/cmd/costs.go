// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
)

const (
	costTTL    = 2 * time.Second // of the leases: ZooKeeper's sessions are short then
	costRounds = 5
	costTime   = 500 * time.Millisecond // of a round, for each engine and figure
	costHold   = 20 * time.Millisecond  // within which the other client waits, and listens
)

// candidate is an engine to choose.
type candidate struct {
	title           string
	open            opener
	traits          driver.Traits
	pairs, handoffs []time.Duration // the median of each round
}

func costs(flags *flag.FlagSet) func(*testserver.Program) {
	into := intoFlag(flags)
	return func(t *testserver.Program) {
		if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
			was := os.Getenv("TMPDIR")
			t.Must(os.Setenv("TMPDIR", "/dev/shm")) // what a disk takes to sync is its own
			t.Cleanup(func() { _ = os.Setenv("TMPDIR", was) })
		}
		var all []*candidate
		for _, s := range stores {
			if s.title != "" {
				all = append(all, &candidate{title: s.title, open: s.start(place{t, 0, costTTL})})
			}
		}
		for range costRounds {
			for _, c := range all {
				if _, err := testserver.Perform(t.Context(), c.measure); err != nil {
					t.Fatalf("%s: %w", c.title, err)
				}
			}
		}
		head := fmt.Sprintf("Measured in one run on %d cores, all on one machine, with files in memory (%s): add the round trips of your network, and the syncs of your disk.", runtime.NumCPU(), now())
		publish(t, *into, "engines", head, costTable(all))
	}
}

// measure makes one round, and returns c.
func (c *candidate) measure(t *testserver.Program) *candidate {
	const warm = 4 // connects
	alone := (&crowd{waiters: 1, clients: 1, length: costTime, ttl: costTTL, least: 2 * warm}).run(t, c.open)
	both := (&crowd{waiters: 2, clients: 2, length: costTime, ttl: costTTL, least: 2 * warm, hold: costHold}).run(t, c.open)
	t.Must(errors.Join(append(alone.failed, both.failed...)...))
	t.Must(t.Context().Err())
	c.traits, c.pairs, c.handoffs = alone.traits, append(c.pairs, median(alone.pairs[warm:])), append(c.handoffs, median(both.gaps[warm:]))
	return c
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

func costTable(all []*candidate) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| engine | waiting | fences | many readers; semaphores | lock and release, alone | from a release to the next client's grant |\n|---|---|---|---|--:|--:|")
	yes := map[bool]string{true: "yes", false: "no"}
	for _, c := range all {
		waiting := "queue, polled"
		switch {
		case c.traits.Queue == driver.QueueHandoff:
			waiting = "queue, handoff"
		case c.traits.Queue == driver.QueueNone:
			waiting = "no order"
		case c.traits.Tells.Has(driver.TellsFree):
			waiting = "queue, hints"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s; %s | %s | %s |\n", c.title, waiting, yes[c.traits.Fencing], yes[c.traits.Shared], yes[c.traits.Slots],
			short(median(c.pairs)), short(median(c.handoffs)))
	}
	fmt.Fprintln(&b, "\nZooKeeper has semaphores in a layout of their own; Redisson's are types of their own (`redisson.Synchronizers`).")
	return b.String()
}

// short has two digits that mean something.
func short(d time.Duration) string {
	unit := time.Microsecond
	for d >= 100*unit {
		unit *= 10
	}
	return strings.NewReplacer("µs", " µs", "ms", " ms").Replace(d.Round(unit).String())
}
