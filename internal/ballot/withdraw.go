// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Withdrawal is a vote, or a place, to withdraw at one node. Where it fails it is sent
// again: for as long as Stands says, or when Over, until it is confirmed.
type Withdrawal struct {
	Node  int
	Over  bool // its owner was released
	Place bool // it is a place, and its withdrawal is not waited for
	Tries int  // see Stands
	voting.WithdrawRequest
}

// withdraw gives up what the owner has at a node. An owner that was released is to be
// remembered there when a Try of it may still come.
func (b *Ballot) withdraw(node int) Withdrawal {
	v := &b.votes[node]
	r := voting.WithdrawRequest{ReleaseRequest: driver.ReleaseRequest{
		Claim: b.req.Claim, TTL: b.req.TTL, End: b.gone.end, Settled: !b.gone.over || v.settled()}}
	if !b.gone.over || v.late && r.End == driver.EndUnfinished {
		r.End = driver.EndUnused
	}
	// A request that comes late takes no vote that was given since, nor a vote that
	// the lease counts on. A place has no fence.
	if r.UpTo = v.fence; b.gone.over {
		r.UpTo = b.most()
	} else if b.lease.fence != 0 {
		r.UpTo = min(r.UpTo, b.lease.fence-1)
	}
	r.UpTo = max(r.UpTo, 1)
	v.withdrawn = max(v.withdrawn, r.UpTo)
	v.granted, v.withdrawing = false, true
	return Withdrawal{Node: node, Over: b.gone.over, Tries: b.tries, WithdrawRequest: r}
}

// Stands says that an owner neither asked again nor was released since it had asked so
// many times, and that a node may still have something of it.
func (b *Ballot) Stands(tries int, now time.Duration) bool {
	return !b.gone.over && b.tries == tries && now < b.until
}

// Withdrawn notes that a node confirmed a Withdraw up to a fence, or has forgotten the owner (0). A later Withdraw may still be
// under way.
func (b *Ballot) Withdrawn(node int, upTo uint64) {
	v := &b.votes[node]
	v.withdrawing = v.withdrawing && upTo != 0 && upTo < v.withdrawn
	if b.gone.over && !v.withdrawing { // a Try that comes late is refused there
		v.unknown = false
	}
}

// Vanished ends what may be left of an owner that was refused without a place, and has
// not asked again since it had asked so many times. What has not answered yet is seen to
// when it does.
func (b *Ballot) Vanished(tries int) (back []Withdrawal) {
	if b.gone.over || b.tries > tries {
		return nil
	}
	b.gone.over, b.gone.end = true, driver.EndUnused
	for i := range b.nodes {
		if b.votes[i].unknown || b.votes[i].withdrawing {
			back = append(back, b.withdraw(i))
		}
	}
	return back
}

// moveTo notes where the owner has its place, or the reserved vote, and gives up a place
// elsewhere.
func (b *Ballot) moveTo(node int, reserved bool) (back []Withdrawal) {
	old := b.place
	b.place.node, b.place.reserved = node, reserved
	if old.node == None || old.node == node || old.reserved {
		return nil
	}
	if v := &b.votes[old.node]; !v.granted && v.settled() {
		w := b.withdraw(old.node)
		w.Place = true
		back = append(back, w)
	}
	return back
}
