// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Report is what a run came to.
type Report struct {
	Plan *Plan
	// Violations are broken promises: of what must hold. Overlaps, Falls and
	// Vain are all that was seen of each, also where the plan allows it.
	Violations            []string
	Overlaps, Falls, Vain []string
	Stuck                 []string

	Holds, Lost, Messages int
	Refused               int           // writes that the register refused
	Waited                time.Duration // the longest wait for a turn after the faults
	Digest                string        // of who held the key when
	trace                 *trace
}

// judge looks at what was recorded.
func (w *world) judge() *Report {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	w.reg.mu.Lock()
	defer w.reg.mu.Unlock()
	r := &Report{Plan: w.plan, Holds: len(l.holds), Lost: l.lost, Waited: l.waited, trace: w.trace}
	holds := make([]hold, len(l.holds))
	for i, h := range l.holds {
		holds[i] = *h
	}
	r.Messages = w.trace.messages()
	r.Overlaps = overlapping(holds)
	exclusive := w.plan.Exclusion == ""
	r.Falls = falling(holds, exclusive)
	for _, c := range l.stuckAt {
		r.Stuck = append(r.Stuck, fmt.Sprintf("client %d has waited for its turn for %v since the faults ended", c, w.plan.patience()))
	}
	for _, x := range w.reg.writes {
		if x.accepted {
			continue
		}
		r.Refused++
		if x.at >= x.h.From && x.at < x.h.To {
			r.Vain = append(r.Vain, fmt.Sprintf("a write of a valid holder was refused: %v", x.h))
		}
	}
	if exclusive {
		r.Violations = append(r.Violations, r.Overlaps...)
	}
	if w.plan.Fences == "" {
		r.Violations = append(r.Violations, r.Falls...)
		if exclusive {
			r.Violations = append(r.Violations, r.Vain...)
		}
	}
	if w.plan.Progress == "" {
		r.Violations = append(r.Violations, r.Stuck...)
	}
	r.Digest = digest(holds)
	return r
}

func (h hold) String() string {
	return fmt.Sprintf("client %d, owner %s, fence %d, %.6f to %.6f", h.client, short(h.owner), h.fence, h.From.Seconds(), h.To.Seconds())
}

// overlapping finds two holders at one instant.
func overlapping(holds []hold) (found []string) {
	holds = slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.To <= h.From })
	slices.SortStableFunc(holds, func(a, b hold) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.granted, b.granted))
	})
	for i := range holds {
		if i == 0 {
			continue
		}
		longest := slices.MaxFunc(holds[:i], func(a, b hold) int { return cmp.Compare(a.To, b.To) })
		if h := holds[i]; h.From < longest.To {
			found = append(found, fmt.Sprintf("two holders for %v: %v, and %v", min(longest.To, h.To)-h.From, longest, h))
		}
	}
	return found
}

// falling finds a fence that is not above that of every hold which was granted
// before this one was asked for; or, when holds exclude each other, before this
// one was granted.
func falling(holds []hold, exclusive bool) (found []string) {
	seen := map[uint64]hold{}
	for i, b := range holds { // in the order of the grants
		if a, ok := seen[b.fence]; ok {
			found = append(found, fmt.Sprintf("one fence for two: %v, and %v", a, b))
		}
		seen[b.fence] = b
		for _, a := range holds[:i] {
			later := a.granted < b.asked || exclusive && a.From < a.To && b.From < b.To
			if later && b.fence < a.fence {
				found = append(found, fmt.Sprintf("the fence falls: %v, and after it %v", a, b))
				break
			}
		}
	}
	return found
}

// digest is the same for histories in which the same clients held the key at the
// same times.
func digest(holds []hold) string {
	sum := uint64(14695981039346656037) // FNV-1a
	for _, h := range holds {
		for _, v := range []int64{int64(h.client), int64(h.From), int64(h.To)} {
			sum = (sum ^ uint64(v)) * 1099511628211
		}
	}
	return fmt.Sprintf("%016x", sum)
}
