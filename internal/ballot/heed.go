// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	// heedTime is how long the queue node alone can keep a key from owners to which a
	// majority would grant it. A node with a clock that was set back, or that a release did
	// not reach, would do so for the rest of a lease that is over elsewhere.
	heedTime = 500 * time.Millisecond
	// turnTime is longer than the key is kept for the first waiter in the queue: what
	// lasts for less may be that, and ends by itself.
	turnTime = 600 * time.Millisecond
)

// heeded is the holder that only the queue node knows, as the latest Try saw it.
type heeded struct {
	owner string        // "": there was none
	node  int           // the queue node
	fence uint64        // above which it had granted nothing then; 0: not known
	since time.Duration // from when on it is heeded
	until time.Duration // the end of its vote, where that counts; see votesUntil
}

// asked says that the holder has its vote for longer than when it was seen: it asked
// again.
func (h *heeded) asked(until time.Duration) bool { return until > h.until+heedTime/10 }

// covers says that the holder is the noted one, or had its vote beside that holder:
// the queue node granted nothing since.
func (b *Ballot) covers(owner string) bool {
	h, fence := &b.heeded, b.queueFence()
	return h.owner == owner || h.owner != "" && h.node == b.attempt.queue && 0 < fence && fence <= h.fence
}

// heed notes the holder that the queue node alone names. A holder that asked since is
// heeded from now on.
func (b *Ballot) heed() {
	owner, until := b.heeds(), b.votesUntil()
	switch {
	case owner == "" && b.stillAlone():
	case !b.covers(owner) || b.heeded.asked(until):
		b.heeded = heeded{owner, b.attempt.queue, b.queueFence(), b.attempt.view.Now, until}
	default:
		b.heeded.owner = owner
	}
}

// stillAlone says that the queue node, and no other, names the holder that it named last,
// while others are in the way elsewhere: it is heeded all the same.
func (b *Ballot) stillAlone() bool {
	r := &b.round
	for i := range b.nodes {
		if names := r.refused(i) && r.answers[i].Result.Holder.Owner == b.heeded.owner; names != (i == b.attempt.queue) {
			return false
		}
	}
	return b.heeded.owner != ""
}

// heedsFor is for how much longer the holder that heed noted is heeded; 0: there is none,
// or it was heeded for long enough.
func (b *Ballot) heedsFor(owner string) time.Duration {
	if owner == "" {
		return 0
	}
	return max(heedTime-(b.attempt.view.Now-b.heeded.since), 0)
}

// waitedFor says that such a holder was heeded for long enough, and did not ask since.
func (b *Ballot) waitedFor(owner string, until time.Duration) bool {
	return owner != "" && b.covers(owner) && b.attempt.view.Now-b.heeded.since >= heedTime && !b.heeded.asked(until)
}

// blocks says that the queue node refuses, and is heeded.
func (b *Ballot) blocks() bool {
	return b.round.refused(b.attempt.queue) && !b.waitedFor(b.alone(), b.votesUntil())
}

// alone names the holder that only the queue node knows, of a key that a majority would
// grant, for this fence or a larger one; "" when there is none. Readers wait also
// for an owner in the queue.
func (b *Ballot) alone() (owner string) {
	r := &b.round
	if !r.refused(b.attempt.queue) || r.would(b.nodes).Len() < b.Need() {
		return ""
	}
	res := r.answers[b.attempt.queue].Result
	if r.ask.Mode == driver.Shared && res.Holder.Mode == driver.Shared || res.Left < turnTime && b.heeded.owner != res.Holder.Owner {
		return ""
	}
	return res.Holder.Owner
}

// heeds names the holder that alone names; or named last, where the queue node names it
// still, and what was not answered may make the majority.
func (b *Ballot) heeds() (owner string) {
	r := &b.round
	if owner = b.alone(); owner != "" || !r.refused(b.attempt.queue) {
		return owner
	}
	would := r.would(b.nodes)
	for i := range b.nodes {
		if r.answers[i].Kind != Answered {
			would.Add(i)
		}
	}
	if owner = r.answers[b.attempt.queue].Result.Holder.Owner; would.Len() >= b.Need() && b.heeded.owner == owner {
		return owner
	}
	return ""
}

// queueFence is above what a proposal must be at the queue node, which refused; 0: not known.
func (b *Ballot) queueFence() uint64 {
	if b.attempt.queue == None {
		return 0
	}
	return b.round.answers[b.attempt.queue].Result.Fence
}

// votesUntil says until when the queue node keeps the key for the holder that heeds
// names, where that moves on for as long as that one asks: a writer that has the queue
// node's vote, and waits for readers that were there before it. Those that read wait for
// it. 0: it is heeded for half a second, whether it asks or not.
func (b *Ballot) votesUntil() time.Duration {
	r := &b.round
	if b.attempt.queue == None || r.ask.Mode != driver.Shared {
		return 0
	}
	if res := r.answers[b.attempt.queue].Result; res.Holder.Mode == driver.Exclusive {
		return b.attempt.view.Now + res.Left
	}
	return 0
}
