// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"time"
)

// keeperTime is what a keeper needs beside the store: see attempt.keeper.
const keeperTime = 5 * time.Millisecond

// tryLock asks once, and waits only where the holder keeps the key for nobody, until it has given it back.
func (a *attempt) tryLock() (*Lease, error) {
	lease, _, err := a.try()
	if a.kept && !a.c.cohorts.keeps(a.req.Key) {
		lease, err = a.askKeeper()
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

// askKeeper joins, which tells the keeper, and waits until it has given the key back, for keeper at most. Whatever goes wrong
// is as if it was not asked: neither a lease nor an error.
func (a *attempt) askKeeper() (lease *Lease, err error) {
	why := a.patience.why
	defer func() {
		if err != nil && a.ended() == nil {
			a.patience.why, err = why, nil
		}
	}()
	timer := time.NewTimer(a.keeper())
	defer timer.Stop()
	if err := a.subscribeUntil(timer.C); a.sub.hints == nil {
		return nil, err
	}
	a.req.Queue, a.briefly = true, true
	lease, _, err = a.try()
	for joined := a.c.now(); lease == nil && err == nil; lease, _, err = a.try() {
		a.joined(a.c)
		timer.Reset(a.keeper() - a.c.now().Sub(joined))
		select {
		case h := <-a.sub.hints:
			a.hinted(h)
		case <-timer.C:
			return nil, nil
		case <-a.ctx.Done():
			return nil, a.ended()
		case <-a.c.calls.Open.Done():
			return nil, a.ended()
		}
		if lease = a.enter(); lease != nil {
			break
		}
	}
	if lease != nil {
		a.leaveQueue(a.c)
	}
	return lease, err
}

// keeper is how long a keeper may need: for the message to it, its release, and the message of that. With thousands of keys at
// once all requests take longer, ours and the keeper's.
func (a *attempt) keeper() time.Duration { return min(3*a.slowest+keeperTime, tryLimit) }
