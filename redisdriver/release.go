// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Release gives up what r.Owner has; see [driver.Driver].
func (d *Driver) Release(ctx context.Context, r driver.Request) error {
	return d.release(ctx, r, "")
}

// What release.lua answers.
const (
	releasedNothing = iota
	releasedLease
	releasedPlace
	releasedMute // the lease, but we may not PUBLISH to the next in line
)

// release gives up a lease or a place. With which "u" a lease goes only when
// it was handed over and nobody claimed it: the answer to a hint for nobody,
// which may be late.
func (d *Driver) release(ctx context.Context, r driver.Request, which string) error {
	if err := d.check(r); err != nil {
		return err
	}
	n := d.names(r.Key)
	begun := time.Now()
	reply, err := d.send.do(ctx, releaseScript,
		[]string{n.lock, n.grant, n.line, n.places, n.mark, gone(n.lock, r.Owner)},
		value(r), max(millis(min(r.TTL, wary)), 1), which)
	if err != nil {
		return err
	}
	d.delay.sample(time.Since(begun))
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
