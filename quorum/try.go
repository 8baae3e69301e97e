// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	d.bids.converting(r)
	if err := d.check(ctx, r.Claim); err != nil {
		return driver.Result{}, err
	}
	if err := r.Check(); err != nil {
		return driver.Result{}, fmt.Errorf("redlock: %w", err)
	}
	if r.TTL < d.traits.MinTTL || d.traits.MaxTTL > 0 && r.TTL > d.traits.MaxTTL {
		return driver.Result{}, fmt.Errorf("redlock: the TTL is %v: it must be between %v and %v", r.TTL, d.traits.MinTTL, d.traits.MaxTTL)
	}
	b := d.bids.open(r)
	if err := b.enter(ctx); err != nil {
		return driver.Result{}, err
	}
	defer b.leave()
	res, err := d.ask(ctx, b, r)
	if err != nil && b.blank() {
		d.bids.drop(r.Claim) // nobody may release it
		err = driver.NotSent(err)
	}
	return res, err
}

// ask is Try by the one who has the turn of a bid.
func (d *Driver) ask(ctx context.Context, b *bid, r driver.TryRequest) (driver.Result, error) {
	c := &count{d: d, b: b, r: driver.VoteRequest{TryRequest: r}, head: d.head.Load()}
	switch mode, leased, converted := b.held(); {
	case r.Convert, leased && converted && r.Mode == mode:
		return d.convert(ctx, c)
	case leased && r.Mode != mode: // it was overtaken by a Convert
		return driver.Result{Why: driver.Held, Holder: driver.Holder{Owner: r.Owner, Label: r.Label, Mode: mode}}, nil
	}
	b.begin(r)
	c.r.Proposal, c.r.Raise = b.fence(&d.clock)
	c.scouts = !d.met.Load()
	if c.stands = b.lease() != 0; c.stands { // nobody in line is overtaken
		c.head, c.scouts, c.last = nil, false, true
	}
	c.r.Queue = r.Queue && !c.scouts
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
		if r.Queue && !c.r.Queue {
			c.r.Queue, again = true, true
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
	if c.stands && !c.overturned() {
		return driver.Result{}, d.inDoubt(c)
	}
	return d.lost(ctx, c)
}

// fenceOf is the fence that a node is asked for, or with a Convert, that it has.
func fenceOf(r driver.VoteRequest) uint64 {
	if r.Convert {
		return r.Fence
	}
	return r.Proposal
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

// round asks every node in service and returns when the outcome is known, or
// everybody answered or had their time.
func (c *count) round(ctx context.Context) error {
	c.answers, c.votes, c.waits = [maxNodes]*answer{}, nil, 0
	c.b.proposes(fenceOf(c.r))
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
		n.startVote(w.ctx, r, func(res driver.Result, err error) { n.tried(c.b, r, res, err, done) })
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
			if c.elected() && !c.waitsOn() {
				return nil
			}
		case <-patience.C:
			enough = true
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	c.waits = 0
	if c.scouts {
		c.d.met.Store(true)
		c.head, c.scouts = c.d.head.Load(), false
	}
	return nil
}

// tried notes an answer to a Vote, whenever it comes, and passes it on.
func (n *node) tried(b *bid, r driver.VoteRequest, res driver.Result, err error, pass func(driver.Result, error)) {
	// A node that refuses to write still answers what it can without.
	switch {
	case err == nil && (res.Granted || r.Queue && res.Why == driver.Held):
		n.recovers()
	case n.refuses(err):
		n.suffers()
	}
	if err == nil && res.Granted && r.Mode == driver.Shared {
		b.tells(n)
	}
	n.lives(res.Node)
	if err == nil && !res.Granted && res.Why == driver.NotVoting {
		err = &admission.HeldBack{Left: res.Left}
		n.leave(err)
	}
	b.returned(n, fenceOf(r), res, err)
	pass(res, err)
}

// refuses says whether an error is about the node: not about a key that holds
// something else, and not that we did not wait for an answer.
func (n *node) refuses(err error) bool {
	return err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, driver.ErrNotVoting) && n.drv.Classify(err) != driver.ClassMisconfigured
}
