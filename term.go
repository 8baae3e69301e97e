// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"time"

	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

// term is how long a hold may be relied on, and when it is to be renewed. It
// only computes: h.mu guards that of a hold.
type term struct {
	opts    *LockOptions
	born    clock.Instant // when the call began that was granted
	idle    time.Duration // since born, before somebody had it: MaxHold does not count it
	used    bool          // somebody was given it, who may have begun to work
	longest time.Duration // the longest TTL that the store may have of it: Extend may have had no answer

	start    clock.Instant // before the call that the lease counts from
	valid    time.Duration // how long from start it may be relied on; 0: not granted yet
	renewAt  time.Duration // when to renew, on the monotonic clock
	renewing bool          // a renewal is under way
	lastErr  error         // of the latest renewal
}

// left is what remains at now.
func (t *term) left(now clock.Instant) time.Duration {
	left := t.granted(now)
	if t.opts.MaxHold > 0 && t.used {
		left = min(left, t.opts.MaxHold-t.worked(now))
	}
	return left
}

// granted is what remains at now of the store's grant, whatever MaxHold says.
func (t *term) granted(now clock.Instant) time.Duration { return t.valid - now.Sub(t.start) }

// extended says that the store was asked for a longer TTL than that of the options.
func (t *term) extended() bool { return t.longest > t.opts.TTL }

// over says that no more than the lead is left.
func (t *term) over(now clock.Instant) bool { return t.left(now) <= t.opts.Lead }

// held is how long ago the call began that was granted.
func (t *term) held(now clock.Instant) time.Duration { return now.Sub(t.born) }

// worked is how long somebody has had the hold at now.
func (t *term) worked(now clock.Instant) time.Duration { return t.held(now) - t.idle }

// tooLong says that the term ends since somebody has had it for MaxHold.
func (t *term) tooLong(now clock.Instant) bool {
	return t.opts.MaxHold > 0 && t.used && t.worked(now)+t.opts.Lead >= t.opts.MaxHold
}

// span is how long the latest answer is good for. Renewal goes by it, not by
// the TTL asked for: the engine may grant less, and the lead is no time
// to renew in.
func (t *term) span() time.Duration { return t.valid - t.opts.Lead }

// grant sets the deadline from a call that began at start. An answer moves it
// only forward.
func (t *term) grant(start, now clock.Instant, ttl time.Duration) {
	valid := ttl - drift(ttl)
	if valid-now.Sub(start) > t.granted(now) {
		t.start, t.valid = start, valid
	}
	t.renewAt = start.Mono + (valid-t.opts.Lead)/3
	t.lastErr = nil
}

// due says whether to renew at now: at TTL/3 after the start of the last renewal
// that was answered, and again every TTL/6 while there is no answer.
func (t *term) due(now clock.Instant, hurry bool) bool {
	if !hurry && now.Mono+min(keepalive.Tick, t.span()/12) < t.renewAt {
		return false
	}
	t.renewing, t.renewAt = true, now.Mono+t.span()/6
	return true
}

// failed notes a renewal without a good answer: it is soon tried again.
func (t *term) failed(now clock.Instant, err error) {
	t.lastErr = err
	t.renewAt = min(t.renewAt, now.Mono+backoff.Jitter(t.span()/12))
}

// healthy says that nothing is wrong with the renewal, and that more than half
// of the time is left.
func (t *term) healthy(now clock.Instant) bool {
	return t.lastErr == nil && !t.renewing && t.granted(now)-t.opts.Lead > t.span()/2
}
