// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

const (
	// freeFor is how long a key may be free, or open to a waiter, while it waits: until
	// it looks (0.3 s), and for as long as it heeds a holder that only the queue node
	// knows (0.5 s); with the time-outs of nodes less than this. See docs/engines.md.
	freeFor = time.Second
	// recovers is how much longer it may take after a time without a majority: until a
	// probe that had no answer is given up (1 s) and sent again (0.4 s), and a waiter
	// asks once more after errors (1 s).
	recovers = 2400 * time.Millisecond
	// lookStep is how often the key is looked at.
	lookStep = 20 * time.Millisecond
)

// waiter is an owner in the queue.
type waiter struct {
	p      *process
	owner  string
	shared bool
}

// idle looks for a key that nobody uses while somebody waits for it. It sees the
// nodes themselves, and changes nothing there.
type idle struct {
	w       *world
	since   map[string]time.Duration // for each owner in the queue: since when it could have the key
	grants  int
	last    time.Duration             // when it looked before
	alone   map[*client]time.Duration // when each had no majority
	longest time.Duration
	found   []string
	over    chan struct{}
}

func newIdle(w *world) *idle {
	return &idle{w: w, since: map[string]time.Duration{}, alone: map[*client]time.Duration{}, over: make(chan struct{})}
}

// watch looks until the run is over.
func (i *idle) watch() {
	tick := time.NewTicker(lookStep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			i.look()
		case <-i.over:
			return
		}
	}
}

func (i *idle) look() {
	now := i.w.now()
	step := now - i.last
	i.last = now
	var waiters []waiter
	for _, c := range i.w.clients {
		if wt, ok := c.waits(); ok {
			waiters = append(waiters, wt)
		}
	}
	i.notes(now)
	was := i.since
	i.since = map[string]time.Duration{}
	if grants := i.w.log.count(); grants != i.grants || len(waiters) == 0 || !i.fair() {
		i.grants = grants
		return
	}
	states := make([]state, len(i.w.nodes))
	handed := false // to a place that nobody has: that lasts for its claim, and does not count
	for n, node := range i.w.nodes {
		states[n] = node.state(i.live(waiters, node))
		handed = handed || states[n].handed
	}
	// Who has a vote, and is kept from the others by a cut or by what is not released
	// yet, keeps those behind it waiting: all of them wait for that.
	kept := map[string]bool{}
	for _, wt := range waiters {
		kept[wt.owner] = !i.open(wt, waiters, states, nil)
	}
	for _, wt := range waiters {
		if !i.open(wt, waiters, states, kept) {
			continue
		}
		since, ok := was[wt.owner]
		switch {
		case !ok:
			since = now
		case handed, i.behindNobody(wt, states):
			since += step
		}
		if bad, ok := i.alone[wt.p.c]; ok {
			since = max(since, min(now, bad+recovers))
		}
		i.since[wt.owner] = since
		free := now - since
		if i.longest < freeFor && free >= freeFor {
			i.found = append(i.found, fmt.Sprintf("client %d, owner %s, waits beside a key that it could have since %.6f, at %.6f still",
				wt.p.c.index, short(wt.owner), since.Seconds(), now.Seconds()))
			i.w.trace.add(entry{kind: "could have the key", client: wt.p.c.index, life: wt.p.life, owner: wt.owner})
		}
		i.longest = max(i.longest, free)
	}
}

// behindNobody says that one waits behind a place whose owner cannot come: it is cut off
// from that node; or a request that came later than its owner's release is remembered
// has made the place. Either stands for its patience.
func (i *idle) behindNobody(wt waiter, states []state) bool {
	ghosts := i.w.plan.Weather.LateBy > slices.Min(i.w.plan.TTLs)
	return slices.ContainsFunc(states, func(s state) bool {
		nobody := slices.IndexFunc(s.line, func(o string) bool {
			reaches, waits := s.live[o]
			return waits && !reaches || !waits && ghosts
		})
		return 0 <= nobody && nobody < slices.Index(s.line, wt.owner)
	})
}

