// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Release counts the answers to the release of an owner.
type Release struct {
	nodes, need int
	known       bool // there was a ballot
	lease       bool // there was a lease; false also of another process's owner: a place, as far as we know
	again       bool // a majority has confirmed a release before: what others still have has no owner
	toAll       bool // what one node hears late it would tell twice

	req       voting.WithdrawRequest
	skipped   Set // was never asked: has nothing, and is not told
	late      Set // has yet to answer a Try: then what it granted is withdrawn
	unsettled Set // where a Try may still come

	queue   int // the node that is waited for
	waits   Set
	done    Set // confirmed
	nothing Set // the owner had nothing there
}

// Stranger releases an owner without a ballot, another process's: every node is told.
func Stranger(nodes int, asked driver.ReleaseRequest, queue int) Release {
	return Release{nodes: nodes, need: need(nodes), queue: queue, req: voting.WithdrawRequest{ReleaseRequest: asked}}
}

// Release ends the owner's ballot. queue is the queue node, or None.
func (b *Ballot) Release(asked driver.ReleaseRequest, queue int) Release {
	r := Stranger(b.nodes, asked, queue)
	r.known, r.lease, r.again = true, b.lease.had, b.gone.over && b.confirmed() >= b.Need()
	if b.tries > 0 { // else it was adopted
		r.req.UpTo = max(b.most(), 1)
	}
	switch {
	case b.lease.shared: // its work was done then, also where a node missed that it converted
		r.req.End = driver.EndFinished
	case !b.lease.had: // no work was done under what some nodes may have granted
		r.req.End = driver.EndUnused
	}
	b.gone.end, b.gone.over, b.attempt.asking, b.lease.fence = r.req.End, true, false, 0
	r.toAll = r.lease && (b.lease.abandoned || r.req.End != driver.EndFinished)
	if b.place.node != None {
		r.queue = b.place.node
	}
	b.place.node, b.place.reserved = None, false
	for i := range b.nodes {
		v := &b.votes[i]
		granted := v.granted || v.withdrawing
		v.granted, v.withdrawing = false, true
		switch {
		case !asked.Settled:
		case !v.asked:
			r.skipped.Add(i)
			v.withdrawing = false
		case v.pending > 0 && !granted: // its answer may be a vote: then it is withdrawn
			r.late.Add(i)
			v.late, v.withdrawing = true, false
		case !v.settled():
			r.unsettled.Add(i)
		}
		if v.withdrawing { // until this release is confirmed, and not an earlier Withdraw
			v.withdrawn = max(v.withdrawn, r.req.UpTo)
		}
	}
	return r
}

// confirmed counts the nodes on which no release is under way.
func (b *Ballot) confirmed() (count int) {
	for i := range b.nodes {
		if !b.votes[i].withdrawing {
			count++
		}
	}
	return count
}

// Tells says whether a node is told now. Where that fails, it is told later.
func (r *Release) Tells(node int) bool { return !r.skipped.Has(node) && !r.late.Has(node) }

// Late says that a node is told once it has answered a Try.
func (r *Release) Late(node int) bool { return r.late.Has(node) }

// Request is what a node is asked.
func (r *Release) Request(node int) voting.WithdrawRequest {
	req := r.req
	req.Settled = req.Settled && !r.unsettled.Has(node)
	return req
}

// Sent notes the nodes that were told: the others are out of service.
func (r *Release) Sent(nodes Set) { r.waits = nodes }

// Waits says that a node was told and has not answered.
func (r *Release) Waits(node int) bool { return r.waits.Has(node) }

// Answer notes the answer of a node: Answered, NotHolder, or none.
func (r *Release) Answer(node int, kind Kind) {
	r.waits.Drop(node)
	switch kind {
	case Answered:
		r.done.Add(node)
	case NotHolder:
		r.nothing.Add(node)
	}
}

// Overdue says that the node time-out is over: a majority is enough, without the queue
// node, which answers others but not this.
func (r *Release) Overdue() { r.queue, r.toAll = None, false }

// Decided says that no more answers are waited for.
func (r *Release) Decided() bool {
	nothing := (r.nothing | r.skipped).Len()
	few := r.done.Len() < r.need && nothing < r.need
	return r.waits == 0 || r.known && !r.waits.Has(r.queue) && !r.toAll && !few
}

// Outcome is what became of it: Answered, NotHolder, or Unknown.
func (r *Release) Outcome() Kind {
	done, nothing := r.done.Len(), (r.nothing | r.skipped).Len()
	switch {
	case done+nothing < r.need:
		return Unknown
	case done == 0, r.again, r.lease && nothing > r.nodes-r.need:
		return NotHolder
	}
	return Answered
}
