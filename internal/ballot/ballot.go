// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"time"

	"github.com/hasplock/hasp/driver"
)

// Ballot is what is known of one owner's votes, from its first Try to its Release. A
// Ballot that is missing (the owner is another process's) does no harm: then every node
// is asked.
//
// A vote is withdrawn for the fence that its node granted, and never for that of the
// lease; and what a node still grants with a fence that was withdrawn is not counted:
// whenever such a request arrives, it takes no vote that counts.
type Ballot struct {
	nodes int // how many there are

	req     driver.TryRequest // as it was asked for last
	tries   int               // 0: the lease was adopted from another process
	attempt attempt
	round   round
	votes   [MaxNodes]vote
	fences  fences
	lease   lease
	place   place
	heeded  heeded
	gone    gone
	until   time.Duration // the nodes have forgotten the owner by then
}

// gone says that the owner is.
type gone struct {
	over bool       // released, or refused without a place and not seen since
	end  driver.End // of an owner that was released
}

// vote is what is known of one node.
type vote struct {
	asked   bool // a Try was sent there
	pending int  // Tries that have not returned
	queued  bool // it answered a Try that joins the queue, which may have left a place

	granted bool   // the owner has the vote, as far as is known
	fence   uint64 // that it granted last
	shared  bool   // it said that the owner has the key Shared

	unknown bool   // a Try had no answer: it may still be carried out
	open    uint64 // the largest fence of those

	withdrawing bool   // a Withdraw was sent and not confirmed: it may come late
	withdrawn   uint64 // the largest fence up to which it was withdrawn
	late        bool   // a Try had no answer when the owner was released: what it granted since has no owner
}

// left is the largest fence, up to most, with which the owner may have the vote although it does not count on it, or 0: a Try
// without an answer may have been granted, and a Withdraw without one may never arrive.
func (v *vote) left(most uint64) (fence uint64) {
	if v.open > v.withdrawn && v.open <= most {
		fence = v.open
	}
	if v.withdrawing && v.fence <= most {
		fence = max(fence, v.fence)
	}
	return fence
}

// settled says that every Try that was sent was answered.
func (v *vote) settled() bool { return !v.unknown && v.pending == 0 }

// quiet says that nothing is under way, and nothing may be left.
func (v *vote) quiet() bool { return v.settled() && !v.granted && !v.withdrawing }

// fences is what a proposal has to heed.
type fences struct {
	top  uint64 // the largest that was proposed
	seen uint64 // proposals must be above it, as far as that is no node's alone
	far  bool   // a proposal was too far above a node's clock
}

// lease is what a majority granted.
type lease struct {
	fence uint64 // 0: there is none
	had   bool   // there was one
	// abandoned: its holder was told that the key was.
	abandoned bool
	// shared: it was Exclusive, and is Shared now as far as its holder goes. All nodes
	// are to hear of it.
	shared bool
}

// place is where the owner waits.
type place struct {
	node int // where its place in the queue is; None: nowhere
	// reserved: in place of that it has the vote of the queue node, since its turn has
	// come, and keeps it from others while it asks the rest.
	reserved bool
	lost     int // attempts in a row without a majority
}

// New makes the ballot of an owner on so many nodes.
func New(nodes int) Ballot {
	return Ballot{nodes: nodes, place: place{node: None}, attempt: attempt{queue: None, wakes: None}}
}

// Need is how many nodes are a majority.
func (b *Ballot) Need() int { return need(b.nodes) }

func need(nodes int) int { return nodes/2 + 1 }

// Of returns the owner's latest request.
func (b *Ballot) Of() driver.TryRequest { return b.req }

// begin notes what a Try asks for.
func (b *Ballot) begin(r driver.TryRequest, now time.Duration) {
	if b.lease.fence == 0 { // a new acquisition: what was converted before is over
		b.lease.shared = false
		for i := range b.votes {
			b.votes[i].shared = false
		}
	}
	b.req, b.gone.over = r, false
	b.tries++
	b.stays(max(r.TTL, r.Patience), now)
}

// stays moves the moment at which the nodes have forgotten the owner.
func (b *Ballot) stays(lasts, now time.Duration) { b.until = max(b.until, now+2*lasts) }

// Expired says that no node has anything of the owner any more, whatever became of the
// requests that had no answer.
func (b *Ballot) Expired(now time.Duration) bool {
	return (b.tries > 0 || b.lease.had) && b.until < now
}

// Tries is how often the owner asked.
func (b *Ballot) Tries() int { return b.tries }

// Fence is that of the lease, 0 when there is none.
func (b *Ballot) Fence() uint64 { return b.lease.fence }

// Has says whether the owner has a node's vote, as far as is known.
func (b *Ballot) Has(node int) bool { return b.votes[node].granted }

// Place is the node where the owner has its place in the queue, or None. When reserved,
// it has that node's vote instead.
func (b *Ballot) Place() (node int, reserved bool) { return b.place.node, b.place.reserved }

// most is the largest fence that a node may have granted.
func (b *Ballot) most() uint64 {
	m := max(b.fences.top, b.lease.fence)
	for i := range b.votes {
		m = max(m, b.votes[i].fence)
	}
	return m
}

// Sends notes that a Try goes out to a node; it is false when the owner was released
// before.
func (b *Ballot) Sends(node int) bool {
	if b.gone.over {
		return false
	}
	b.votes[node].asked = true
	b.votes[node].pending++
	return true
}

// Over says that the owner was released, and that nothing of it is under way: its
// ballot can be forgotten.
func (b *Ballot) Over() bool { return b.gone.over && b.quiet() }

// quiet says that nothing of it is under way anywhere.
func (b *Ballot) quiet() bool {
	for i := range b.votes {
		if !b.votes[i].quiet() {
			return false
		}
	}
	return true
}

// Blank says that no node has anything of the owner, and none will: nothing was ever
// granted, or may have been, and no node may have a place of it. Once a vote was withdrawn the ballot
// has to be known: the request may come late, and take what the owner was granted since.
func (b *Ballot) Blank() bool {
	if b.place.node != None || b.lease.fence != 0 {
		return false
	}
	for i := range b.votes {
		if v := &b.votes[i]; !v.quiet() || v.queued || v.fence != 0 || v.withdrawn != 0 || v.open != 0 {
			return false
		}
	}
	return true
}
