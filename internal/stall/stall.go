// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package stall measures for how long a busy machine did not run a process, so that a
// test of a time bound can allow for exactly that, and stay strict otherwise.
package stall

import (
	"sync"
	"time"
)

// tick is how often the witness wants to run. What it comes late by, beyond
// another tick, is lost time.
const tick = 5 * time.Millisecond

// witness is a goroutine that does nothing but to be on time.
type witness struct {
	mu   sync.Mutex
	last time.Time // when it ran
	lost time.Duration
}

// Watch measures until the test ends. The returned function returns how much time this
// process has lost so far; it is safe for concurrent use.
func Watch(t interface{ Cleanup(func()) }) (lost func() time.Duration) {
	return Of(t, func() {})
}

// Of is Watch of this process and of a server: ask returns once that has answered.
func Of(t interface{ Cleanup(func()) }, ask func()) (lost func() time.Duration) {
	w := &witness{last: time.Now()}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				ask()
				w.ran(time.Now())
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-stopped })
	return func() time.Duration { return w.upTo(time.Now()) }
}

func (w *witness) ran(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost += late(now.Sub(w.last))
	w.last = now
}

// upTo counts the time for which the witness has not run yet, too: the caller
// may run again before it.
func (w *witness) upTo(now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost + late(now.Sub(w.last))
}

// late is how much of a gap is lost time.
func late(gap time.Duration) time.Duration {
	if gap <= 2*tick {
		return 0
	}
	return gap - tick
}
