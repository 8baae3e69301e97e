// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/verify/internal/page"
)

var (
	seed   = flag.Uint64("seed", 0, "play this seed only, and print its trace with -v")
	story  = flag.String("story", "", "play this story only, in the same way")
	kind   = flag.String("kind", "", "play this kind of schedule only")
	seeds  = flag.Int("seeds", defaultSeeds, "how many seeds TestSeeds plays")
	first  = flag.Uint64("first", 1, "the first of them")
	into   = flag.String("into", "", "write the summary of TestSeeds into this document")
	enough = flag.Int("enough", 3, "stop after so many seeds with broken promises")
)

// play runs one plan in its own bubble.
func play(t *testing.T, p *Plan, v *Variant) (r *Report) {
	defer func() {
		if e := recover(); e != nil { // a goroutine leaked, or all are blocked
			t.Errorf("seed %d: %v", p.Seed, e)
			panic(e)
		}
	}()
	synctest.Test(t, func(*testing.T) { r = Play(p, v) })
	return r
}

// failOn fails the test if promises were broken, and says how to reproduce it. A second run injects the same faults, but does not
// always give the same history, so the trace is kept.
func failOn(t *testing.T, r *Report) {
	t.Helper()
	if len(r.Violations) == 0 {
		return
	}
	trace := "cannot write the trace: "
	if f, err := os.CreateTemp("", fmt.Sprintf("simulate-%d-*.txt", r.Plan.Seed)); err != nil {
		trace += err.Error()
	} else {
		_, err = fmt.Fprintf(f, "%v\n%v", r, r.trace)
		trace = fmt.Sprint("the trace: ", f.Name(), " ", errors.Join(err, f.Close()))
	}
	again := fmt.Sprintf("TestSeed -seed=%d -kind=%q -v -count=20", r.Plan.Seed, r.Plan.Scenario)
	if r.Plan.Story != "" {
		again = fmt.Sprintf("TestSeed -story=%q -v", r.Plan.Story)
	}
	t.Errorf("%v\ngo test ./verify/simulate -run %s\n%s", r, again, trace)
}

// TestSeed plays one seed, or a story, and prints its trace.
func TestSeed(t *testing.T) {
	p := storyPlan(*story)
	switch {
	case *seed != 0:
		p = NewPlan(*seed, *kind)
	case *story == "":
		t.Skip("no -seed")
	}
	r := play(t, p, nil)
	failOn(t, r)
	if len(r.Violations) == 0 {
		t.Logf("%v\n%v", r, r.trace)
	}
}

// TestSeeds plays many seeds.
func TestSeeds(t *testing.T) {
	if *seed != 0 || *story != "" {
		t.Skip("one -seed")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // it took a third of the time
	if testing.Short() {
		*seeds = min(*seeds, 200)
	}
	begun := time.Now()
	var next, bad atomic.Int64
	var mu sync.Mutex
	var all []*Report
	t.Run("all", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for {
					n := next.Add(1) - 1
					if n >= int64(*seeds) || bad.Load() >= int64(*enough) {
						return
					}
					r := play(t, NewPlan(*first+uint64(n), *kind), nil)
					if len(r.Violations) > 0 {
						bad.Add(1)
					}
					failOn(t, r)
					r.trace, r.Plan.Faults = nil, nil // which take most of the memory
					mu.Lock()
					all = append(all, r)
					mu.Unlock()
				}
			})
		}
	})
	text := table(all)
	t.Logf("%d seeds\n%s", len(all), text)
	lone, entered := 0, 0
	for _, r := range all {
		if r.Plan.Lone {
			lone, entered = lone+1, entered+r.Entered
		}
	}
	t.Logf("with one store alone, in %d seeds: %d holds began with a message", lone, entered)
	if lone >= 10 && entered == 0 {
		t.Error("no waiter ever entered on a message")
	}
	if *into != "" {
		head := fmt.Sprintf("%d seeds from %d on, in %v (%s):", len(all), *first, time.Since(begun).Round(time.Second), time.Now().UTC().Format(time.DateOnly)+", "+runtime.Version())
		if err := page.Write(*into, "simulate", head+"\n\n"+text); err != nil {
			t.Error(err)
		}
	}
}

// counts says, for a table, whether a promise must hold, may be broken, and was where it may.
func (r *Report) counts(p Promise) (must, may, broke int) {
	if r.Plan.May[p] == "" {
		return 1, 0, 0
	}
	return 0, 1, min(len(r.Found[p]), 1)
}

// table summarizes many runs in Markdown, with a row for each scenario.
func table(all []*Report) string {
	b := strings.Builder{}
	b.WriteString("| faults | runs | exclusion must hold | broke where it may | fences must rise | fell where they may " +
		"| holds | entered | lost | messages | late writes refused | longest wait after the faults | longest free beside a waiter | violations |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range slices.Concat(scenarios, lones) {
		var n [13]int
		var waited, free time.Duration
		for _, r := range all {
			if r.Plan.Scenario != s.name {
				continue
			}
			holds, may, overlap := r.counts(Exclusion)
			rise, mayFall, fell := r.counts(Fences)
			for i, add := range []int{1, holds, overlap, may, rise, fell, mayFall, r.Holds, r.Entered, r.Lost, r.Messages, r.Refused,
				min(len(r.Violations), 1)} {
				n[i] += add
			}
			waited = max(waited, r.Waited)
			if r.Plan.May[Free] == "" {
				free = max(free, r.Free)
			}
		}
		if n[0] > 0 {
			fmt.Fprintf(&b, "| %s | %d | %d | %d of %d | %d | %d of %d | %d | %d | %d | %d | %d | %v | %v | %d |\n",
				s.name, n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10], n[11], waited.Round(10*time.Millisecond), free, n[12])
		}
	}
	return b.String()
}

// TestSamePlan checks that a seed always gives the same plan.
func TestSamePlan(t *testing.T) {
	for n := range uint64(40) {
		p := NewPlan(n+1, "")
		if again := NewPlan(n+1, p.Scenario); !reflect.DeepEqual(p, again) {
			t.Fatalf("seed %d is\n%+v and\n%+v", n+1, p, again)
		}
	}
}
