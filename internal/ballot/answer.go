// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"math"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Kind says what became of a request to a node.
type Kind uint8

// The kinds.
const (
	Unknown   Kind = iota // it had no answer, or an error: it may have been carried out, or will be
	Answered              // the node granted or refused
	HeldBack              // the node does not vote
	NotSent               // it certainly was not carried out
	NotAsked              // the node is out of service
	NotHolder             // of a Withdraw or a Renew: the owner has nothing there
)

// Reply is what came of a Vote at one node.
type Reply struct {
	Node  int
	Round int // Step.Round; 0: it was sent outside of a round
	Asked voting.VoteRequest
	Answer
}

// Answer is what a node said.
type Answer struct {
	Kind   Kind
	Result driver.Result // of an answer that is Answered
}

func (a *Answer) grants() bool { return a.Kind == Answered && a.Result.Granted }

func (a *Answer) refuses(why driver.Why) bool {
	return a.Kind == Answered && !a.Result.Granted && a.Result.Why == why
}

// FenceOf is the fence that a node is asked for, or with a Convert, that it has.
func FenceOf(r voting.VoteRequest) uint64 {
	if r.Convert {
		return r.Fence
	}
	return r.Proposal
}

// Heard notes what became of a Vote, whenever that comes, and says what is to be
// withdrawn for it. It counts in the round under way if it belongs to that one and the
// node was still waited for.
func (b *Ballot) Heard(a Reply) (back []Withdrawal, counts bool) {
	back = b.record(a)
	r := &b.round
	if a.Round != r.no || !r.waits.Has(a.Node) {
		return back, false
	}
	r.waits.Drop(a.Node)
	b.count(a)
	return back, true
}

// record notes what an answer says of the vote of its node. That another holds the key
// there, or that the owner was released, says that it does not; every other refusal is of
// what was asked for now, and says nothing of a vote that an earlier Try was given, but
// that a proposal is too low or too far names at least the vote that the owner has.
func (b *Ballot) record(a Reply) []Withdrawal {
	v, fence := &b.votes[a.Node], FenceOf(a.Asked)
	v.pending--
	v.queued = v.queued || a.Asked.Queue && a.Kind == Answered
	switch {
	case a.Kind == NotSent: // earlier Tries are as they were
	case a.Kind == Unknown:
		v.unknown = true
		v.open = max(v.open, fence)
	case a.grants():
		v.granted = true
		v.fence = max(v.fence, a.Result.Fence)
		v.shared = v.shared || a.Asked.Mode == driver.Shared
	case a.refuses(driver.WhyHeld), a.refuses(driver.WhyReleased):
		if fence >= v.fence { // not the answer to an earlier Try, which was overtaken
			v.granted = false
		}
	default:
		most := uint64(math.MaxUint64)
		if a.refuses(voting.FenceTooLow) {
			most = a.Result.Fence + 1
		}
		if left := v.left(most); left > 0 {
			v.granted = true
			v.fence = max(v.fence, left)
		}
	}
	if b.gone.over && v.withdrawing {
		// The release that is under way there takes what came before it, and has the node
		// refuse what comes after it. A second one could come first, and it would seem that
		// the owner had nothing.
		v.granted = false
		return nil
	}
	// A place that a Try without an answer left keeps out those behind it that could share the key with the holder.
	if a.Asked.Restore && a.refuses(driver.WhyHeld) && !v.settled() && b.lease.fence != 0 {
		w := b.withdraw(a.Node)
		w.Place = true
		return []Withdrawal{w}
	}
	// An answer after the round belongs to the lease, if there is one, or is
	// withdrawn.
	late := v.granted && !(b.place.reserved && b.place.node == a.Node) || b.gone.over && v.unknown
	if !b.attempt.asking && b.lease.fence == 0 && late && (b.gone.over || b.tries > 0) { // a lease that was adopted has no known fence
		return []Withdrawal{b.withdraw(a.Node)}
	}
	return nil
}
