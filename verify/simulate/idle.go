// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

const (
	// freeFor bounds how long a key may be free, or available to a waiter, while it waits: until the waiter inspects the nodes (0.3
	// s), and for as long as it respects a holder that only the queue node knows (0.5 s); less than this with the timeouts of
	// nodes. See docs/results/campaigns.md.
	freeFor = time.Second
	// recovers is how much longer it may take after a node did not answer without which there is no majority: until an unanswered
	// probe is given up (1 s) and sent again (0.4 s), and a waiter asks again after errors (1 s).
	recovers = 2400 * time.Millisecond
	// lookStep is how often the nodes are inspected.
	lookStep = 20 * time.Millisecond
)

// waiter is an owner in the queue.
type waiter struct {
	p      *process
	owner  string
	shared bool
}

// idle detects a key that is not used while an owner waits for it. It inspects the nodes directly, and changes nothing there.
type idle struct {
	w       *world
	since   map[string]time.Duration // for each owner in the queue: since when it could have the key
	asked   map[string]*client       // the client of each owner that was seen to wait
	grants  int
	last    time.Duration            // the previous inspection
	apart   map[way]time.Duration    // when each client last did not reach each node
	excused map[string]time.Duration // for how long each owner in the queue has been behind a writer that is cut off
	longest time.Duration
}

// way is the way from a client to a node.
type way struct {
	c *client
	n *node
}

// watch inspects the nodes until the run is over.
func (i *idle) watch(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(lookStep)
		i.look()
	}
}

// look is one inspection: the waiters, and what each node would vote for.
type look struct {
	*idle
	waiters []waiter
	states  []state
	kept    map[string]bool // waiters that cannot get a majority themselves: the votes that they have are not available
}

func (i *idle) look() {
	now := i.w.now()
	step := now - i.last
	i.last = now
	l := look{idle: i, kept: map[string]bool{}}
	for _, c := range i.w.clients {
		if wt, ok := c.waits(); ok {
			l.waiters = append(l.waiters, wt)
			i.asked[wt.owner] = c
		}
	}
	i.noteApart(now)
	was := i.since
	i.since = map[string]time.Duration{}
	if grants := i.w.grants(); grants != i.grants || len(l.waiters) == 0 || !i.applies() {
		i.grants = grants
		return
	}
	handedOff := false // to an owner that is gone: that lasts for the claim time, and does not count
	for _, n := range i.w.nodes {
		l.states = append(l.states, l.state(n))
		handedOff = handedOff || l.states[n.index].handedOff
	}
	// A waiter that has a vote makes all waiters behind it wait while it cannot get the others: because of votes that
	// are not withdrawn yet, or of a cut, until it has found out that the cut is over.
	kept := map[string]bool{}
	for _, wt := range l.waiters {
		whole, open := l.open(wt)
		kept[wt.owner] = !open || whole > 0 && now < whole+recovers
	}
	l.kept = kept
	for _, wt := range l.waiters {
		whole, open := l.open(wt)
		if !open {
			continue
		}
		since, ok := was[wt.owner]
		switch {
		case !ok:
			since, i.excused[wt.owner] = now, 0
		case handedOff, l.behindAbsent(wt):
			since += step
		case i.excused[wt.owner] < i.blocks() && l.behindCutOff(wt):
			since += step
			i.excused[wt.owner] += step
		}
		if whole > 0 {
			since = max(since, min(now, whole+recovers))
		}
		i.since[wt.owner] = since
		free := now - since
		if i.longest < freeFor && free >= freeFor {
			i.w.find(Free, "%v, owner %s, could have the key since %.6f, and still waits at %.6f",
				wt.p, short(wt.owner), since.Seconds(), now.Seconds())
			i.w.trace.add("%v %s COULD HAVE THE KEY", wt.p, wt.owner)
		}
		i.longest = max(i.longest, free)
	}
}

// behindAbsent reports whether a waiter is behind a place of an owner that cannot claim the key: the owner is
// cut off from that node, or gave up while its client is, or a late request made the place after the node had
// forgotten the owner's release. Each such place lasts for its patience.
func (l *look) behindAbsent(wt waiter) bool {
	leftovers := l.w.plan.Network.LateBy > driver.MaxTransit
	return slices.ContainsFunc(l.states, func(s state) bool {
		absent := slices.IndexFunc(s.queue, func(o string) bool {
			if i := slices.IndexFunc(l.waiters, func(w waiter) bool { return w.owner == o }); i >= 0 {
				return !l.w.joined(l.waiters[i].p.c, s.node)
			}
			c := l.asked[o]
			return leftovers || c != nil && !l.w.joined(c, s.node)
		})
		at := slices.Index(s.queue, wt.owner)
		if at < 0 { // it waits at another node, and is behind all that wait here
			at = len(s.queue)
		}
		return 0 <= absent && absent < at
	})
}

