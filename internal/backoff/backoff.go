// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package backoff spaces retries after failures.
package backoff

import (
	"math/rand/v2"
	"time"
)

// A Backoff gives the pauses between attempts: Least at first, then twice as long each
// time, up to Most, all of them jittered, so that callers that failed together do not
// retry together. It is for one goroutine at a time.
type Backoff struct {
	Least, Most time.Duration
	last        time.Duration // before the jitter
}

// Next returns the pause after one more failure.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.Least), b.Most)
	return Jitter(b.last)
}

// Reset is called after a success: the next pause is Least again.
func (b *Backoff) Reset() { b.last = 0 }

// Failing reports whether Next was called since the last Reset.
func (b *Backoff) Failing() bool { return b.last > 0 }

// Wait waits for the next pause. It is false when done was closed before that.
func (b *Backoff) Wait(done <-chan struct{}) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

// Jitter returns a random duration of at least d/2 and less than 3d/2.
func Jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(max(d, 1))
}
