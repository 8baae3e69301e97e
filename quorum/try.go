// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// How many rounds one Try may take. The second is enough unless others are granted
// the key in between. One that asks without the line, and may tell somebody no, is
// more patient with others who ask at the same time: for some node time-outs.
const (
	maxRounds = 4
	splitTime = 4
	maxPause  = 16 * time.Millisecond
)

// Try asks all nodes at once; see [driver.Driver].
func (d *Driver) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	if err := d.check(r); err != nil {
		return driver.Result{}, err
	}
	if r.Fence != 0 {
		return driver.Result{}, fmt.Errorf("redlock: a proposed fence: %w", driver.ErrUnsupported)
	}
	if r.TTL < d.traits.MinTTL || d.traits.MaxTTL > 0 && r.TTL > d.traits.MaxTTL {
		return driver.Result{}, fmt.Errorf("redlock: the TTL is %v: it must be between %v and %v", r.TTL, d.traits.MinTTL, d.traits.MaxTTL)
	}
	b := d.bids.open(r)
	if err := b.enter(ctx); err != nil {
		return driver.Result{}, err
	}
	defer b.leave()
	b.begin(r)
	c := &count{d: d, b: b, r: r, head: d.head.Load()}
	c.r.Fence, c.r.Raise = b.fence(&d.clock)
	// Until every node was heard once, it is not known which is the line node.
	scouts := !d.met.Load()
	c.r.Queue = r.Queue && !scouts
	begun := time.Now()
	for i := 1; ; i++ {
		c.last = i >= maxRounds && (r.Queue || time.Since(begun) > splitTime*d.timeout(r.TTL))
		if err := c.round(ctx); err != nil {
			return driver.Result{}, err // whoever asked releases it
		}
		if c.elected() {
			return d.won(c), nil
		}
		again := c.again()
		if scouts && r.Queue {
			scouts, c.r.Queue, again = false, true, true
		}
		if c.last || !again && !c.split() {
			break
		}
		if again && i < maxRounds {
			continue
		}
		step := min(minBackoff/16<<min(i, 10), maxPause)
		pause := time.NewTimer(step + rand.N(step))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return driver.Result{}, ctx.Err()
		}
	}
	return d.lost(ctx, c)
}

// fence is what a bid proposes. What nodes may still have for an earlier proposal
// is raised to it.
func (b *bid) fence(clock *proposals) (fence uint64, raise bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.elected != 0 {
		return b.elected, false
	}
	clock.saw(b.seen)
	if fence = clock.next(); b.far && b.seen > 0 {
		fence = b.seen + 1 // our clock is ahead of a node's: not to put the others ahead of it, too
	}
	return max(fence, b.seen+1), b.tries > 1
}

// count is the count of the votes of one Try.
type count struct {
	d    *Driver
	b    *bid
	r    driver.Request // as the nodes are asked
	head *node          // the line node; nil: none will do

	answers [maxNodes]*answer
	waits   set       // for whose answers the round waits
	votes   []*answer // a majority for one fence
	twin    error
	last    bool // there is no other round
}

