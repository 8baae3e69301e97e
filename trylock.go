// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"time"
)

// keeperTime is how long a TryLock waits for a keeper, beside three times what its Try took, and at most: that is
// the join with the message to the keeper, its release, and the message of that.
const (
	keeperTime    = 5 * time.Millisecond
	maxKeeperTime = time.Second
)

// tryLock asks once, and waits only where the holder keeps the key for nobody, until it has given it back.
func (a *attempt) tryLock() (*Lease, error) {
	lease, _, err := a.try()
	if lease == nil && err == nil && a.kept && !a.c.cohorts.keeps(a.req.Key) {
		lease, err = a.askKeeper(min(3*a.c.now().Sub(a.began)+keeperTime, maxKeeperTime))
	}
	switch {
	case lease != nil:
		return lease, nil
	case err == nil:
		err = a.patience.why
	default:
		err = cmp.Or(a.ended(), err)
	}
	return nil, a.fail(err)
}

// askKeeper waits for a key that is kept, for that long at most once it watches, and for that as long. Whatever goes wrong is
// as if it was not asked: neither a lease nor an error.
func (a *attempt) askKeeper(limit time.Duration) (lease *Lease, err error) {
	all, why := a.ctx, a.patience.why
	defer func() {
		if a.ctx = all; err != nil && a.ended() == nil {
			a.patience.why, err = why, nil
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	if err := a.subscribeUntil(timer.C); err != nil || a.sub.hints == nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(all, limit)
	defer cancel()
	a.ctx, a.req.Queue, a.briefly = ctx, true, true
	if lease, err = a.wait(); lease != nil {
		lease.h.tells(all)
	}
	return lease, err
}
