// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"testing"
	"testing/synctest"
	"time"
)

// Suspended time is asked for every 100 ms, and whenever the wall clock did not go on with the
// monotonic one.
func TestCheapSeesASleep(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name       string
		mono, wall time.Duration // that pass after the first reading, on these clocks
		asked      bool
	}{
		{"at once", 0, 0, false},
		{"a moment later", 99 * ms, 99 * ms, false},
		{"a while later", 100 * ms, 100 * ms, true},
		{"a slewed wall clock", 50 * ms, 50*ms + ms - 1, false},
		{"after a sleep", 50 * ms, 51 * ms, true},
		{"a wall clock that was set back", 50 * ms, 49 * ms, true},
		{"another bubble's time", -1, -1, true},
	} {
		asked := 0
		now := Instant{Mono: time.Hour, Wall: time.Minute, Boot: 2 * time.Hour}
		some := func() Instant { return Instant{Mono: now.Mono, Wall: now.Wall} }
		clock := cheap(func() Instant { asked++; return now }, some)
		if first := clock(); first != now || asked != 1 {
			t.Fatalf("the first reading is %v", first)
		}
		now.Mono, now.Wall, now.Boot = now.Mono+c.mono, now.Wall+c.wall, now.Boot+c.mono
		if got := clock(); got != now || (asked == 2) != c.asked {
			t.Errorf("%s: %v, want %v; asked %v", c.name, got, now, asked == 2)
		}
	}
}

// Where the system has no such clock, none is made up.
func TestCheapWithoutBoot(t *testing.T) {
	clock := cheap(wakeful, wakeful)
	if clock(); clock().Boot != 0 {
		t.Error("suspended time is made up")
	}
}

func TestCheapFollowsAFakeClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := Cheap()
		start := now()
		for range 100 {
			time.Sleep(30 * time.Millisecond)
			now()
		}
		if got := now().Sub(start); got != 3*time.Second {
			t.Fatalf("%v passed under the fake clock, want 3s", got)
		}
	})
}
