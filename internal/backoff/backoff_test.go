// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/internal/backoff"
)

func TestPausesDoubleUpToTheMost(t *testing.T) {
	b := backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}
	for range 2 {
		if b.Failing() {
			t.Error("it fails before anything has")
		}
		for _, ms := range []int{20, 40, 80, 160, 320, 640, 1000, 1000} {
			want := time.Duration(ms) * time.Millisecond
			if p := b.Next(); p < want/2 || p >= want*3/2 {
				t.Errorf("a pause of %v, want one around %v", p, want)
			}
			if !b.Failing() {
				t.Error("it does not fail after a failure")
			}
		}
		b.Reset()
	}
}

func TestJitterOfNothing(t *testing.T) {
	if d := backoff.Jitter(0); d != 0 {
		t.Errorf("the jitter of 0 is %v", d)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff.Backoff{Least: time.Second, Most: time.Second}
		began := time.Now()
		if !b.Wait(nil) {
			t.Error("a wait that nothing ended was ended")
		}
		if took := time.Since(began); took < time.Second/2 || took >= time.Second*3/2 {
			t.Errorf("it waited for %v", took)
		}
		done := make(chan struct{})
		close(done)
		began = time.Now()
		if b.Wait(done) || time.Since(began) != 0 {
			t.Errorf("a wait that is over waited for %v", time.Since(began))
		}
	})
}
