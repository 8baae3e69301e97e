// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Converting notes, before anything can fail, that the holder takes its lease for
// Shared from now on.
func (b *Ballot) Converting() { b.lease.shared = b.lease.shared || b.lease.fence != 0 }

// convert begins to make an Exclusive lease a Shared one, on all nodes at once: see
// [driver.TryRequest]. It stands once a majority has done so, each of them without a
// moment in which it had no vote. Nodes that missed it are told with the renewals.
func (b *Ballot) convert(req driver.TryRequest, v View) Step {
	switch {
	case b.gone.over, b.tries > 0 && b.lease.fence == 0: // it has none
		return Step{Outcome: Refused, Stays: true, Result: driver.Result{Why: driver.WhyHeld}}
	case b.lease.fence == 0:
		b.adopt(req, req.Fence)
		b.lease.shared = true
	}
	b.stays(max(req.TTL, req.Patience), v.Now)
	r := b.newTry(req, v)
	r.ask.Convert, r.ask.Queue, r.ask.Fences = true, false, 0
	r.ask.Fence = max(b.lease.fence, req.Fence)
	b.attempt.wakes, b.attempt.queue, b.attempt.stands = b.attempt.queue, None, true // no waiter in the queue is overtaken
	b.attempt.introduces = false
	return b.send(v)
}

// converted is the outcome.
func (b *Ballot) converted() Step {
	switch {
	case b.elected():
		return b.won()
	case !b.overturned():
		return b.inDoubt()
	}
	res, _ := b.refusal()
	res.RetryIn = 0
	return b.end(Step{Outcome: Refused, Result: res, Stays: true, Forget: b.tries == 0})
}

// adopt takes over a lease of another process.
func (b *Ballot) adopt(req driver.TryRequest, fence uint64) {
	b.req, b.lease.fence, b.lease.had = req, fence, true
	for i := range b.nodes {
		b.votes[i].asked, b.votes[i].unknown = true, true
	}
}

// Renewing notes that a lease is renewed. A lease of another process is adopted, if its
// fence is known, and has its ballot from here on.
func (b *Ballot) Renewing(r driver.RenewRequest, now time.Duration) {
	if b.tries == 0 && !b.gone.over && b.lease.fence == 0 && r.Fence != 0 {
		b.adopt(driver.TryRequest{Claim: r.Claim, TTL: r.TTL}, r.Fence)
	}
	b.lease.shared = b.lease.shared || r.Mode == driver.Shared && b.tries == 0 // what its nodes were told is not known
	b.stays(r.TTL, now)
}

// Uninformed says that a node, one of those that just prolonged a lease, may have it
// Exclusive still. What the others have now is not known.
func (b *Ballot) Uninformed(node int, held Set) bool {
	for i := range b.votes {
		b.votes[i].shared = b.votes[i].shared && held.Has(i)
	}
	return b.lease.shared && !b.votes[node].shared
}

// Restore completes a request for a vote that a node lost, or to tell it that the lease
// is Shared now, and notes that it goes out. It is false when the lease no longer stands.
func (b *Ballot) Restore(node int, r voting.VoteRequest) (voting.VoteRequest, bool) {
	if b.lease.fence < FenceOf(r) {
		return r, false
	}
	if r.Convert { // holders that take turns have fences up to the granted one
		r.Fence = b.lease.fence
	} else {
		r.Proposal = b.lease.fence
	}
	if b.lease.shared { // also when the renewal that found the vote gone was of before
		r.Mode = driver.Shared
	}
	return r, b.Sends(node)
}
