// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"testing"
	"time"
)

// A stall counts for the times that it overlaps, and for no other.
func TestLostBetween(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	w := &watcher{lost: func() time.Duration { return 9 * time.Second }}
	for i, lost := range []time.Duration{0, time.Second, time.Second, 3 * time.Second} {
		w.stalls = append(w.stalls, stalled{at(10 * (i + 1)), lost})
	}
	for _, c := range []struct {
		from, to int
		want     time.Duration
	}{
		{1, 5, 0},
		{11, 15, time.Second},
		{20, 25, 0},
		{20, 30, 2 * time.Second}, // up to the report after it
		{25, 35, 2 * time.Second},
		{41, 50, 6 * time.Second}, // no report yet
	} {
		if got := w.lostBetween(at(c.from), at(c.to)); got != c.want {
			t.Errorf("from %d to %d: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
