// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

const (
	// overlapTTL is every lock's TTL, and ZooKeeper's session time-out.
	overlapTTL = 3 * time.Second
	// watch is for how long a first holder is watched from the second grant on.
	watch = 10 * time.Second
)

func init() {
	clientMain() // returns at once unless this process was started as one
	shows = append(shows, show{"overlap", "for how long two clients believe that they hold one key, when the first is cut off or stopped, or the servers' clock is stepped: of hasp, and of the locks that people use today", overlaps})
}

func overlaps(flags *flag.FlagSet) func(*testserver.Program) {
	n := flags.Int("n", 5, "how often each lock is measured under each fault")
	side := flags.Int("parallel", 6, "how many runs go on at once")
	only := flags.String("only", "", "the locks whose name contains this `text`")
	into := intoFlag(flags)
	return func(t *testserver.Program) {
		t.Must(testserver.CanStepClocks())
		chosen := slices.DeleteFunc(slices.Clone(subjects), func(s *subject) bool { return !strings.Contains(s.name, *only) })
		begun, all := time.Now(), results{}
		all.measure(t, chosen, *n, *side)
		publish(t, *into, "overlap", heading(*n, *side, time.Since(begun)), all.table(chosen))
		for _, missed := range all.missed(chosen) {
			t.Errorf("MISSED: %s", missed)
		}
	}
}

// results are the outcomes of all runs.
type results map[trial][]outcome

// trial is a lock and what happens to it.
type trial struct {
	*subject
	fault fault
}

// measure does n runs of each subject under each fault, in turn, so that a machine that is slow for a
// while is slow for all of them.
func (a results) measure(t *testserver.Program, chosen []*subject, n, side int) {
	var mu sync.Mutex
	var running sync.WaitGroup
	places := make(chan struct{}, side)
	for i := range n {
		// The fault comes after a renewal or two, and over the runs everywhere between two.
		after := overlapTTL/2 + overlapTTL*time.Duration(i)/time.Duration(n)
		for _, f := range faults {
			for _, s := range chosen {
				if !s.has(f) {
					continue
				}
				places <- struct{}{}
				running.Go(func() {
					defer func() { <-places }()
					d := &duel{trial: trial{s, f}, ttl: overlapTTL, after: after, watch: watch}
					out, err := testserver.Perform(t.Context(), func(t *testserver.Program) outcome { return d.measure(t) })
					if err != nil {
						t.Errorf("%s, %s: %w", s.name, f, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					a[d.trial] = append(a[d.trial], out)
					t.Logf("%s, %s: %+v", s.name, f, out)
				})
			}
		}
	}
	running.Wait()
}

// table is a row for each lock.
func (a results) table(chosen []*subject) string {
	var b strings.Builder
	b.WriteString("| lock | what its holder asks | partition | pause | clock of the server + 1 min |\n|---|---|--:|--:|--:|\n")
	for _, s := range chosen {
		fmt.Fprintf(&b, "| %s | %s |", s.name, s.signal)
		for _, f := range faults {
			fmt.Fprintf(&b, " %s |", cell(a[trial{s, f}]))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// cell is the median and the largest overlap of some runs, in milliseconds.
func cell(runs []outcome) string {
	if len(runs) == 0 {
		return "-"
	}
	over, granted := 0, false
	for _, o := range runs {
		granted = granted || o.granted
		if o.overlap > 0 {
			over++
		}
	}
	switch {
	case !granted:
		return "**0**, refused"
	case over == 0:
		return "**0**"
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(x, y outcome) int { return cmp.Compare(x.overlap, y.overlap) })
	text, most := ms(sorted[len(runs)/2]), ms(sorted[len(runs)-1])
	if most != text {
		text += ", at most " + most
	}
	if over < len(runs) {
		text += fmt.Sprintf(" (in %d of %d)", over, len(runs))
	}
	return text
}

func ms(o outcome) string {
	v := float64(o.overlap) / float64(time.Millisecond)
	switch {
	case o.whole:
		return fmt.Sprintf("all %.0f s", watch.Seconds())
	case v == 0:
		return "0"
	case v < 0.1:
		return "< 0.1"
	case v < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// missed has what overlapped, and must not: hasp, under each fault but a stepped clock.
func (a results) missed(chosen []*subject) (missed []string) {
	for _, s := range chosen {
		for _, f := range []fault{partition, pause} {
			if runs := a[trial{s, f}]; s.exact && slices.ContainsFunc(runs, func(o outcome) bool { return o.overlap > 0 }) {
				missed = append(missed, fmt.Sprintf("%s, overlap under %s, ms: %s, and not 0", s.name, f, cell(runs)))
			}
		}
	}
	return missed
}

// heading says when and how it was measured.
func heading(n, side int, took time.Duration) string {
	load := "of unknown load"
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = "with a load of " + strings.Fields(string(b))[1] // of the last five minutes
	}
	return fmt.Sprintf("%s: %d runs of each, %d at once, in %v, on %d processors %s (%s; %s):",
		time.Now().UTC().Format(time.DateOnly), n, side, took.Round(time.Second), runtime.NumCPU(), load, runtime.Version(), versions())
}

// versions returns the versions of the other libraries.
func versions() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "versions unknown"
	}
	var all []string
	for _, m := range info.Deps {
		for _, name := range []string{"redsync", "redislock", "rueidis", "etcd/client/v3", "go-zookeeper/zk", "go-redis"} {
			if strings.Contains(m.Path, name) {
				all = append(all, strings.TrimPrefix(m.Path, "github.com/")+" "+m.Version)
			}
		}
	}
	return strings.Join(all, ", ")
}
