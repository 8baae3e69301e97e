// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: without a safeguard the campaign of one server finds a violation, in one of
// some runs of a schedule in which hasp as it is has none.
func TestBrokenLoneVariantsAreCaught(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	checkVariants(t, loneVariants)
}

// Rule: nodes that restart empty, or are flushed, give redsync two holders, and hasp none.
func TestRedsyncIsCaught(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	checkVariants(t, redsyncVariants)
}

// Rule: a node that every majority needs, and whose clock steps forward, makes two holders, as of every Redlock; their fences have
// the late write refused.
func TestClockForwardMakesTwoHolders(t *testing.T) {
	testserver.Require(t, "redis")
	if err := testserver.CanStepClocks(); err != nil {
		t.Skipf("SKIPPED WITHOUT A FAKE CLOCK: %v", err)
	}
	t.Parallel()
	s := again(ClockForward, time.Minute, 2)
	s.MaxTTL, s.Long, s.Polls = 6*time.Second, 2, true // the others ask many times before the holder renews, and some finish before it
	s.Actions = append(s.Actions, wired(0, true, true).Actions...)
	byTime(s.Actions)
	checkTwoHolders(t, s)
}

// checkVariants runs the schedule of each, as hasp is and without its safeguard.
func checkVariants(t *testing.T, variants []*variant) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			found := false
			for run := 0; run <= mostRuns && !found; run++ {
				broken := v.name
				if run == 0 {
					broken = ""
				}
				o, err := perform(t.Context(), broken, v.schedule())
				if err != nil {
					t.Fatal(err)
				}
				found = run > 0 && slices.ContainsFunc(o.Verdicts, func(is Verdict) bool { return is.Oracle == v.oracle && is.Violated() })
				var text strings.Builder
				o.Summary(&text)
				if run == 0 && o.Violated() {
					t.Errorf("with nothing broken:\n%s", text.String())
				}
				t.Logf("%+v in %v, open for %v at most: %s", o.Counts, o.Took, o.Open, text.String())
			}
			if !found {
				t.Errorf("%q did not find it", v.oracle)
			}
		})
	}
}
