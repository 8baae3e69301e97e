// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"testing"
	"time"
)

// Rule: the first in the queue asks every 5 to 25 ms and at the end of the lease;
// those behind it look as much more rarely as they are further back, and at
// least once a second. They wait for as long as it took to ask, at least, for each before them.
func TestNextLook(t *testing.T) {
	for _, c := range []struct {
		ahead            int
		held, left, took time.Duration
		want             time.Duration
	}{
		{0, 0, 0, 0, 5 * time.Millisecond},
		{0, 0, 30 * time.Second, 0, 5 * time.Millisecond},
		{0, 40 * time.Millisecond, 30 * time.Second, 0, 10 * time.Millisecond},
		{0, time.Hour, 30 * time.Second, 0, 25 * time.Millisecond},
		{0, time.Hour, 3 * time.Millisecond, 0, 3 * time.Millisecond},
		{0, time.Hour, 1, 0, time.Millisecond},
		{1, 0, 0, 0, 10 * time.Millisecond},
		{1, time.Hour, 3 * time.Millisecond, 0, 50 * time.Millisecond},
		{10, time.Hour, time.Hour, 0, 275 * time.Millisecond},
		{1000, 0, time.Hour, 0, time.Second},
		{0, time.Hour, time.Hour, time.Minute, 25 * time.Millisecond},
		{3, time.Hour, time.Hour, 60 * time.Millisecond, 240 * time.Millisecond},
		{1, time.Hour, time.Hour, time.Minute, time.Second},
		{1 << 30, time.Hour, time.Hour, 0, time.Second},
	} {
		if got := nextLook(c.ahead, c.held, c.left, c.took); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
