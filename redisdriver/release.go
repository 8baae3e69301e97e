// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// Release gives up what r.Owner has; see [driver.Driver].
func (d *Driver) Release(ctx context.Context, r driver.Request) error {
	return d.giveUp(ctx, r, false)
}

// What release.lua answers.
const (
	releasedNothing = iota
	releasedLease
	releasedPlace
	releasedMute // the lease, but we may not PUBLISH to the next in line
)

// giveUp is Release. With unclaimed, the answer to a hint for nobody, a lease goes
// only when it was handed over and nobody claimed it: the hint may be late. And the
// owner is not remembered: it may have been away from its subscription for a moment
// only, and ask again. One that gave up was released by whoever gave it up.
func (d *Driver) giveUp(ctx context.Context, r driver.Request, unclaimed bool) error {
	if err := d.check(r); err != nil {
		return err
	}
	c := d.releaseCall(r, unclaimed)
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
func (d *Driver) releaseCall(r driver.Request, unclaimed bool) *call {
	n := d.names(r.Key)
	c := &call{script: d.scripts.batch, mark: n.mark, keys: []any{n.lock, n.grant, n.line, n.places}}
	switch {
	case unclaimed:
		c.args = []any{"u", value(r)}
	case r.End != driver.Finished:
		c.keys = append(c.keys, n.gone(r.Owner))
		c.args = []any{"x", value(r), "", "", "unused"}
		if r.End == driver.Unfinished {
			c.args[4] = "unfinished"
		}
		if !r.Settled {
			c.args[2] = max(millis(min(r.TTL, wary)), 1)
		}
		if r.Settled && r.UpTo != 0 && d.maxTTL != 0 {
			c.args[3] = digits(r.UpTo)
		}
	case r.Settled && r.UpTo != 0 && d.maxTTL != 0:
		c.args = []any{"b", value(r), digits(r.UpTo)}
	case r.Settled:
		c.args = []any{"d", value(r)}
	default:
		c.keys = append(c.keys, n.gone(r.Owner))
		c.args = []any{"r", value(r), max(millis(min(r.TTL, wary)), 1)}
	}
	return c
}