// round asks every node in service and returns when the outcome is known, or
// everybody answered or had their time.
func (c *count) round(ctx context.Context) error {
	c.answers, c.votes, c.waits = [maxNodes]*answer{}, nil, 0
	c.b.proposes(c.r.Fence)
	asked := make([]*node, 0, maxNodes)
	for _, n := range c.d.nodes {
		c.answers[n.index] = &answer{n: n, err: errSilent} // until it answers
		if err := n.trouble(); err != nil {
			c.answers[n.index].err = err
		} else if c.b.sends(n) {
			asked = append(asked, n)
			c.waits.add(n)
		}
	}
	w := c.d.newWave(c.r.TTL)
	w.send(asked, c.r.TTL, func(n *node, done func(driver.Result, error)) {
		r := c.r
		r.Queue = r.Queue && n == c.head
		n.startTry(w.ctx, r, func(res driver.Result, err error) { n.tried(c.b, r.Fence, res, err, done) })
	})
	// Nodes that are slower than most decide nothing but what errors say.
	patience := time.NewTimer(c.d.timeout(c.r.TTL))
	defer patience.Stop()
	enough := false
	for in := 0; c.waits != 0 && !(enough && in >= c.d.need); {
		select {
		case a := <-w.got:
			in++
			c.take(a)
			if c.elected() {
				return nil
			}
		case <-patience.C:
			enough = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.waits = 0
	if !c.d.met.Swap(true) {
		c.head = c.d.head.Load()
	}
	return nil
}

// tried notes an answer to a Try, whenever it comes, and passes it on.
func (n *node) tried(b *bid, fence uint64, res driver.Result, err error, pass func(driver.Result, error)) {
	if poor := err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled); n.poor.Load() != poor {
		n.poor.Store(poor)
		n.d.route()
	}
	n.lives(res.Node)
	if err == nil && !res.Granted && res.Why == driver.NotVoting {
		err = &admission.HeldBack{Left: res.Left}
		n.leave(err)
	}
	b.returned(n, fence, res, err)
	pass(res, err)
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
	if a.res.Granted && c.b.gaveBack(a.n, a.res.Fence) {
		// A release is under way that takes this vote: it counts with a larger fence.
		a.res = driver.Result{Why: driver.FenceTooLow, Fence: max(a.res.Fence, c.r.Fence), Node: a.res.Node}
	}
	if !a.res.Granted {
		c.b.learns(a.res, c.r.Fence, c.d.clock.limit())
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
	if len(c.votes) < c.d.need || c.twin != nil || !c.d.met.Load() {
		return false // the first time, everybody is heard: one server may be listed twice
	}
	if c.head == nil {
		return true
	}
	low := c.tooLow(c.head) && !c.last && c.answers[c.head.index].res.Fence < c.d.clock.limit()
	return !c.waits.has(c.head) && !c.refusedBy(c.head) && !low
}

// tooLow says that the proposal was too low for a node.
func (c *count) tooLow(n *node) bool {
	a := c.answers[n.index]
	return a.err == nil && !a.res.Granted && a.res.Why == driver.FenceTooLow
}

// refusedBy says that a node has another holder, or others in line.
func (c *count) refusedBy(n *node) bool {
	a := c.answers[n.index]
	return a.err == nil && !a.res.Granted && a.res.Why == driver.Held
}

// won is the result of a majority.
func (d *Driver) won(c *count) driver.Result {
	res := driver.Result{Granted: true, Fence: c.votes[0].res.Fence, Fences: max(c.r.Fences, 1)}
	ttls := make([]time.Duration, 0, maxNodes)
	abandoned := 0
	for _, v := range c.votes {
		ttls = append(ttls, v.res.TTL)
		res.Fences = min(res.Fences, max(v.res.Fences, 1))
		if v.res.Abandoned {
			abandoned++
		}
	}
	slices.SortFunc(ttls, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	res.TTL = ttls[d.need-1]
	res.Abandoned = abandoned >= d.need
	b := c.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.elected, b.leased, b.lost, b.counts = res.Fence, true, 0, false
	for _, v := range c.votes { // the answer to an older Try may have come since
		b.has.add(v.n)
	}
	b.moveTo(nil, false)
	return res
}

// again prepares another round with a higher fence, where that may help: the
// proposal was too low somewhere, or nodes have granted this owner different
// ones.
func (c *count) again() bool {
	if c.twin != nil || c.r.Fence == c.b.lease() || c.head != nil && c.refusedBy(c.head) {
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
		if a := c.answers[n.index]; c.tooLow(n) && a.res.Fence < c.r.Fence {
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
	c.r.Fence, c.r.Raise = h, true
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

// lost gives back what a minority granted, and says why there was no majority.
func (d *Driver) lost(ctx context.Context, c *count) (driver.Result, error) {
	var errs [maxNodes]error
	silent := 0
	for _, n := range d.nodes {
		a := c.answers[n.index]
		if errs[n.index] = a.err; a.err == nil && !a.res.Granted && a.res.Why == driver.TTLTooLong {
			errs[n.index] = &tooLong{a.res.TTL, c.r.TTL}
		}
		if errs[n.index] != nil {
			silent++
		}
	}
	few := silent > len(d.nodes)-d.need
	d.giveBack(ctx, c, few, c.r.Queue && !few && c.twin == nil && c.head != nil && c.grantedBy(c.head) && !c.overruled())
	switch {
	case c.twin != nil:
		return driver.Result{}, c.twin
	case few:
		d.waitsKnown(ctx, &errs)
		return driver.Result{}, d.tooFew(errs)
	}
	return c.refusal(), nil
}

// waitsKnown gives the probes of nodes that just said that they are held back a
// moment to find out for how long, which a person wants to know.
func (d *Driver) waitsKnown(ctx context.Context, errs *[maxNodes]error) {
	for range 10 {
		unknown := false
		for _, n := range d.nodes {
			held := (*admission.HeldBack)(nil)
			if !errors.As(errs[n.index], &held) || held.Left > 0 {
				continue
			}
			if now := n.trouble(); now != nil {
				errs[n.index] = now
			}
			unknown = unknown || !errors.As(errs[n.index], &held) || held.Left == 0
		}
		if !unknown || ctx.Err() != nil || !d.sleep(minTimeout/10) {
			return
		}
	}
}

func (c *count) grantedBy(n *node) bool {
	a := c.answers[n.index]
	return a.err == nil && a.res.Granted
}

// giveBack returns the votes of a minority, but for the line node's when gate: it
// keeps others from asking while this owner, whose turn it is, goes on to.
func (d *Driver) giveBack(ctx context.Context, c *count, few, gate bool) {
	b := c.b
	b.mu.Lock()
	stays := c.r.Queue || b.line != nil || few // a place is kept; after an error it is asked again, or released
	b.elected, b.counts = 0, false
	b.lost++
	if b.gate && !gate { // its vote goes back, too
		b.line, b.gate = nil, false
	}
	switch {
	case gate:
		b.moveTo(c.head, true)
	case stays && c.head != nil && c.refusedBy(c.head):
		b.moveTo(c.head, false)
		b.lost = 0
	case b.line != c.head: // nor where it was
		b.moveTo(nil, false)
	}
	var wait []<-chan struct{}
	for _, n := range d.nodes {
		switch {
		case gate && n == c.head:
		case b.has.has(n):
			wait = append(wait, b.giveBack(n))
		}
	}
	b.mu.Unlock()
	for _, done := range wait {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	b.mu.Lock()
	quiet, tries := b.quiet(), b.tries
	b.mu.Unlock()
	switch {
	case stays:
	case quiet:
		d.bids.drop(c.r)
	default: // whoever waits asks again at once
		d.spawn(func() {
			if d.sleep(comeBack) {
				d.gone(b, tries)
			}
		})
	}
}

// comeBack is how long an owner that was refused may take to ask again, before
// nodes that have not answered are told that it is gone.
const comeBack = 4 * time.Second

// gone releases what may be left of an owner that did not ask again.
func (d *Driver) gone(b *bid, tries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.tries > tries {
		return
	}
	b.over = true
	for _, n := range d.nodes {
		if b.unsure.has(n) || b.back.has(n) { // what has not answered yet is seen to when it does
			b.giveBack(n)
		}
	}
}

// lease is the fence of the lease, 0 when there is none.
func (b *bid) lease() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.elected
}

// moveTo notes where the owner stands in line, or has the line node's vote, and
// gives up a place elsewhere. mu is held.
func (b *bid) moveTo(n *node, gate bool) {
	old, hadGate := b.line, b.gate
	b.line, b.gate = n, gate
	if old != nil && old != n && !hadGate && !b.has.has(old) && b.settled(old) {
		b.giveBack(old)
	}
}

const (
	minBackoff = 2 * time.Millisecond
	maxBackoff = 500 * time.Millisecond
)

// refusal describes who is in the way.
func (c *count) refusal() driver.Result {
	res := driver.Result{Why: driver.Held}
	owners := map[string]int{}
	var lefts []time.Duration // until each node may vote for us
	for _, n := range c.d.nodes {
		switch a := c.answers[n.index]; {
		case a.err != nil:
		case a.res.Granted || a.res.Why != driver.Held:
			lefts = append(lefts, 0)
		default:
			lefts = append(lefts, a.res.Left)
			h := a.res.Holder
			if owners[h.Owner+h.Label]++; owners[h.Owner+h.Label] > owners[res.Holder.Owner+res.Holder.Label] || res.Holder == (driver.Holder{}) {
				res.Holder = h
			}
		}
	}
	slices.Sort(lefts)
	if len(lefts) >= c.d.need {
		res.Left = lefts[c.d.need-1]
	}
	if c.head != nil && c.refusedBy(c.head) {
		a := c.answers[c.head.index]
		res.Ahead = a.res.Ahead
		if res.RetryIn = a.res.RetryIn; res.RetryIn > 0 {
			res.RetryIn = max(res.RetryIn, res.Left)
		}
		return res
	}
	// It is our turn, or there is no line: ask again after a random delay that
	// grows, unless a hint comes first. Whoever has the line node's vote is alone
	// with it, and asks soon.
	c.b.mu.Lock()
	lost, gate := c.b.lost, c.b.gate
	c.b.mu.Unlock()
	step := min(minBackoff<<min(lost, 10), maxBackoff)
	if !gate {
		step *= 2
	}
	res.RetryIn = step + rand.N(step)
	return res
}
