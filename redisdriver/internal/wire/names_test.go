// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"math"
	"testing"
	"time"
)

// A lease of the longest TTL ends a moment later than its Span says, which is no overflow.
func TestSpanLeavesRoom(t *testing.T) {
	for pttl, want := range map[int64]time.Duration{-2: Free, -1: Forever, 0: 0, 7: 7 * time.Millisecond} {
		if got := Span(pttl); got != want {
			t.Errorf("Span(%d) is %v", pttl, got)
		}
	}
	for _, pttl := range []int64{math.MaxInt64 / int64(time.Millisecond), math.MaxInt64} {
		if after := Span(pttl) + time.Millisecond; after < math.MaxInt64-2*time.Millisecond {
			t.Errorf("a millisecond after Span(%d) is %v", pttl, after)
		}
	}
}
