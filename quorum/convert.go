// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// converting notes, before anything can fail, that the holder takes its lease for
// Shared from now on.
func (bs *bids) converting(r driver.TryRequest) {
	if b := bs.get(r.Claim); r.Convert && b != nil {
		b.mu.Lock()
		b.shares = b.shares || b.elected != 0
		b.mu.Unlock()
	}
}

// convert makes an Exclusive lease a Shared one, on all nodes at once: see
// [driver.TryRequest]. It stands once a majority has done so, each of them
// without a moment in which it had no vote. Nodes that missed it are told with the
// renewals.
func (d *Driver) convert(ctx context.Context, c *count) (driver.Result, error) {
	var ok bool
	if c.r.Fence, ok = c.b.converts(d, c.r.TryRequest); !ok {
		return driver.Result{Why: driver.Held}, nil
	}
	c.r.Convert, c.r.Queue, c.r.Fences = true, false, 0
	c.wakes, c.head, c.stands = c.head, nil, true // nobody in line is overtaken
	if err := c.round(ctx); err != nil {
		return driver.Result{}, err
	}
	switch {
	case c.elected():
		return d.won(c), nil
	case !c.overturned():
		return driver.Result{}, d.inDoubt(c)
	}
	if c.b.adopted() { // from nobody
		d.bids.drop(c.r.Claim)
	}
	res := c.refusal()
	res.RetryIn = 0
	return res, nil
}

// adopted says that the lease is of another process.
func (b *bid) adopted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tries == 0
}

// converts notes that a lease is to be Shared, and returns its fence, 0 when that is
// not known: a lease of another process. It is false for an owner without one.
func (b *bid) converts(d *Driver, r driver.TryRequest) (fence uint64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.over, b.tries > 0 && b.elected == 0:
		return 0, false
	case b.elected == 0:
		b.adopt(d, r.Fence)
		b.shares = true
	}
	b.stays(max(r.TTL, r.Patience))
	return max(b.elected, r.Fence), true
}

// held says how the owner has the lease, whether it has one, and whether it had it
// Exclusive before, or may have.
func (b *bid) held() (mode driver.Mode, leased, converted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mode = b.req.Mode; b.shares {
		mode = driver.Shared
	}
	return mode, b.elected != 0, b.shares
}

// tells notes that a node has the lease Shared.
func (b *bid) tells(n *node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told.add(n)
}

// untold says that a node, one of those that just prolonged a lease, may have it
// Exclusive still. What the others have now is not known.
func (b *bid) untold(n *node, held set) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told &= held
	return b.shares && !b.told.has(n)
}

// overturned says that a lease that stood is lost: too many nodes do not have it.
func (c *count) overturned() bool {
	lost := 0
	for _, n := range c.d.nodes {
		if c.refusedBy(n) || c.says(n, driver.Released) || c.tooLow(n) {
			lost++
		}
	}
	return c.twin == nil && lost > len(c.d.nodes)-c.d.need
}

// inDoubt is the error of a lease that may stand. Nothing of it is given back.
func (d *Driver) inDoubt(c *count) error {
	if c.twin != nil {
		return c.twin
	}
	errs, _ := c.errors()
	for _, n := range d.nodes {
		if a := c.answers[n.index]; errs[n.index] == nil && (!a.res.Granted || fenceOf(c.r) != 0 && a.res.Fence != fenceOf(c.r)) {
			errs[n.index] = errVoteGone
		}
	}
	return d.tooFew(errs)
}
