// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"strconv"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// Release ends the lease of r.Owner, or gives its place up; see [driver.Driver]. It ends the lease also where what stands beside
// the lock is of another type, and says that.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := d.valid(r.Key, r.Claim.Check()); err != nil {
		return err
	}
	reply, err := d.send.Do(ctx, d.releaseCall(r))
	switch {
	case err != nil:
		return err
	case reply == int64(1):
		return nil
	case reply == int64(0):
		return driver.ErrNotHeld
	}
	a := wire.NewReply(reply)
	code, key, kind := wire.Next[int64](a), wire.Next[string](a), wire.Next[string](a)
	if a.Bad || code != -1 {
		return wire.ErrReply
	}
	return &wire.TypeError{Key: key, Type: kind}
}

func (d *Driver) releaseCall(r driver.ReleaseRequest) *wire.Call {
	n, own, remember := d.names(r.Key), fieldOf(r.Owner), ""
	if !r.Settled {
		remember = strconv.FormatInt(driver.MaxTransit.Milliseconds(), 10)
	}
	switch d.kind {
	case Fair:
		return &wire.Call{
			Script: fairRelease, Keys: []any{n.lock, n.about(), n.queue, n.timeouts, n.waiters(), n.gone(r.Owner)},
			Args: []any{own, r.Label, remember, d.publish(), n.channel},
		}
	case ReadWrite:
		return &wire.Call{
			Script: rwRelease, Keys: []any{n.lock, n.about(), n.gone(r.Owner), n.timeout(own)},
			Args: []any{own, r.Label, remember, n.reader, d.publish(), n.channel},
		}
	case Lock, Fenced:
	}
	return &wire.Call{
		Script: lockRelease, Keys: []any{n.lock, n.about(), n.gone(r.Owner)}, Args: []any{own, r.Label, remember, d.publish(), n.channel},
	}
}
