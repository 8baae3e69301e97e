// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

// Report is the result of a run.
type Report struct {
	Plan *Plan
	// Violations are broken promises. Overlaps, Falls, WronglyRefused, Stuck and Idle
	// list everything that was seen, also where the plan allows it.
	Violations                      []string
	Overlaps, Falls, WronglyRefused []string
	Stuck, Idle, Unmarked           []string

	Holds, Lost, Messages int
	Entered               int           // holds that began with a message, without a Try
	Unclaimed             int           // those of them that ended without a release, and were never renewed
	Refused               int           // writes that the register refused
	Waited                time.Duration // the longest wait for a turn after the faults
	Free                  time.Duration // the longest time for which a waiter could have had the key
	Digest                string        // of which client held the key when
	trace                 *trace
}

// judge checks what was recorded.
func (w *world) judge() *Report {
	l := w.log
	l.mu.Lock()
	defer l.mu.Unlock()
	w.reg.mu.Lock()
	defer w.reg.mu.Unlock()
	r := &Report{Plan: w.plan, Holds: len(l.holds), Lost: l.lost, Waited: l.waited, Idle: w.idle.found, Free: w.idle.longest, trace: w.trace}
	holds := make([]hold, len(l.holds))
	for i, h := range l.holds {
		holds[i] = *h
		if h.entered {
			r.Entered++
		}
		if h.entered && h.unfinished && !h.claimed {
			r.Unclaimed++
		}
	}
	r.Messages = w.trace.messages()
	r.Overlaps = overlapping(holds)
	exclusive := w.plan.Exclusion == ""
	r.Falls = falling(holds, exclusive)
	for _, c := range l.stuckAt {
		r.Stuck = append(r.Stuck, fmt.Sprintf("client %d has not acquired the key in the %v since the faults ended", c, w.plan.turnLimit()))
	}
	r.Stuck = append(r.Stuck, l.refused...)
	for _, x := range w.reg.uses {
		if x.accepted {
			continue
		}
		r.Refused++
		if x.valid() {
			r.WronglyRefused = append(r.WronglyRefused, fmt.Sprintf("a write or a read of a valid holder was refused: %v", x.h))
		}
	}
	if exclusive {
		r.Violations = append(r.Violations, r.Overlaps...)
	}
	if w.plan.Fences == "" {
		r.Violations = append(r.Violations, r.Falls...)
		if exclusive {
			r.Violations = append(r.Violations, r.WronglyRefused...)
		}
	}
	if w.plan.Lone {
		r.Unmarked = unmarked(holds)
	}
	if w.plan.Lone && exclusive && w.plan.Fences == "" {
		r.Violations = append(r.Violations, r.Unmarked...)
	}
	if w.plan.Progress == "" {
		r.Violations = append(r.Violations, r.Stuck...)
	}
	if w.plan.Free == "" {
		r.Violations = append(r.Violations, r.Idle...)
	}
	r.Digest = digest(holds)
	return r
}

func (h hold) String() string {
	how := ""
	switch {
	case h.shared:
		how = " to read"
	case h.down != 0:
		how = fmt.Sprintf(" to write until %.6f", h.down.Seconds())
	}
	return fmt.Sprintf("client %d%s, owner %s, fence %d, %.6f to %.6f", h.client, how, short(h.owner), h.fence, h.From.Seconds(), h.To.Seconds())
}

// entries converts holds for internal/history.
func entries(holds []hold) (all []history.Hold) {
	at := func(d time.Duration) time.Time { return time.Unix(0, int64(d)).UTC() }
	for _, h := range holds {
		e := history.Hold{Key: key, Owner: h.String(), Fence: h.fence, Shared: h.shared, From: at(h.From), To: at(h.To), Asked: h.asked, Granted: h.granted}
		if h.down != 0 {
			e.Down = at(h.down)
		}
		all = append(all, e)
	}
	return all
}

// overlapping finds two holders at one instant, unless both only read.
func overlapping(holds []hold) []string { return lines(history.CheckExclusion(entries(holds))) }

// falling finds a fence that is not above that of a hold which was granted before
// this one was requested, or, if holds exclude each other, before this one was granted.
func falling(holds []hold, exclusive bool) []string {
	found := lines(history.CheckFences(entries(holds)))
	if exclusive {
		valid := slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.To <= h.From })
		found = append(found, lines(history.CheckRise(entries(valid)))...)
	}
	return found
}

// unmarked finds a holder that was not told that the one before it did not finish. Readers neither leave
// a mark nor take it away; of one that downgraded nobody can say whether it still was a writer.
func unmarked(holds []hold) (found []string) {
	writers := slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.shared })
	slices.SortStableFunc(writers, func(a, b hold) int { return cmp.Compare(a.fence, b.fence) })
	for i := 1; i < len(writers); i++ {
		a, b := writers[i-1], writers[i]
		if a.unfinished && a.down == 0 && !b.marked {
			found = append(found, fmt.Sprintf("nobody told %v that %v did not finish", b, a))
		}
	}
	return found
}

// lines returns the findings that an error lists.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
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
