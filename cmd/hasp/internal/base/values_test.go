// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"testing"
	"time"
)

// Times are seconds as flock takes them, or durations as Go writes them.
func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "30": 30 * time.Second, "0.05": 50 * time.Millisecond, ".5": 500 * time.Millisecond,
		"2.5": 2500 * time.Millisecond, "1e1": 10 * time.Second, "600ms": 600 * time.Millisecond, "1m30s": 90 * time.Second, "876000h": longest,
	} {
		var v Duration
		if err := v.Set(text); err != nil || v.D != want || !v.Given {
			t.Errorf("%q is %v, %v; want %v", text, v.D, err, want)
		}
	}
	for _, text := range []string{"", "x", "-1", "-1s", "NaN", "Inf", "1e300", "5 s", "1,5", "9223372036", "9223372036.854775807", "2562047h47m", "876001h"} {
		var v Duration
		if err := v.Set(text); err == nil || v.Given {
			t.Errorf("%q is taken for %v", text, v.D)
		}
	}
}
