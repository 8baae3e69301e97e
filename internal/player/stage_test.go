// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"testing"
	"time"
)

// A limit that guards against a hang does not count while this process stands still.
func TestLimitAllowsForStalls(t *testing.T) {
	stalls := []time.Duration{time.Millisecond, time.Millisecond}
	s := &Stage{Stalled: func() time.Duration {
		now := stalls[0]
		stalls = stalls[1:]
		return now
	}}
	limit, stood := time.NewTimer(time.Hour), time.Duration(0)
	if !s.stoodStill(limit, &stood) {
		t.Error("the limit was not prolonged")
	}
	<-limit.C
	if s.stoodStill(limit, &stood) {
		t.Error("the limit was prolonged for nothing")
	}
}
