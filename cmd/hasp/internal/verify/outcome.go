// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
)

// mostFound bounds what is listed: one broken rule shows in many places.
const mostFound = 10

// Outcome is the result of a run.
type Outcome struct {
	player.Counts
	// Tried is how long it took, until the clients were asked to end.
	Tried time.Duration
	// Handoff is the longest time from the end of a hold to the next hold of one
	// who waited already.
	Handoff time.Duration
	// Recovered: every key was acquired again after the last fault, within Back.
	Recovered bool
	Back      time.Duration
	// Found are the rules that were broken; none when all is well.
	Found []string
	// Class and Trouble are those of the store's latest error, when it was gone
	// at the end; Trouble is empty otherwise.
	Class   hasp.Class
	Trouble string
}

// judge asks the oracles. A run that a signal ended did not get to the end of the
// faults.
func (r *run) judge(tried time.Duration, interrupted bool) *Outcome {
	holds := r.History()
	o := &Outcome{Counts: r.Counts, Tried: tried, Found: []string{}, Recovered: r.over != 0 && len(r.again) == r.o.Keys}
	o.Handoff = handoff(holds)
	if o.Recovered {
		o.Back = r.back.Sub(r.over)
	}
	o.Found = append(o.Found, slices.Concat(history.Judge(holds), r.Book.Found)...)
	switch {
	case r.silent > 0 && !o.Recovered && !interrupted:
		o.Class, o.Trouble = player.ClassOf(r.trouble.Kind), r.trouble.Err
	case !o.Recovered && !interrupted:
		for i := range r.o.Keys {
			if key := r.o.key(i); !r.again[key] {
				o.Found = append(o.Found, fmt.Sprintf("no client that asked for %q after the last fault acquired it alone within %v", key, r.o.Bound()))
			}
		}
	}
	o.Found = history.Few(o.Found, mostFound)
	return o
}

// handoff is the longest time from the end of a hold to the next hold of one who
// waited already.
func handoff(holds []history.Hold) (longest time.Duration) {
	slices.SortStableFunc(holds, func(a, b history.Hold) int {
		if a.Key != b.Key {
			return strings.Compare(a.Key, b.Key)
		}
		return a.From.Compare(b.From)
	})
	for i := 1; i < len(holds); i++ {
		before, h := &holds[i-1], &holds[i]
		if h.Key != before.Key {
			continue
		}
		asked := h.From.Add(-time.Duration(h.Granted - h.Asked))
		if asked.Before(before.To) {
			longest = max(longest, h.From.Sub(before.To))
		}
	}
	return longest
}
