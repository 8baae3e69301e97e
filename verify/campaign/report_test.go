// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	outcome := func(seed uint64, k Kind, v ...Verdict) *Outcome {
		return &Outcome{Schedule: &Schedule{Seed: seed}, Kinds: []Kind{k}, Verdicts: v, Counts: Counts{Locks: 10, BareLosts: 1}}
	}
	rep := &Report{Of: Redlock, Outcomes: []*Outcome{
		outcome(1, Flush, Verdict{Oracle: Exclusion}),
		outcome(2, Flush, Verdict{Oracle: Exclusion, Found: []string{"two holders"}}),
		outcome(3, ClockForward, Verdict{Oracle: Exclusion, May: []string{"a clock"}, Found: []string{"two holders"}}),
		outcome(4, ClockForward, Verdict{Oracle: Exclusion, May: []string{"a clock"}}),
	}, Skipped: []string{"no clock"}}
	rep.Outcomes[1].Schedule.Wired, rep.Outcomes[1].Unknown = true, 3
	if v := rep.Violations(); len(v) != 1 || v[0].Schedule.Seed != 2 {
		t.Errorf("violations: %+v", v)
	}
	var text strings.Builder
	rep.Markdown(&text)
	for _, want := range []string{
		"| one holder at a time, or readers only | **1 of 2** | 1 of 2 |\n\n40 locks", "FLUSHALL: 2; clock of a voting node steps forward: 2 (1).",
		"4 updates lost in a register without fences", "- no clock", "Of 3 keys the history was too long", "In 1 of them the links",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, text.String())
		}
	}
}
