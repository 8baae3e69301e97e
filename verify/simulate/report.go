// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
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
	holds := make([]history.Hold, len(l.holds))
	for i, h := range l.holds {
		h.Owner = fmt.Sprintf("client %d, owner %s", h.client, short(h.Owner))
		holds[i] = h.Hold
		holds[i].Owner = h.Since(w.began) // as the trace says when
		if h.entered {
			r.Entered++
		}
		if h.entered && h.Cut && !h.claimed {
			r.Unclaimed++
		}
	}
	r.Messages = w.trace.messages()
	r.Overlaps = history.Overlaps(holds)
	exclusive := w.plan.Exclusion == ""
	r.Falls = history.Falls(holds, exclusive)
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
			r.WronglyRefused = append(r.WronglyRefused, fmt.Sprintf("a write or a read of a valid holder was refused: %s", x.h.Since(w.began)))
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
		r.Unmarked = history.Unreported(holds)
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
	r.Digest = w.digest(l.holds)
	return r
}

// digest is the same for histories in which the same clients held the key at the
// same times.
func (w *world) digest(holds []*hold) string {
	sum := uint64(14695981039346656037) // FNV-1a
	for _, h := range holds {
		for _, v := range []int64{int64(h.client), int64(h.From.Sub(w.began)), int64(h.To.Sub(w.began))} {
			sum = (sum ^ uint64(v)) * 1099511628211
		}
	}
	return fmt.Sprintf("%016x", sum)
}