// notes sees which clients have no majority now, or a network that loses messages.
func (i *idle) notes(now time.Duration) {
	for _, c := range i.w.clients {
		reached := 0
		for _, n := range i.w.nodes {
			if n.up() && i.w.joined(c, n) {
				reached++
			}
		}
		if reached <= len(i.w.nodes)/2 || !i.w.weather().fine() {
			i.alone[c] = now
		}
	}
}

// up says that the node answers.
func (n *node) up() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down == 0 && n.stopped == 0
}

// fair says that the bound holds now: messages arrive, soon and once, and no process
// stands still, or has died a short while ago, that may be next in the queue.
func (i *idle) fair() bool {
	if !i.w.weather().fine() {
		return false
	}
	for _, c := range i.w.clients {
		if c.absent() {
			return false
		}
	}
	return true
}

// fine says that messages arrive soon.
func (w Weather) fine() bool {
	return w.Lost == 0 && w.Late == 0 && w.Reset == 0 && w.SlowBy <= 30*time.Millisecond
}

// live are the owners of those who wait, and can give back what they have at a node.
func (i *idle) live(waiters []waiter, n *node) map[string]bool {
	live := make(map[string]bool, len(waiters))
	for _, wt := range waiters {
		live[wt.owner] = i.w.joined(wt.p.c, n)
	}
	return live
}

// joined says that nothing is cut between a client and a node.
func (w *world) joined(c *client, n *node) bool { return !w.cut(CutOut, c, n) && !w.cut(CutIn, c, n) }

// state is what a node would vote for.
type state struct {
	votes  bool     // it answers, and votes
	used   bool     // somebody has the key there who does not wait for it
	reads  bool     // and only reads
	waits  []string // who of those that wait has it there
	line   []string // who waits there
	live   map[string]bool
	handed bool // it was handed on there to one who does not wait, and has not claimed it
}

// state looks at a copy of the node: one that is looked at itself hands the key on.
func (n *node) state(live map[string]bool) (s state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down > 0 || n.stopped > 0 {
		return s
	}
	n.store.Renew(context.Background(), []driver.RenewRequest{{Claim: driver.Claim{Key: "votes"}, TTL: time.Millisecond}}, func(_ int, r driver.Renewal) {
		s.votes = errors.Is(r.Err, driver.ErrNotHeld)
	})
	image := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: n.w.plan.MaxTTL, Now: n.clock.now})
	image.Restart(n.store.Snapshot())
	info, err := image.Inspect(context.Background(), key)
	if err != nil {
		panic(err)
	}
	s.reads, s.live = true, live
	for _, h := range info.Queue {
		s.line = append(s.line, h.Owner)
	}
	for _, h := range info.Holders {
		if live[h.Holder.Owner] {
			s.waits = append(s.waits, h.Holder.Owner)
		} else {
			s.used = true
			s.handed = s.handed || h.Fence == 0
			s.reads = s.reads && h.Holder.Mode == driver.Shared
		}
	}
	return s
}

// open says that a majority would vote for one that waits, though some of those that
// wait are kept from a majority of their own.
func (i *idle) open(wt waiter, all []waiter, states []state, kept map[string]bool) bool {
	beside := wt.shared // others who read, unless somebody before it may want to write
	for _, o := range all {
		beside = beside && o.shared
	}
	votes := 0
	for n, s := range states {
		blocked := slices.ContainsFunc(s.waits, func(o string) bool { return o != wt.owner && kept[o] })
		if s.votes && !blocked && (!s.used || beside && s.reads) && i.w.joined(wt.p.c, i.w.nodes[n]) {
			votes++
		}
	}
	return votes > len(states)/2
}

// waits says who of the client's owners is in the queue, if it runs.
func (c *client) waits() (waiter, bool) {
	c.mu.Lock()
	p, asleep := c.cur, time.Now().Before(c.asleep)
	c.mu.Unlock()
	if p == nil || asleep || p.crashed() {
		return waiter{}, false
	}
	p.asks.mu.Lock()
	defer p.asks.mu.Unlock()
	wt := p.asks.waits
	return wt, wt.p != nil
}

// absent says that the client stands still or died, or did so a short while ago.
func (c *client) absent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.missed) < 2*c.w.plan.MaxTTL
}
