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
	Plan       *Plan
	Found      [promises][]string // where each promise was broken, also where the plan allows it
	Violations []string           // where it does not

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
	r := &Report{Plan: w.plan, Found: l.found, Holds: len(l.holds), Lost: l.lost, Waited: l.waited, Free: w.idle.longest, trace: w.trace}
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
	r.Found[Exclusion] = history.Overlaps(holds)
	r.Found[Fences] = history.Falls(holds, w.plan.May[Exclusion] == "")
	if w.plan.Lone {
		r.Found[Told] = history.Unreported(holds)
	}
	for _, x := range w.reg.uses {
		if x.accepted {
			continue
		}
		r.Refused++
		if x.valid() {
			r.Found[Register] = append(r.Found[Register], fmt.Sprintf("a write or a read of a valid holder was refused: %s", x.h.Since(w.began)))
		}
	}
	for p, found := range r.Found {
		if w.plan.May[p] == "" {
			r.Violations = append(r.Violations, found...)
		}
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
