// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Release gives up what r.Owner has; see [driver.Driver].
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return d.withdraw(ctx, driver.WithdrawRequest{ReleaseRequest: r})
}

func (d *Driver) withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if err := d.check(r.Claim); err != nil {
		return err
	}
	return d.giveUp(ctx, d.releaseCall(r))
}

// What release.lua answers.
const (
	releasedNothing = iota
	releasedLease
	releasedPlace
	releasedMute // the lease, but we may not PUBLISH to the next in line
)

func (d *Driver) giveUp(ctx context.Context, c *call) error {
	if _, err := d.send.do(ctx, c); err != nil {
		return err
	}
	return d.released(c.reply)
}

// released reads the answer to a release.
func (d *Driver) released(reply any) error {
	switch reply {
	case int64(releasedNothing):
		return driver.ErrNotHeld
	case int64(releasedLease), int64(releasedPlace):
		return nil
	case int64(releasedMute):
		d.muted.Store(true) // from now on our leases say so, and the first in line looks
		return nil
	}
	return errReply
}

// releaseCall is a Release as the batch script wants it.
func (d *Driver) releaseCall(r driver.WithdrawRequest) *call {
	n := d.names(r.Key)
	c := &call{script: d.scripts.batch, mark: n.mark, keys: []any{n.lock, n.grant, n.line, n.places}}
	switch {
	case r.End != driver.Finished:
		c.keys = append(c.keys, n.gone(r.Owner))
		c.args = []any{"x", value(r.Claim), "", "", "unused"}
		if r.End == driver.Unfinished {
			c.args[4] = "unfinished"
		}
		if !r.Settled {
			c.args[2] = max(millis(min(r.TTL, wary)), 1)
		}
		if r.Settled && r.UpTo != 0 {
			c.args[3] = digits(r.UpTo)
		}
	case r.Settled && r.UpTo != 0:
		c.args = []any{"b", value(r.Claim), digits(r.UpTo)}
	case r.Settled:
		c.args = []any{"d", value(r.Claim)}
	default:
		c.keys = append(c.keys, n.gone(r.Owner))
		c.args = []any{"r", value(r.Claim), max(millis(min(r.TTL, wary)), 1)}
	}
	return c
}

// unclaimedCall is the answer to a hint for nobody: a lease goes only when it was
// handed over and nobody claimed it, since the hint may be late. And the owner is
// not remembered: it may have been away from its subscription for a moment only,
// and ask again. One that gave up was released by whoever gave it up.
func (d *Driver) unclaimedCall(c driver.Claim) *call {
	n := d.names(c.Key)
	return &call{script: d.scripts.batch, mark: n.mark, keys: []any{n.lock, n.grant, n.line, n.places}, args: []any{"u", value(c)}}
}
