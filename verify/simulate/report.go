// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// Report is the result of a run.
type Report struct {
	Plan       *Plan
	Found      [promises][]string // where each promise was broken, also where the plan allows it
	Violations []string           // where it does not

	Holds, Lost, Messages int
	Entered               int           // holds that began with a message, without a Try
	Refused               int           // writes that the register refused
	Waited                time.Duration // the longest wait for a turn after the faults
	Free                  time.Duration // the longest time for which a waiter could have had the key
	trace                 *trace
}

// judge checks what was recorded.
func (w *world) judge() *Report {
	holds := w.history.Holds()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Report{Plan: w.plan, Found: w.found, Holds: len(holds), Lost: int(w.lost.Load()), Messages: int(w.messages.Load()),
		Refused: len(w.refused), Waited: w.waited, Free: w.idle.longest, trace: w.trace}
	for i := range holds {
		holds[i].Owner = holds[i].Since(w.began) // as the trace says when
	}
	for _, h := range w.holds {
		if h.entered {
			r.Entered++
		}
	}
	r.Found[Exclusion] = history.Overlaps(holds)
	r.Found[Fences] = history.Falls(holds, w.plan.May[Exclusion] == "")
	if w.plan.Lone {
		r.Found[Told] = history.Unreported(holds)
	}
	for _, u := range w.refused {
		if u.valid() {
			r.Found[Register] = append(r.Found[Register], "a write or a read of a valid holder was refused: "+u.Since(w.began))
		}
	}
	for p, found := range r.Found {
		if w.plan.May[p] == "" {
			r.Violations = append(r.Violations, found...)
		}
	}
	return r
}

// String summarizes a run.
func (r *Report) String() string {
	p := *r.Plan
	p.Faults = nil // they are in the trace
	return fmt.Sprintf("%+v\n%d holds, %d of them entered, %d lost, %d messages, %d writes refused; ",
		p, r.Holds, r.Entered, r.Lost, r.Messages, r.Refused) +
		fmt.Sprintf("the last turn came %v after the faults; free beside a waiter for %v\n%s", r.Waited, r.Free, strings.Join(r.Violations, "\n"))
}

// counts says, for a table, whether a promise must hold, may be broken, and was where it may.
func (r *Report) counts(p Promise) (must, may, broke int) {
	if r.Plan.May[p] == "" {
		return 1, 0, 0
	}
	return 0, 1, min(len(r.Found[p]), 1)
}

// Table summarizes many runs in Markdown, with a row for each scenario.
func Table(all []*Report) string {
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
