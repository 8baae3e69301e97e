// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"fmt"
	"time"

	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
)

// patience is how a wait bears a store that gives no good answer. It only computes.
type patience struct {
	most    time.Duration // Options.MaxSilence
	silent  clock.Instant // when the first call began that had no good answer
	puzzled clock.Instant // since when no error was one that the engine knows
	pause   backoff.Backoff
	why     error // what keeps us waiting: the latest refusal or error
}

func newPatience(most time.Duration) patience {
	return patience{most: most, pause: backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}}
}

// failing says that the latest call had no good answer.
func (p *patience) failing() bool { return p.pause.Failing() }

// asks notes that a call begins at start.
func (p *patience) asks(start clock.Instant) {
	if !p.failing() {
		p.silent = start
	}
}

// refused notes a good answer: somebody has the key.
func (p *patience) refused(held *HeldError) {
	p.why = held
	p.pause.Reset()
}

// failed notes an error that may go away by itself, and returns the pause before
// asking again. unknown: the engine does not know the error.
func (p *patience) failed(now clock.Instant, unknown bool) time.Duration {
	if !p.failing() || !unknown {
		p.puzzled = now
	}
	return p.pause.Next()
}

// joins notes that somebody goes on with the wait of another, who began to bear
// it earlier than from.
func (p *patience) joins(from clock.Instant) {
	if from.Sub(p.silent) > 0 {
		p.silent = from
	}
	if from.Sub(p.puzzled) > 0 {
		p.puzzled = from
	}
}

// exhausted returns what ends a wait without a good answer, once pause has passed: a
// silence that the client bears no longer; or errors that the engine does not
// know, and that may stay for ever.
func (p *patience) exhausted(now clock.Instant, pause, ttl time.Duration) error {
	silent, puzzled := now.Sub(p.silent), now.Sub(p.puzzled)
	switch {
	case p.most > 0 && silent+pause >= p.most:
		return fmt.Errorf("no good answer from the store for %v: %w", shortDuration(silent), p.why)
	case puzzled+pause >= max(ttl, tryLimit):
		return fmt.Errorf("the store has failed for %v, and not for being away: %w", shortDuration(puzzled), p.why)
	}
	return nil
}

// limit is how long the call that begins at start, for a lease of ttl, may take.
func (p *patience) limit(start clock.Instant, ttl time.Duration) time.Duration {
	limit := min(ttl, tryLimit)
	if p.most == 0 {
		return limit
	}
	// Half of the silence that a wait bears, so that one dead connection does
	// not end it; and not more than is left of it. Nothing is left when this
	// process stood still meanwhile, which was not the store's silence.
	limit = min(limit, p.most/2)
	if left := p.most - start.Sub(p.silent); left > 0 {
		limit = min(limit, left)
	}
	return limit
}
