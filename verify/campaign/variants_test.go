// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"testing"
	"testing/synctest"
)

// Rule: every safeguard of Redlock is needed: without it there is a scenario in which
// an oracle finds a violation, and with it the same scenario has none.
func TestBrokenVariantsAreCaught(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			if found := play(t, v, &variant{}); len(found) > 0 {
				t.Errorf("with nothing broken: %q", found)
			}
			found := play(t, v, v)
			if len(found) == 0 {
				t.Error("nothing was found")
			}
			t.Logf("%q", found)
		})
	}
}

// play runs the scenario of a variant, and returns what the oracles found.
func play(t *testing.T, v, as *variant) (found []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(t.Context(), as, cmp.Or(v.rate, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := v.scenario(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		found = w.findings()
		w.close()
	})
	return found
}
