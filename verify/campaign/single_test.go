// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: of the single faults that give redsync two holders, a restart and a
// flush give hasp none; the step of a node's clock, which no Redlock survives,
// is caught by the fence.
func TestSingleFaultsSideBySide(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	if err := testserver.CanStepClocks(); err != nil {
		t.Logf("SKIPPED WITHOUT A FAKE CLOCK: the fault %q: %v", ClockForward, err)
	}
	rows, err := SideBySide(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Logf("%+v", r)
		two := r.Fault == ClockForward || r.Library == "redsync" && r.Fault != ""
		if r.Two != two {
			t.Errorf("%s, fault %q: two holders: %v, want %v (%s)", r.Library, r.Fault, r.Two, two, r.Why)
		}
		if caught := two && r.Library == "hasp"; r.Caught != caught {
			t.Errorf("%s, fault %q: the stale write was caught: %v, want %v", r.Library, r.Fault, r.Caught, caught)
		}
	}
	var text strings.Builder
	singlesMarkdown(&text, rows)
	t.Log("\n" + text.String())
}
