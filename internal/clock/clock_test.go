// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSubTakesTheClockThatShowsMost(t *testing.T) {
	start := Instant{Mono: 1 * time.Second, Wall: 100 * time.Second, Boot: 10 * time.Second}
	for _, c := range []struct {
		name string
		now  Instant
		want time.Duration
	}{
		{"all agree", Instant{2 * time.Second, 101 * time.Second, 11 * time.Second}, time.Second},
		{"the machine slept", Instant{2 * time.Second, 101 * time.Second, 41 * time.Second}, 31 * time.Second},
		{"the wall clock stepped forward", Instant{2 * time.Second, 160 * time.Second, 11 * time.Second}, time.Minute},
		{"the wall clock stepped backward", Instant{2 * time.Second, 40 * time.Second, 11 * time.Second}, time.Second},
	} {
		if got := c.now.Sub(start); got != c.want {
			t.Errorf("%s: %v passed, want %v", c.name, got, c.want)
		}
	}
}

// A bubble has its own time, however long its goroutines work: no clock of the machine is read in it.
func TestSystemFollowsAFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := System()
		if start.Boot != 0 {
			t.Errorf("the machine's clock is read: %v", start)
		}
		time.Sleep(30 * time.Second)
		if got := System().Sub(start); got != 30*time.Second {
			t.Fatalf("%v passed under the fake clock, want 30s", got)
		}
	})
}
