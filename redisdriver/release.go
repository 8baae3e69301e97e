// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"strconv"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// Release ends the lease of r.Owner, or gives its place up; see [driver.Driver]. It is sent as a Try is.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := d.check(r.Claim); err != nil {
		return err
	}
	c := d.releaseCall(driver.WithdrawRequest{ReleaseRequest: r})
	reply, err := d.send.DoAlone(ctx, c)
	slow, sent := wire.Slow(err)
	if !slow {
		return d.releaseOutcome(reply, err)
	}
	err = d.releaseOutcome(d.again(ctx, c.Again(), sent))
	if sent && errors.Is(err, driver.ErrNotHeld) {
		return nil // perhaps the first request released it
	}
	return err
}

func (d *Driver) withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if err := d.check(r.Claim); err != nil {
		return err
	}
	return d.sendRelease(ctx, d.releaseCall(r))
}

// What release.lua answers.
const (
	releasedNothing = iota
	releasedLease
	releasedPlace
	releasedMute // the lease, but we may not PUBLISH to the next in the queue
)

func (d *Driver) sendRelease(ctx context.Context, c *wire.Call) error {
	return d.releaseOutcome(d.send.Do(ctx, c))
}

// releaseOutcome reads the answer to a release.
func (d *Driver) releaseOutcome(reply any, err error) error {
	if err != nil {
		return err
	}
	switch reply {
	case int64(releasedNothing):
		return driver.ErrNotHeld
	case int64(releasedLease), int64(releasedPlace):
		return nil
	case int64(releasedMute):
		d.muted.Store(true) // from now on our leases say so, and the first in the queue looks
		return nil
	}
	return wire.ErrReply
}

// releaseCall is a Release as the batch script wants it.
func (d *Driver) releaseCall(r driver.WithdrawRequest) *wire.Call {
	ours, ready := d.leases.drop(r.ID())
	if ready != nil && r.End == driver.Finished && r.Settled && r.UpTo == 0 {
		return ready
	}
	n, upTo := d.keyed(r.Key), ""
	if r.UpTo != 0 {
		upTo = digits(r.UpTo)
	}
	switch {
	case r.End != driver.Finished || !r.Settled:
		a := releaseAnyArgs{value: value(r.Claim), upTo: upTo, ending: endings[r.End]}
		if !r.Settled {
			a.tombstone = tombstone
		}
		if !ours && r.End != driver.Unused { // of what was never answered we do not know that it is ours
			a.tell = brokenChannel
		}
		c := d.batchCall(n, n.gone(r.Owner), a.args())
		c.Once = !ours && r.End == driver.Unfinished // a break: nil would say that it broke a lease
		return c
	case upTo != "":
		return d.batchCall(n, "", withdrawArgs{value(r.Claim), upTo}.args())
	}
	return d.batchCall(n, "", releaseArgs{value(r.Claim)}.args())
}

// tombstone is how long a released owner is remembered, in ms.
var tombstone = strconv.FormatInt(driver.LateRequest.Milliseconds(), 10)

// endings are the ends of a lease as the batch script calls them.
var endings = map[driver.End]string{driver.Unused: "unused", driver.Unfinished: "unfinished"}

// batchCall is one request of the batch script. gone is "" where its kind has none.
func (d *Driver) batchCall(n *keyed, gone string, args []any) *wire.Call {
	keys := n.all[:]
	if gone != "" {
		keys = append(append(make([]any, 0, len(n.all)+1), keys...), gone)
	}
	return &wire.Call{Script: d.scripts.batch, Mark: n.mark, Keys: keys, Args: args}
}

// unclaimedCall is the answer to a hint without a waiter: a lease goes only when it was
// handed off and not claimed, since the hint may be late. And the owner is
// not remembered: it may have been away from its subscription for a moment only,
// and ask again. An owner that gave up was released by its caller.
func (d *Driver) unclaimedCall(c driver.Claim) *wire.Call {
	n := d.keyed(c.Key)
	return d.batchCall(n, n.gone(c.Owner), releaseAnyArgs{value: value(c), ending: "unclaimed"}.args())
}
