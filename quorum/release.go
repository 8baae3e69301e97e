// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Release gives up what an owner has on every node, also on those that failed;
// see [driver.Driver]. It returns once a majority and the line node have done it;
// nodes that cannot be told now are told when they answer again.
func (d *Driver) Release(ctx context.Context, asked driver.ReleaseRequest) error {
	if err := d.check(ctx, asked.Claim); err != nil {
		return err
	}
	r := driver.WithdrawRequest{ReleaseRequest: asked}
	b := d.bids.get(r.Claim)
	head := d.head.Load()
	var away, unsettled, later set
	marked := false // it was told of one that did not finish
	lease := false  // false also of another process's owner: a place, as far as we know
	if b != nil {
		b.mu.Lock()
		if b.tries > 0 { // else it was adopted
			r.UpTo = max(b.most(), 1)
		}
		switch {
		case b.shares: // its work was done then, also where a node missed that it converted
			r.End = driver.Finished
		case !b.leased: // nobody worked under what some nodes may have granted
			r.End = driver.Unused
		}
		b.end = r.End
		marked, lease, b.over, b.counts, b.elected = b.marked, b.leased, true, false, 0
		if b.line != nil {
			head = b.line
		}
		has := b.has
		b.line, b.gate, b.has = nil, false, 0
		for _, n := range d.nodes {
			b.back.add(n)
			switch {
			case !r.Settled:
			case !b.asked.has(n):
				away.add(n)
				b.back.drop(n)
			case b.pending[n.index] > 0 && !has.has(n): // its answer may be a vote: then it goes back
				later.add(n)
				b.late.add(n)
				b.back.drop(n)
			case !b.settled(n):
				unsettled.add(n)
			}
		}
		b.mu.Unlock()
	}
	had, not := 0, len(away.among(d.nodes))
	var errs [maxNodes]error
	told := make([]*node, 0, maxNodes)
	for _, n := range d.nodes {
		switch {
		case away.has(n):
		case later.has(n):
			errs[n.index] = errSilent
		default:
			if errs[n.index] = n.trouble(); errs[n.index] == nil {
				told = append(told, n)
			} else {
				n.owe(b, r)
			}
		}
	}
	out, waits := len(told), slices.Contains(told, head) // for the line node
	all := lease && (marked || r.End != driver.Finished) // what one node hears late it would tell twice
	w := d.newWave(max(r.TTL, minTTL))
	w.send(told, max(r.TTL, minTTL), func(n *node, done func(driver.Result, error)) {
		req := r
		req.Settled = r.Settled && !unsettled.has(n)
		n.startWithdraw(w.ctx, req, func(_ driver.Result, err error) {
			b.confirmed(n, err)
			if err != nil && !errors.Is(err, driver.ErrNotHeld) {
				n.owe(b, req)
			}
			done(driver.Result{}, err)
		})
	})
	patience := time.NewTimer(d.timeout(r.TTL))
	defer patience.Stop()
	for ; out > 0 && (b == nil || waits || all || had < d.need && not < d.need); out-- {
		select {
		case <-patience.C: // the line node answers others, but not this
			waits, all = false, false
			out++
			continue
		case a := <-w.got:
			switch {
			case a.err == nil:
				had++
			case errors.Is(a.err, driver.ErrNotHeld):
				not++
			default:
				errs[a.n.index] = a.err
			}
			waits = waits && a.n != head
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if b != nil {
		b.dropIfOver(d)
	}
	switch {
	case had+not < d.need:
		return d.tooFew(errs)
	case had == 0, lease && not > len(d.nodes)-d.need:
		return driver.ErrNotHeld
	}
	return nil
}
