// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"

	"github.com/hasplock/hasp/driver"
)

// renewChunk is how many requests of a Renew go into one transaction: others
// wait for the file meanwhile.
const renewChunk = maxWeight

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	for first := 0; first < len(rs); first += renewChunk {
		chunk := rs[first:min(first+renewChunk, len(rs))]
		out, err := d.renew(ctx, chunk)
		for i := range chunk {
			if err != nil {
				done(first+i, driver.Renewal{Err: err})
			} else {
				done(first+i, out[i])
			}
		}
	}
}

func (d *Driver) renew(ctx context.Context, rs []driver.RenewRequest) ([]driver.Renewal, error) {
	var out []driver.Renewal
	err := d.writes.do(ctx, len(rs), func(t *tx) error {
		all := make([]driver.Renewal, len(rs))
		for i, r := range rs {
			if all[i].Err = valid(r.Check()); all[i].Err != nil {
				continue
			}
			var err error
			if all[i], err = t.renewOne(r); err != nil {
				return err
			}
		}
		out = all
		return nil
	})
	if err != nil {
		return nil, lostWith(err)
	}
	return out, nil
}

// renewOne returns an error when the transaction cannot go on; what became of
// this one request is in the Renewal.
func (t *rules) renewOne(r driver.RenewRequest) (driver.Renewal, error) {
	if r.Queue {
		return t.renewPlace(r)
	}
	lease, ok, err := t.renewLease(r, t.after(r.TTL))
	if err != nil {
		return driver.Renewal{}, err
	}
	if !ok {
		return driver.Renewal{Err: driver.ErrNotHeld}, nil
	}
	if lease.mode == driver.Shared { // the key's own row lasts as long
		err = t.prolong(r.Key, "", lease.expires, 0)
	}
	return driver.Renewal{TTL: lease.expires - t.up, Wanted: lease.wanted}, err
}

// renewPlace prolongs a place. An owner whose turn it is should ask at once.
func (t *rules) renewPlace(r driver.RenewRequest) (driver.Renewal, error) {
	v, err := t.view(r.Claim)
	if err != nil {
		return driver.Renewal{}, err
	}
	if !v.own.live(t.up) || v.own.kind != kindQueued || v.own.label != r.Label {
		return driver.Renewal{Err: driver.ErrNotHeld}, nil
	}
	if v.own.worthWriting(r.Patience, t.up) {
		err = t.prolong(r.Key, r.Owner, t.after(r.Patience), 0)
	}
	return driver.Renewal{RetryIn: v.refusal(r.Claim, t.reading).RetryIn}, err
}
