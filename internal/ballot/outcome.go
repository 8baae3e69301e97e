// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"cmp"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

const (
	minBackoff = 2 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
	// maxReservedBackoff is for an owner that has the queue node's vote: it asks twice at
	// least while others heed it.
	maxReservedBackoff = heedTime / 4
)

// won is the outcome of a majority.
func (b *Ballot) won() Step {
	r := &b.round
	votes := b.majority()
	res := driver.Result{Granted: true, Fences: max(r.ask.Fences, 1), Abandoned: b.abandoned()}
	var ttls []time.Duration
	for i := range b.nodes {
		if !votes.Has(i) {
			continue
		}
		v := &r.answers[i].Result
		ttls = append(ttls, v.TTL)
		res.Fence, res.Fences = v.Fence, min(res.Fences, max(v.Fences, 1))
		b.votes[i].granted = true // the answer to an older Try may have come since
	}
	slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	res.TTL = ttls[b.Need()-1]
	if b.attempt.stands && !r.ask.Convert { // asked again: those that knew may be silent now
		res.Abandoned = res.Abandoned || b.lease.abandoned
	}
	b.lease.fence, b.lease.had, b.lease.abandoned = res.Fence, true, res.Abandoned
	b.place.lost, b.attempt.asking = 0, false
	return b.end(Step{Outcome: Granted, Result: res, Back: b.moveTo(None, false), Stays: true})
}

// lostRace is the outcome of a Try without a majority. The votes of a minority are
// withdrawn, but for the queue node's where that is reserved: it keeps others from asking
// while this owner goes on asking, since its turn has come.
func (b *Ballot) lostRace() Step {
	r := &b.round
	b.heed()
	few := b.silent() > b.nodes-b.Need()
	reserves := r.ask.Queue && !few && !r.sameStore() && r.granted(b.attempt.queue) && !b.overruled()
	s := Step{Stays: r.ask.Queue || b.place.node != None || few} // a place is kept; after an error it is asked again, or released
	b.lease.fence, b.attempt.asking = 0, false
	b.place.lost++
	if b.place.reserved { // its vote is withdrawn, too, unless it is reserved anew
		b.place.node, b.place.reserved = None, false
	}
	switch {
	case reserves:
		s.Back = b.moveTo(b.attempt.queue, true)
	case s.Stays && r.refused(b.attempt.queue):
		s.Back = b.moveTo(b.attempt.queue, false)
		b.place.lost = 0
	case b.place.node != b.attempt.queue: // nor where it was
		s.Back = b.moveTo(None, false)
	}
	for i := range b.nodes {
		if b.votes[i].granted && !(reserves && i == b.attempt.queue) {
			s.Back = append(s.Back, b.withdraw(i))
		}
	}
	switch {
	case r.sameStore():
		s.Outcome, s.Twins = OneStore, [2]int{int(r.twins[0]), int(r.twins[1])}
	case few:
		s.Outcome = TooFew
	default:
		s.Outcome = Refused
		s.Result, s.Jitter = b.refusal()
	}
	return b.end(s)
}

// silent counts the nodes that said nothing about the key.
func (b *Ballot) silent() (count int) {
	for i := range b.nodes {
		if a := &b.round.answers[i]; a.Kind != Answered || a.refuses(voting.TTLTooLong) || OutOfStep(&a.Result, b.round.fence) {
			count++
		}
	}
	return count
}

// OutOfStep says that a node refused a proposal that its clock, or its largest fence, is too far from: either way
// by more than what others that ask at the same time propose.
func OutOfStep(res *driver.Result, proposal uint64) bool {
	const near = uint64(voting.MaxFenceSkew / 2 / time.Microsecond)
	return res.Why == voting.FenceTooLow && (res.Fence < proposal || res.Fence > proposal+near)
}

// refusal describes the owner in the way. The refused owner asks again after RetryIn and as
// much of jitter.
func (b *Ballot) refusal() (res driver.Result, jitter time.Duration) {
	r := &b.round
	res = driver.Result{Why: driver.WhyHeld}
	owners := map[string]int{}
	released := 0
	var lefts []time.Duration // until each node may vote for us
	for i := range b.nodes {
		switch a := &r.answers[i]; {
		case a.Kind != Answered:
		case a.refuses(driver.WhyReleased):
			released++
		case !a.refuses(driver.WhyHeld):
			lefts = append(lefts, 0)
		default:
			lefts = append(lefts, a.Result.Left)
			h := a.Result.Holder
			if owners[h.Owner+h.Label]++; owners[h.Owner+h.Label] > owners[res.Holder.Owner+res.Holder.Label] || res.Holder == (driver.Holder{}) {
				res.Holder = h
			}
		}
	}
	if released > b.nodes-b.Need() {
		res.Why = driver.WhyReleased
	}
	slices.Sort(lefts)
	if len(lefts) >= b.Need() {
		res.Left = lefts[b.Need()-1]
	}
	if r.refused(b.attempt.queue) {
		a := &r.answers[b.attempt.queue].Result
		res.Ahead = a.Ahead
		if res.RetryIn = a.RetryIn; res.RetryIn > 0 {
			res.RetryIn = max(res.RetryIn, res.Left)
		}
		if left := b.heedsFor(b.heeds()); left > 0 && (res.RetryIn == 0 || res.RetryIn > left) {
			res.RetryIn = left
		}
		return res, 0
	}
	// It is our turn, or there is no queue: ask again after a random delay that
	// grows, unless a hint comes first. Only one owner has the queue node's vote:
	// it asks soon.
	step := minBackoff << min(b.place.lost, 10)
	if b.place.reserved {
		step = min(step, maxReservedBackoff)
	} else {
		step = 2 * min(step, maxBackoff)
	}
	res.RetryIn = step
	return res, step
}

// overturned says that a lease that stood is lost: too many nodes do not have it.
func (b *Ballot) overturned() bool {
	r := &b.round
	lost := 0
	for i := range b.nodes {
		if r.refused(i) || r.says(i, driver.WhyReleased) || r.tooLow(i) {
			lost++
		}
	}
	return !r.sameStore() && lost > b.nodes-b.Need()
}

// inDoubt is the outcome for a lease that may stand. Nothing of it is withdrawn.
func (b *Ballot) inDoubt() Step {
	if b.round.sameStore() {
		return b.end(Step{Outcome: OneStore, Twins: [2]int{int(b.round.twins[0]), int(b.round.twins[1])}, Stays: true})
	}
	return b.end(Step{Outcome: InDoubt, Stays: true})
}

// end ends a Try: nothing of its rounds is needed any longer.
func (b *Ballot) end(s Step) Step {
	r := &b.round
	if s.Outcome == TooFew || s.Outcome == InDoubt {
		s.Said, s.Fence = new([MaxNodes]driver.Result), r.fence
		for i := range b.nodes {
			s.Said[i] = r.answers[i].Result
			if r.granted(i) && (r.fence == 0 || s.Said[i].Fence == r.fence) {
				s.Votes.Add(i)
			}
		}
	}
	b.attempt = attempt{queue: None, wakes: None}
	b.round = round{no: r.no}
	return s
}