// behindCutOff reports whether a waiter that reads is behind a writer that waits, cannot get a majority itself, and
// is cut off from a node.
func (l *look) behindCutOff(wt waiter) bool {
	return wt.shared && slices.ContainsFunc(l.waiters, func(o waiter) bool {
		if o.shared || !l.kept[o.owner] || !slices.ContainsFunc(l.w.nodes, func(n *node) bool { return !l.w.joined(o.p.c, n) }) {
			return false
		}
		return slices.ContainsFunc(l.states, func(s state) bool {
			at := slices.Index(s.queue, o.owner)
			return 0 <= at && at < slices.Index(s.queue, wt.owner)
		})
	})
}

// blocks is how long the leases may last that block such a writer.
func (i *idle) blocks() time.Duration { return slices.Max(i.w.plan.TTLs) + i.w.plan.SetBack }

// noteApart records which clients do not reach which nodes now, or have a network that loses messages.
func (i *idle) noteApart(now time.Duration) {
	for _, c := range i.w.clients {
		for _, n := range i.w.nodes {
			n.mu.Lock()
			up := n.down == 0 && n.stopped == 0
			n.mu.Unlock()
			if !up || !i.w.joined(c, n) || !i.w.network().healthy() {
				i.apart[way{c, n}] = now
			}
		}
	}
}

// applies reports whether the bound applies now: messages arrive promptly, and no
// process that may be next in the queue is suspended or crashed a short while ago.
func (i *idle) applies() bool {
	if !i.w.network().healthy() {
		return false
	}
	for _, c := range i.w.clients {
		if c.absent() {
			return false
		}
	}
	return true
}

// healthy reports whether messages arrive promptly.
func (w Network) healthy() bool {
	return w.Lost == 0 && w.Late == 0 && w.Reset == 0 && w.SlowBy <= 30*time.Millisecond
}

// joined reports whether a client and a node reach each other.
func (w *world) joined(c *client, n *node) bool { return !w.cut(CutOut, c, n) && !w.cut(CutIn, c, n) }

// state is what a node would vote for.
type state struct {
	node      *node
	votes     bool     // it answers, and votes
	used      bool     // an owner that does not wait has the key there
	reads     bool     // and all that have it only read
	waits     []string // the waiting owners that have it there
	queue     []string // the waiters there
	handedOff bool     // it was handed off to an owner that does not wait, and has not claimed it
}

// state inspects a copy of the node, because inspecting the node itself may hand the key off.
func (l *look) state(n *node) state {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := state{node: n, reads: true}
	if n.down > 0 || n.stopped > 0 {
		return s
	}
	n.store.Renew(context.Background(), []driver.RenewRequest{{Claim: driver.Claim{Key: "votes"}, TTL: time.Millisecond}}, func(_ int, r driver.Renewal) {
		s.votes = errors.Is(r.Err, driver.ErrNotHeld)
	})
	n.image.Restart(n.store.Snapshot())
	info, err := n.image.Inspect(context.Background(), key)
	if err != nil {
		panic(err)
	}
	for _, h := range info.Queue {
		s.queue = append(s.queue, h.Owner)
	}
	for _, h := range info.Holders {
		wt := slices.IndexFunc(l.waiters, func(w waiter) bool { return w.owner == h.Holder.Owner })
		if wt >= 0 && l.w.joined(l.waiters[wt].p.c, n) { // it can withdraw its vote
			s.waits = append(s.waits, h.Holder.Owner)
		} else {
			s.used = true
			s.handedOff = s.handedOff || h.Fence == 0
			s.reads = s.reads && h.Holder.Mode == driver.Shared
		}
	}
	return s
}

// open reports whether a majority would vote for a waiter, and when that majority was last not whole for its client.
func (l *look) open(wt waiter) (whole time.Duration, open bool) {
	// It may share with other readers, unless a waiter before it may want to write.
	beside := !slices.ContainsFunc(l.waiters, func(o waiter) bool { return !o.shared })
	var votes []time.Duration // when each was last out of reach
	for _, s := range l.states {
		blocked := slices.ContainsFunc(s.waits, func(o string) bool { return o != wt.owner && l.kept[o] })
		if s.votes && !blocked && (!s.used || beside && s.reads) && l.w.joined(wt.p.c, s.node) {
			votes = append(votes, l.apart[way{wt.p.c, s.node}])
		}
	}
	if len(votes) <= len(l.states)/2 {
		return 0, false
	}
	slices.Sort(votes)
	return votes[len(l.states)/2], true
}

// waits returns the client's owner in the queue, if the client runs.
func (c *client) waits() (waiter, bool) {
	c.mu.Lock()
	p, asleep := c.cur, c.w.now() < c.asleep
	c.mu.Unlock()
	if p == nil || asleep || p.crashed() {
		return waiter{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits, p.waits.p != nil
}

// absent reports whether the client is suspended or crashed, or was so a short while ago.
func (c *client) absent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.now() < c.missed+2*c.w.plan.MaxTTL
}
