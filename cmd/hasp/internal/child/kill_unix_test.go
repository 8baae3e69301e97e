// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"testing"
	"testing/synctest"
	"time"
)

// KILL comes at the very end of the time, not with the next look: another may
// have the key by then.
func TestKillComesAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const left = endTick + endTick/2
		end := time.Now().Add(left)
		r := &runner{p: &process{pid: 1 << 30}, tick: time.NewTicker(time.Hour)} // no such process
		defer r.tick.Stop()
		r.order = &Order{Term: true, Left: func() time.Duration { return time.Until(end) }}
		for r.press(); r.killed.IsZero(); r.press() {
			<-r.tick.C
		}
		if !r.killed.Equal(end) {
			t.Errorf("it was killed %v after the end", r.killed.Sub(end))
		}
	})
}
