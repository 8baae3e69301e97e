// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// String summarizes a run.
func (r *Report) String() string {
	p := r.Plan
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: %d nodes, %d clients, TTLs %v, client clocks %v, node clocks %v, rates %v, faults for %v, %+v, then unused for %v\n",
		p.Seed, p.Scenario, p.Nodes, len(p.TTLs), p.TTLs, p.Skews, p.Offsets, p.Rates, p.FaultsEnd, p.Network, p.Gaps)
	fmt.Fprintf(&b, "exclusion %s; fences %s; progress %s\n", must(p.May[Exclusion]), must(p.May[Fences]), must(p.May[Progress]))
	fmt.Fprintf(&b, "%d holds, %d of them entered (%d ended unclaimed), %d lost, %d messages, %d writes refused; the last turn came %v after the faults; free beside a waiter for %v\n",
		r.Holds, r.Entered, r.Unclaimed, r.Lost, r.Messages, r.Refused, r.Waited, r.Free)
	for _, s := range r.Violations {
		fmt.Fprintf(&b, "VIOLATION %s\n", s)
	}
	return b.String()
}

func must(why string) string {
	if why == "" {
		return "must hold"
	}
	return "may break (" + why + ")"
}

// Table summarizes many runs in Markdown, with a row for each scenario.
func Table(all []*Report) string {
	type row struct {
		runs, must, broke, mustF, fell int
		holds, entered, lost           int
		messages, refused              int
		waited, free                   time.Duration
		violations                     int
	}
	rows := map[string]*row{}
	for _, r := range all {
		x := rows[r.Plan.Scenario]
		if x == nil {
			x = &row{}
			rows[r.Plan.Scenario] = x
		}
		x.runs++
		if r.Plan.May[Exclusion] == "" {
			x.must++
		} else if len(r.Found[Exclusion]) > 0 {
			x.broke++
		}
		if r.Plan.May[Fences] == "" {
			x.mustF++
		} else if len(r.Found[Fences]) > 0 {
			x.fell++
		}
		x.holds += r.Holds
		x.entered += r.Entered
		x.lost += r.Lost
		x.messages += r.Messages
		x.refused += r.Refused
		x.waited = max(x.waited, r.Waited)
		if r.Plan.May[Free] == "" {
			x.free = max(x.free, r.Free)
		}
		if len(r.Violations) > 0 {
			x.violations++
		}
	}
	var b strings.Builder
	b.WriteString("| faults | runs | exclusion must hold | broke where it may | fences must rise | fell where they may | holds | entered | lost | messages | late writes refused | longest wait after the faults | longest free beside a waiter | violations |\n")
	b.WriteString("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	names := Scenarios()
	for _, name := range slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Compare(slices.Index(names, a), slices.Index(names, b))
	}) {
		x := rows[name]
		if x == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %d | %d of %d | %d | %d of %d | %d | %d | %d | %d | %d | %v | %v | %d |\n",
			name, x.runs, x.must, x.broke, x.runs-x.must, x.mustF, x.fell, x.runs-x.mustF,
			x.holds, x.entered, x.lost, x.messages, x.refused, x.waited.Round(10*time.Millisecond), x.free, x.violations)
	}
	return b.String()
}
