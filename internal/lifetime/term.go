// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"time"

	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

// ClaimAfter is when a lease that began with a handover is claimed. Work that is over by then needs no claim.
const ClaimAfter = 10 * time.Millisecond

// Drift is the share of a TTL that is given up for clocks that run at
// different rates, and for expiry in whole milliseconds. The source is the
// Redlock algorithm's CLOCK_DRIFT as its implementations use it.
func Drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// term is how long a lease may be relied on, and when it is to be renewed.
type term struct {
	born    clock.Instant // when it began here: the request that was granted, the turn, or the entry on a handover
	idle    time.Duration // since born, before a caller had it: MaxHold does not count it
	used    bool          // a caller was given it, and may have begun to work
	longest time.Duration // the longest TTL that the store may have of it: an Extend may have had no answer

	start    clock.Instant // before the call that the deadline counts from
	valid    time.Duration // how long from start it may be relied on; 0: not granted yet
	renewAt  time.Duration // when to renew, on the monotonic clock
	renewing bool          // a renewal is under way
	trouble  error         // of the latest renewal
}

// Grant sets the deadline from a call that began at start. An answer moves it
// only forward.
func (l *Lifetime) Grant(start, now clock.Instant, ttl time.Duration) {
	valid := ttl - Drift(ttl)
	if valid-now.Sub(start) > l.granted(now) {
		l.start, l.valid = start, valid
	}
	l.renewAt = start.Mono + (valid-l.terms.Lead)/3
	l.trouble = nil
}

// Enter is Grant of a lease that began with a handover. It is claimed soon.
func (l *Lifetime) Enter(start, now clock.Instant, ttl time.Duration) {
	l.Unclaimed = true
	l.Grant(start, now, ttl)
	l.renewAt = now.Mono + ClaimAfter
}

// Give notes that a caller has it from now on.
func (l *Lifetime) Give(now clock.Instant) {
	if !l.used {
		l.used, l.idle = true, l.Held(now)
	}
}

// Used says that a caller was given it.
func (l *Lifetime) Used() bool { return l.used }

// Left is what remains at now.
func (l *Lifetime) Left(now clock.Instant) time.Duration {
	left := l.granted(now)
	if l.terms.MaxHold > 0 && l.used {
		left = min(left, l.terms.MaxHold-l.worked(now))
	}
	return left
}

// granted is what remains at now of the store's grant, whatever MaxHold says.
func (l *Lifetime) granted(now clock.Instant) time.Duration { return l.valid - now.Sub(l.start) }

// Ahead is what remains of it before the lead.
func (l *Lifetime) Ahead(now clock.Instant) time.Duration { return l.granted(now) - l.terms.Lead }

// Span is how much Ahead was when the latest answer came. Renewal goes by it, not by
// the TTL asked for: the engine may grant less, and the lead is no time to renew in.
func (l *Lifetime) Span() time.Duration { return l.valid - l.terms.Lead }

// Valid is how long the latest answer is good for, from when its call began.
func (l *Lifetime) Valid() time.Duration { return l.valid }

// StoreEnded says that the store's grant is over at now, so that the store may have ended it by itself.
func (l *Lifetime) StoreEnded(now clock.Instant) bool { return l.granted(now) <= 0 }

// Over says that no more than the lead is left.
func (l *Lifetime) Over(now clock.Instant) bool { return l.Left(now) <= l.terms.Lead }

// Age is how long ago the call began that the deadline counts from.
func (l *Lifetime) Age(now clock.Instant) time.Duration { return now.Sub(l.start) }

// Born is when it began here: when the request was sent that was granted, or with the turn before, or with a handover.
func (l *Lifetime) Born() clock.Instant { return l.born }

// Held is how long ago that is.
func (l *Lifetime) Held(now clock.Instant) time.Duration { return now.Sub(l.born) }

// Longest is the longest TTL that the store may have of it.
func (l *Lifetime) Longest() time.Duration { return l.longest }

// worked is how long a caller has had it at now.
func (l *Lifetime) worked(now clock.Instant) time.Duration { return l.Held(now) - l.idle }

// tooLong says that it ends since a caller has had it for MaxHold.
func (l *Lifetime) tooLong(now clock.Instant) bool {
	return l.terms.MaxHold > 0 && l.used && l.worked(now)+l.terms.Lead >= l.terms.MaxHold
}

// Renews says whether it is renewed at all.
func (l *Lifetime) Renews() bool { return !l.terms.NoRenew && !l.forgotten }

// Due says whether to renew at now, and whether it is over. hurry: less time is left than was planned.
func (l *Lifetime) Due(now clock.Instant, hurry bool) (renew, over bool) {
	if l.Over(now) {
		return false, true
	}
	hurry = hurry || l.ask
	if l.Unclaimed && now.Mono < l.renewAt && !hurry {
		return false, false // see ClaimAfter
	}
	renew = l.Renews() && l.due(now, hurry)
	l.ask = l.ask && !renew
	return renew, false
}

// due says whether to renew at now: a third of Span after the start of the last renewal
// that was answered, and again after each sixth of it while there is no answer.
func (l *Lifetime) due(now clock.Instant, hurry bool) bool {
	if !hurry && now.Mono+min(keepalive.Tick, l.Span()/12) < l.renewAt {
		return false
	}
	l.renewing, l.renewAt = true, now.Mono+l.Span()/6
	return true
}

// NextLook is when to ask Due again, on the monotonic clock.
func (l *Lifetime) NextLook(now clock.Instant) time.Duration {
	over := now.Mono + l.Left(now) - l.terms.Lead
	switch {
	case !l.Renews():
		return over
	case l.ask:
		return min(over, now.Mono)
	case l.state == Kept:
		over = min(over, l.born.Mono+l.terms.Keep)
	}
	return min(over, l.renewAt)
}

// failed notes a renewal without a good answer: it is soon tried again.
func (l *Lifetime) failed(now clock.Instant, err error) {
	l.trouble = err
	l.renewAt = min(l.renewAt, now.Mono+backoff.Jitter(l.Span()/12))
}

// healthy says that the latest renewal had a good answer, and that more than half of the time is left.
func (l *Lifetime) healthy(now clock.Instant) bool {
	return l.trouble == nil && l.Ahead(now) > l.Span()/2
}
