// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// lost gives back what a minority granted, and says why there was no majority.
func (d *Driver) lost(ctx context.Context, c *count) (driver.Result, error) {
	c.b.sees(c.heeds(), c.lives())
	errs, silent := c.errors()
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

// errors are why nodes said nothing about the key, and how many those are.
func (c *count) errors() (errs [maxNodes]error, silent int) {
	for _, n := range c.d.nodes {
		a := c.answers[n.index]
		if errs[n.index] = a.err; a.err == nil && !a.res.Granted && a.res.Why == driver.TTLTooLong {
			errs[n.index] = &tooLong{a.res.TTL, c.r.TTL}
		}
		if errs[n.index] != nil {
			silent++
		}
	}
	return errs, silent
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
	tries := b.tries
	b.mu.Unlock()
	switch {
	case stays:
	case b.blank():
		d.bids.drop(c.r.Claim)
	default: // whoever waits asks again at once
		d.spawn(func() {
			for d.sleep(comeBack) {
				if !d.listens(b) {
					d.gone(b, tries)
					return
				}
			}
		})
	}
}

// comeBack is how long an owner that was refused may take to ask again, before
// nodes that have not answered are told that it is gone.
const comeBack = 4 * time.Second

// gone releases what may be left of an owner that did not ask again.
func (d *Driver) gone(b *bid, tries int) {
	defer b.dropIfOver(d)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.tries > tries {
		return
	}
	b.over, b.end = true, driver.Unused
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
	// maxGateBackoff is of one that has the line node's vote: it asks twice at least
	// while others heed it.
	maxGateBackoff = heedTime / 4
)

// refusal describes who is in the way.
func (c *count) refusal() driver.Result {
	res := driver.Result{Why: driver.Held}
	owners := map[string]int{}
	released := 0
	var lefts []time.Duration // until each node may vote for us
	for _, n := range c.d.nodes {
		switch a := c.answers[n.index]; {
		case a.err != nil:
		case c.says(n, driver.Released):
			released++
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
	if released > len(c.d.nodes)-c.d.need {
		res.Why = driver.Released
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
		if left := c.b.heedsFor(c.heeds()); left > 0 && (res.RetryIn == 0 || res.RetryIn > left) {
			res.RetryIn = left
		}
		return res
	}
	// It is our turn, or there is no line: ask again after a random delay that
	// grows, unless a hint comes first. Whoever has the line node's vote is alone
	// with it, and asks soon.
	c.b.mu.Lock()
	lost, gate := c.b.lost, c.b.gate
	c.b.mu.Unlock()
	step := min(minBackoff<<min(lost, 10), maxGateBackoff)
	if !gate {
		step = 2 * min(minBackoff<<min(lost, 10), maxBackoff)
	}
	res.RetryIn = step + rand.N(step)
	return res
}
