// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// count is the count of the votes of one Try.
type count struct {
	d    *Driver
	b    *bid
	r    driver.VoteRequest // as the nodes are asked
	head *node              // the line node; nil: none will do

	answers [maxNodes]*answer
	waits   set       // for whose answers the round waits
	votes   []*answer // a majority for one fence
	twin    error
	last    bool  // there is no other round
	stands  bool  // it is about a lease that a majority granted before
	wakes   *node // whose answer to a Convert is waited for: those in line are woken there
	// scouts: not every node was heard before. Then everybody is waited for, since
	// one server may be listed twice, and only then it is known which is the line
	// node.
	scouts bool
}

// take counts an answer.
func (c *count) take(a *answer) {
	c.answers[a.n.index] = a
	c.waits.drop(a.n)
	if a.err != nil {
		return
	}
	for _, n := range c.d.nodes {
		if o := c.answers[n.index]; o != a && o.res.Node != "" && o.res.Node == a.res.Node {
			c.twin = &twinError{o.n.name, a.n.name}
		}
	}
	if c.head == a.n && !a.res.Granted && a.res.Why == driver.Held && c.d.traits.MaxTTL > 0 && a.res.Left > c.d.traits.MaxTTL {
		c.head = nil // its clock was stepped back: it would be in the way for as long
	}
	if given := c.b.gaveBack(a.n); a.res.Granted && a.res.Fence <= given {
		// A release is under way that takes this vote: it counts with a larger fence.
		a.res = driver.Result{Why: driver.FenceTooLow, Fence: max(given, fenceOf(c.r)), Node: a.res.Node}
	}
	if !a.res.Granted {
		c.b.learns(a.res, fenceOf(c.r), c.d.clock.limit())
		return
	}
	var votes []*answer
	for _, o := range c.answers {
		if o != nil && o.err == nil && o.res.Granted && o.res.Fence == a.res.Fence {
			votes = append(votes, o)
		}
	}
	if len(votes) >= c.d.need {
		c.votes = votes
	}
}

// elected says that a majority granted one fence, and that the line node is not
// against it. Its refusal is respected for the sake of those in line, and when
// the proposal was too low for it only, it is asked with another.
func (c *count) elected() bool {
	if len(c.votes) < c.d.need || c.twin != nil || c.scouts {
		return false
	}
	if c.head == nil {
		return true
	}
	low := c.tooLow(c.head) && !c.last && c.answers[c.head.index].res.Fence < c.d.clock.limit()
	return !c.waits.has(c.head) && !c.keptBy(c.head) && !low
}

// keptBy says that the line node refuses, and is heeded.
func (c *count) keptBy(head *node) bool {
	return c.refusedBy(head) && !c.b.waitedFor(c.alone(), c.lives())
}

const (
	// heedTime is how long the line node alone can keep a key from those whom a majority
	// would grant it. A node whose clock was set back, or that a release did not reach,
	// would do so for as long as a lease lasts that is over elsewhere.
	heedTime = 500 * time.Millisecond
	// turnTime is longer than the key is kept for whoever is first in line: what lasts
	// for less may be that, and ends by itself.
	turnTime = 600 * time.Millisecond
)

// alone names the holder that only the line node knows, of a key that a majority would
// grant, for this fence or a larger one; "" when there is none. Those who read wait also
// for one in line.
func (c *count) alone() (owner string) {
	would := 0
	for _, n := range c.d.nodes {
		if c.grantedBy(n) || c.tooLow(n) {
			would++
		}
	}
	if c.head == nil || would < c.d.need || !c.refusedBy(c.head) {
		return ""
	}
	res := c.answers[c.head.index].res
	if c.r.Mode == driver.Shared && res.Holder.Mode == driver.Shared || res.Left < turnTime && !c.b.keptFrom(res.Holder.Owner) {
		return ""
	}
	return res.Holder.Owner
}

// lives says until when the line node keeps the key for the holder that heeds names, by
// our clock, where that moves on for as long as that one asks: a writer that has the line
// node's vote, and waits for readers that were there before it. Those that read wait
// for it; zero: it is heeded for half a second, whether it asks or not.
func (c *count) lives() time.Time {
	if c.head == nil || c.r.Mode != driver.Shared {
		return time.Time{}
	}
	if res := c.answers[c.head.index].res; res.Holder.Mode == driver.Exclusive {
		return time.Now().Add(res.Left)
	}
	return time.Time{}
}

// heeds names the holder that alone names; or named last, where the line node names
// it still, and what was not answered may make the majority.
func (c *count) heeds() (owner string) {
	if owner = c.alone(); owner != "" || c.head == nil || !c.refusedBy(c.head) {
		return owner
	}
	would := 0
	for _, n := range c.d.nodes {
		if c.grantedBy(n) || c.tooLow(n) || c.answers[n.index].err != nil {
			would++
		}
	}
	if owner = c.answers[c.head.index].res.Holder.Owner; would >= c.d.need && c.b.keptFrom(owner) {
		return owner
	}
	return ""
}

