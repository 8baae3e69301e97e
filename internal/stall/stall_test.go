// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLate(t *testing.T) {
	for gap, want := range map[time.Duration]time.Duration{
		0: 0, tick: 0, 2 * tick: 0, 3 * tick: 2 * tick, time.Second + tick: time.Second,
	} {
		if got := late(gap); got != want {
			t.Errorf("of a gap of %v %v are lost, want %v", gap, got, want)
		}
	}
}

func TestUpTo(t *testing.T) {
	start := time.Now()
	w := &witness{last: start}
	w.ran(start.Add(tick))
	w.ran(start.Add(time.Second + 2*tick)) // a second late
	w.ran(start.Add(time.Second + 3*tick))
	if got := w.upTo(start.Add(time.Second + 4*tick)); got != time.Second {
		t.Errorf("%v lost, want 1s", got)
	}
	if got := w.upTo(start.Add(3*time.Second + 4*tick)); got != 3*time.Second {
		t.Errorf("%v lost while it has not run again, want 3s", got)
	}
}

// A machine that keeps up takes nothing.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := Watch(t)
		time.Sleep(time.Minute)
		if got := lost(); got != 0 {
			t.Errorf("%v lost", got)
		}
		answered := Of(t, func() { time.Sleep(time.Second) })
		time.Sleep(time.Minute)
		if got := answered(); got < 59*time.Second {
			t.Errorf("of a server that takes a second for each answer %v lost", got)
		}
	})
}
