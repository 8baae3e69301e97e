// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"os"
	"testing"
)

const full = 10_000_000 // states of a search in the long run

// TestCases searches all models; those that are long only with HASP_MODEL=full, and to a higher cap.
func TestCases(t *testing.T) {
	limit, all := short, os.Getenv("HASP_MODEL") == "full"
	if all {
		limit = full
	}
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			if c.Long && !all {
				t.Skip("HASP_MODEL=full searches it")
			}
			r := c.Search(limit)
			how := "exhaustive"
			switch {
			case r.Wrong != "":
				how = "until something was found"
			case r.Capped:
				how = "CAPPED"
			}
			t.Logf("%s\n%d states, depth %d, %s", c.About, r.States, r.Depth, how)
			if r.Wrong != "" {
				t.Log(r)
			}
			if r.Capped && r.Wrong == "" && !exhaustive && !all {
				return
			}
			if got := c.Walk(len(r.Steps), func(k int, s Step) bool { return s == r.Steps[k] }).Wrong; got != r.Wrong {
				t.Errorf("walked again, the steps lead to %q", got)
			}
			found := c.Kind == Refuted || c.Kind == Limit || c.Kind == Reached
			if found != (r.Wrong != "") {
				t.Errorf("found %q", r.Wrong)
			}
			if r.Capped && !found && !all {
				t.Error("a search of the short run must be exhaustive")
			}
		})
	}
}