// tooLow says that the proposal was too low for a node.
func (c *count) tooLow(n *node) bool { return c.says(n, driver.FenceTooLow) }

// refusedBy says that a node has another holder, or others in line.
func (c *count) refusedBy(n *node) bool { return c.says(n, driver.Held) }

// says says that a node refused for that reason.
func (c *count) says(n *node, why driver.Why) bool {
	a := c.answers[n.index]
	return a.err == nil && !a.res.Granted && a.res.Why == why
}

// won is the result of a majority.
func (d *Driver) won(c *count) driver.Result {
	res := driver.Result{Granted: true, Fence: c.votes[0].res.Fence, Fences: max(c.r.Fences, 1)}
	ttls := make([]time.Duration, 0, maxNodes)
	for _, v := range c.votes {
		ttls = append(ttls, v.res.TTL)
		res.Fences = min(res.Fences, max(v.res.Fences, 1))
	}
	res.Abandoned = c.abandoned()
	slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	res.TTL = ttls[d.need-1]
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.stands && !c.r.Convert { // asked again: those that knew may be silent now
		res.Abandoned = res.Abandoned || b.marked
	}
	b.marked = res.Abandoned
	b.elected, b.leased, b.lost, b.counts = res.Fence, true, 0, false
	for _, v := range c.votes { // the answer to an older Try may have come since
		b.has.add(v.n)
	}
	b.moveTo(nil, false)
	return res
}

// abandoned says that a holder before did not finish. One node that voted knows it:
// of the majority that did, the others may have forgotten, or be away.
func (c *count) abandoned() bool {
	return slices.ContainsFunc(c.answers[:], func(a *answer) bool {
		return a != nil && a.err == nil && a.res.Granted && a.res.Abandoned
	})
}

// waitsOn says that an owner that is elected should have the answer of more nodes:
// what they know of a holder that did not finish is over when this one does, and would
// be told to one after it.
func (c *count) waitsOn() bool {
	return c.wakes != nil && c.waits.has(c.wakes) ||
		c.waits != 0 && c.r.Mode == driver.Exclusive && c.abandoned()
}

// again prepares another round with a higher fence, where that may help: the
// proposal was too low somewhere, or nodes have granted this owner different
// ones.
func (c *count) again() bool {
	if c.twin != nil || c.r.Proposal == c.b.lease() || c.head != nil && c.keptBy(c.head) {
		return false
	}
	var atLeast []uint64 // what each node would grant
	low := false
	for _, n := range c.d.nodes {
		switch a := c.answers[n.index]; {
		case c.tooLow(n):
			low = true
			atLeast = append(atLeast, a.res.Fence+1)
		case c.grantedBy(n):
			atLeast = append(atLeast, a.res.Fence)
		}
	}
	slices.Sort(atLeast)
	turn := c.head != nil && c.tooLow(c.head) // the key is ours there, for a larger fence
	if !turn && len(atLeast) < c.d.need || !low && atLeast[0] == atLeast[len(atLeast)-1] {
		return false
	}
	// A node whose fences are far ahead is left out when a majority is without it:
	// the others would refuse what it wants.
	//
	// Nodes whose clocks are far behind refuse the proposal for being too large, and
	// any above it; when it takes their votes, it must become smaller.
	near := slices.Clone(atLeast)
	for _, n := range c.d.nodes {
		if a := c.answers[n.index]; c.tooLow(n) && a.res.Fence < c.r.Proposal {
			i, _ := slices.BinarySearch(near, a.res.Fence+1)
			near = slices.Delete(near, i, i+1)
		}
	}
	h, limit := atLeast[min(c.d.need, len(atLeast))-1], c.d.clock.limit()
	if len(near) >= c.d.need {
		h = near[c.d.need-1]
		for _, more := range near {
			if more <= limit {
				h = max(h, more)
			}
		}
	}
	c.d.clock.saw(h)
	c.r.Proposal, c.r.Raise = h, true
	return true
}

// split says that we have the line node's vote, and others have others': those
// who asked at the same time give back what they have, and the holder before us,
// if the line node was handed on, is about to be released everywhere.
func (c *count) split() bool {
	return c.twin == nil && c.head != nil && c.grantedBy(c.head) && slices.ContainsFunc(c.d.nodes, c.refusedBy)
}

// overruled says that a node that comes before the line node has another holder:
// somebody else sees another line node. Who keeps one vote and waits for others
// must do so in one order, or all wait for each other.
func (c *count) overruled() bool {
	return slices.ContainsFunc(c.d.nodes, func(n *node) bool {
		return n != c.head && c.refusedBy(n) && n.lifeName() < c.head.lifeName()
	})
}
