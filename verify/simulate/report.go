// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
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
	return fmt.Sprintf("%+v\n%d holds, %d of them entered, %d lost, %d messages, %d writes refused; ", p, r.Holds, r.Entered, r.Lost, r.Messages, r.Refused) +
		fmt.Sprintf("the last turn came %v after the faults; free beside a waiter for %v\n%s", r.Waited, r.Free, strings.Join(r.Violations, "\n"))
}

// columns are the columns of the table.
var columns = []struct {
	head string
	of   func(all []*Report) any
}{
	{"runs", func(all []*Report) any { return len(all) }},
	{"exclusion must hold", must(Exclusion)},
	{"broke where it may", broke(Exclusion)},
	{"fences must rise", must(Fences)},
	{"fell where they may", broke(Fences)},
	{"holds", sum(func(r *Report) int { return r.Holds })},
	{"entered", sum(func(r *Report) int { return r.Entered })},
	{"lost", sum(func(r *Report) int { return r.Lost })},
	{"messages", sum(func(r *Report) int { return r.Messages })},
	{"late writes refused", sum(func(r *Report) int { return r.Refused })},
	{"longest wait after the faults", most(func(r *Report) time.Duration { return r.Waited.Round(10 * time.Millisecond) })},
	{"longest free beside a waiter", most(func(r *Report) time.Duration {
		if r.Plan.May[Free] != "" {
			return 0
		}
		return r.Free
	})},
	{"violations", sum(func(r *Report) int { return min(len(r.Violations), 1) })},
}

func sum(of func(*Report) int) func([]*Report) any {
	return func(all []*Report) any {
		n := 0
		for _, r := range all {
			n += of(r)
		}
		return n
	}
}

func most(of func(*Report) time.Duration) func([]*Report) any {
	return func(all []*Report) any {
		var most time.Duration
		for _, r := range all {
			most = max(most, of(r))
		}
		return most
	}
}

func must(p Promise) func([]*Report) any {
	return sum(func(r *Report) int {
		if r.Plan.May[p] == "" {
			return 1
		}
		return 0
	})
}

func broke(p Promise) func([]*Report) any {
	broken := sum(func(r *Report) int {
		if r.Plan.May[p] == "" {
			return 0
		}
		return min(len(r.Found[p]), 1)
	})
	return func(all []*Report) any { return fmt.Sprintf("%v of %v", broken(all), len(all)-must(p)(all).(int)) }
}

// Table summarizes many runs in Markdown, with a row for each scenario.
func Table(all []*Report) string {
	rows := map[string][]*Report{}
	for _, r := range all {
		rows[r.Plan.Scenario] = append(rows[r.Plan.Scenario], r)
	}
	var b strings.Builder
	b.WriteString("| faults |")
	for _, c := range columns {
		b.WriteString(" " + c.head + " |")
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, name := range Scenarios() {
		if rows[name] == nil {
			continue
		}
		fmt.Fprintf(&b, "| %s |", name)
		for _, c := range columns {
			fmt.Fprintf(&b, " %v |", c.of(rows[name]))
		}
		b.WriteString("\n")
	}
	return b.String()
}
