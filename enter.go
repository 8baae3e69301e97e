// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
)

// A waiter whose place is handed the key may enter on the hint (driver.Hint.Handover), and claims it behind, with its first
// renewal. The argument for its deadline stands in docs/design.md.

const (
	// mostLead is the largest Lead of one that may enter: a larger one leaves too little of a claim time.
	mostLead = 100 * time.Millisecond
)

// sample is a reading of the store's clock, and of the key, by the answer to a Try.
type sample struct {
	start clock.Instant // before that Try
	at    time.Duration // as driver.Result.At
	fence uint64        // as driver.Result.Fence
}

// enters says whether to act on a handover: not for a lease that nothing would claim, nor where others
// take turns on it, who need more fences than a handover has.
func (l *lock) enters() bool {
	o := l.opts
	turns := o.Cohort > 0 || o.Keep > 0
	return l.c.traits.Enters && l.mode == Exclusive && !o.NoRenew && !turns && o.Lead <= min(mostLead, o.TTL/4)
}

// hinted notes what a hint told. Of several handovers the newest counts.
func (a *attempt) hinted(h driver.Hint) {
	if h.Handover.Fence > a.told.Fence {
		a.told = h.Handover
	}
}

// enter returns the lease that the store gave to our place, as a hint told, if it is certain enough how long that
// lasts; nil: ask the store.
//
// The lease counts from before the latest refusal was asked for, plus the time that passed from that
// answer to the handover on the store's clock: never from when the message came.
func (a *attempt) enter() *Lease {
	if a.sub != nil {
		select {
		case h := <-a.sub.hints: // one that came as the sleep ended
			a.hinted(h)
		default:
		}
	}
	to := a.told
	if !a.req.Enters || a.seen.at == 0 || to.Fence <= a.seen.fence {
		return nil
	}
	now := a.c.now()
	since, passed := to.At-a.seen.at, now.Sub(a.seen.start)
	if since > passed { // a clock was set; back, it only counts from earlier
		return nil
	}
	h := a.hold(now, now, driver.Result{Fence: to.Fence, Handoff: max(passed-since, 1)})
	h.life.Marked = a.marked || to.Abandoned
	h.grant.entered, h.grant.abandoned = true, h.life.Marked
	h.life.Enter(a.seen.start.Add(since-lifetime.Drift(since)), now, to.TTL)
	if h.life.Ahead(now) < (to.TTL-a.opts.Lead)*2/3 {
		return nil // an old sample, a slow message, or a large lead
	}
	lease := h.lease(Exclusive)
	if !a.c.renewer.Add(h, now) {
		return nil
	}
	return lease
}
