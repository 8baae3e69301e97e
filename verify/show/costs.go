// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify/engines"
	"github.com/hasplock/hasp/verify/internal/page"
)

const (
	costTTL    = 2 * time.Second // of the leases: ZooKeeper's sessions are short then
	costRounds = 5
	costTime   = 400 * time.Millisecond // of a round, for each engine and figure
)

// candidate is an engine to choose.
type candidate struct {
	title           string
	open            opener
	traits          driver.Traits
	pairs, handoffs []time.Duration // the median of each round
}

func costs(flags *flag.FlagSet) func(*testserver.Program) {
	into := flags.String("into", "", "write the table into this `file`, between the marks that are there")
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
		text := costTable(all)
		fmt.Print(text)
		t.Must(page.Write(*into, "engines", text))
	}
}

// measure makes one round, and returns c.
func (c *candidate) measure(t *testserver.Program) *candidate {
	var clients [2]*engines.Client
	waits := make(chan struct{}, 1)
	for i := range clients {
		conn, err := c.open()
		t.Must(err)
		c.traits = conn.Traits()
		clients[i], err = conn.Client(&hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Waiting {
				select {
				case waits <- struct{}{}:
				default:
				}
			}
		}})
		t.Must(err)
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	c.pairs = append(c.pairs, sample(func() time.Duration {
		begun := time.Now()
		lease, err := lock(t, clients[0], "alone")
		t.Must(err)
		t.Must(lease.Release())
		return time.Since(begun)
	}))
	c.handoffs = append(c.handoffs, sample(func() time.Duration {
		slices.Reverse(clients[:])
		return handoff(t, clients, waits)
	}))
	return c
}

func lock(t *testserver.Program, c *engines.Client, key string) (*hasp.Lease, error) {
	return c.Mutex(key, &hasp.LockOptions{TTL: costTTL}).Lock(t.Context())
}

// sample returns the median of what f measures, without the first few, which connect.
func sample(f func() time.Duration) time.Duration {
	const warm = 4
	var all []time.Duration
	for begun := time.Now(); len(all) < 2*warm || time.Since(begun) < costTime; {
		all = append(all, f())
	}
	return median(all[warm:])
}

func median(all []time.Duration) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// handoff returns how long after the first client begins a release the other client has the key.
func handoff(t *testserver.Program, clients [2]*engines.Client, waits <-chan struct{}) time.Duration {
	lease, err := lock(t, clients[0], "both")
	t.Must(err)
	select {
	case <-waits:
	default:
	}
	var next *hasp.Lease
	var failed error
	var granted time.Time
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		next, failed = lock(t, clients[1], "both")
		granted = time.Now()
	}()
	select {
	case <-waits:
	case <-ended:
	}
	time.Sleep(2 * time.Millisecond) // until it listens, too
	begun := time.Now()
	err = lease.Release()
	<-ended
	t.Must(errors.Join(err, failed))
	t.Must(next.Release())
	return granted.Sub(begun)
}

func costTable(all []*candidate) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Measured in one run on %d cores, all on one machine, with files in memory (%s): add the round trips of your network, and the syncs of your disk.\n\n", runtime.NumCPU(), runtime.Version())
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
