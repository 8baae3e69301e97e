// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"strings"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: without a safeguard the campaign of one server finds a violation in a
// schedule in which hasp as it is has none.
func TestBrokenLoneVariantsAreCaught(t *testing.T) {
	testserver.Require(t, "redis")
	t.Parallel()
	for _, v := range loneVariants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, broken := range []string{"", v.name} {
				o, err := perform(t.Context(), "hasp", broken, v.plan())
				if err != nil {
					t.Fatal(err)
				}
				caught := slices.ContainsFunc(o.Verdicts, func(found Verdict) bool { return found.Oracle == v.oracle && found.Violated() })
				var text strings.Builder
				o.Summary(&text)
				switch {
				case broken == "" && o.Violated():
					t.Errorf("with nothing broken:\n%s", text.String())
				case broken != "" && !caught:
					t.Errorf("%q did not find it:\n%s", v.oracle, text.String())
				}
				t.Logf("%+v in %v, open for %v at most: %s", o.Counts, o.Took, o.Open, text.String())
			}
		})
	}
}
