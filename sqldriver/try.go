// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// verdict is what becomes of a Try.
type verdict int

const (
	refuse verdict = iota // nothing changes
	join                  // refused, and put at the end of the queue
	touch                 // refused, with a sign of life for its place
	extend                // it is the holder
	convert
	grant
	tooLow // nothing changes: the proposed fence cannot be granted
)

// decide is the rule of the lock. It runs twice: on a mere read, which settles most
// refusals, and again in the transaction that writes.
func (v view) decide(r driver.VoteRequest, now reading) verdict {
	own := v.own.live(now.up)
	holds := own && v.own.kind == kindHeld
	free := v.admits(r.Claim, now.up)
	switch {
	case own && (v.own.label != r.Label || v.own.kind == kindGone):
		return refuse // another's, who shares our random id; or late
	case r.Convert && (!holds || uint64(v.own.fence) < r.Fence):
		return refuse
	case r.Convert && v.mode(r.Owner) == driver.Exclusive:
		return convert
	case holds && v.mode(r.Owner) != r.Mode:
		return refuse // overtaken by the request that converted the lease
	case holds && v.raisable(r, now):
		return extend
	case !holds && free && v.acceptable(r, now):
		return grant
	case holds, free:
		return tooLow
	case !r.Queue:
		return refuse
	case !own:
		return join
	case v.own.worthWriting(r.Patience, now.up):
		return touch
	}
	return refuse
}

// worthWriting reports whether a sign of life is worth a write, which costs a sync of
// the disk: a quarter of the place's patience has passed since the last.
func (r row) worthWriting(patience, now time.Duration) bool {
	return r.expires-now < patience-patience/4
}

// Try implements [driver.Driver]. A refusal that changes nothing costs a read,
// for which no writer waits.
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return d.Vote(ctx, driver.VoteRequest{TryRequest: r})
}

// Vote implements [driver.Node].
func (d *Driver) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	if err := valid(r.Check()); err != nil {
		return driver.Result{}, err
	}
	glance, err := d.glance(ctx, r)
	if err != nil || glance != nil {
		return value(glance), driver.NotSent(err) // it only read
	}
	var res driver.Result
	err = d.writes.do(ctx, 1, func(t *tx) (err error) {
		res, err = t.try(r)
		return err
	})
	if err != nil {
		return driver.Result{}, err
	}
	return res, nil
}

func value(res *driver.Result) driver.Result {
	if res == nil {
		return driver.Result{}
	}
	return *res
}

// glance returns the refusal that a read is enough for, or nil.
func (d *Driver) glance(ctx context.Context, r driver.VoteRequest) (*driver.Result, error) {
	var res *driver.Result
	err := d.read(ctx, func(ctx context.Context) error {
		now, v, err := d.look(ctx, r.Claim)
		if err != nil || v == nil {
			return err
		}
		var answer driver.Result
		switch v.decide(r, now) {
		case refuse:
			answer = v.refused(r, now)
		case tooLow:
			answer = v.tooLow(r, now)
		default:
			return nil
		}
		res = &answer
		return nil
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// try decides in the transaction, and does it.
func (t *rules) try(r driver.VoteRequest) (driver.Result, error) {
	v, err := t.view(r.Claim)
	if err != nil {
		return driver.Result{}, err
	}
	switch v.decide(r, t.reading) {
	case grant:
		return t.grant(v, r)
	case extend:
		return t.extend(v, r)
	case convert:
		return t.convert(v, r)
	case tooLow:
		return v.tooLow(r, t.reading), nil
	case join:
		t.rowsMade++
		if v.own.kind == kindHeld { // a lease that is over
			err = t.back(v, r.Claim)
		}
		if err == nil {
			err = t.queue(r.Claim, t.after(r.Patience))
		}
	case touch:
		err = t.prolong(r.Key, r.Owner, t.after(r.Patience), 0)
	}
	return v.refused(r, t.reading), err
}

func (t *rules) extend(v *view, r driver.VoteRequest) (driver.Result, error) {
	fence, until := v.own.fence, max(v.own.expires, t.after(r.TTL))
	if v.raises(r) {
		var err error
		if fence, _, err = t.choose(v, r); err != nil {
			return driver.Result{}, err
		}
	}
	err := t.prolong(r.Key, r.Owner, until, fence)
	abandoned := v.holder.mark
	if v.shared() {
		abandoned = v.own.mark
		if err == nil {
			err = t.prolong(r.Key, "", until, fence)
		}
	}
	return driver.Result{Granted: true, Fence: uint64(fence), TTL: until - t.up,
		Slot: v.own.slot, Abandoned: abandoned, Node: t.node}, err
}

func (t *rules) grant(v *view, r driver.VoteRequest) (driver.Result, error) {
	if v.holder.kind != "" && !v.holder.live(t.up) {
		if err := t.endHolders(r.Key); err != nil {
			return driver.Result{}, err
		}
	}
	if r.Mode == driver.Shared {
		return t.share(v, r)
	}
	t.rowsMade++
	abandoned := v.abandoned(t.up)
	fence, fences, err := t.choose(v, r)
	if err != nil {
		return driver.Result{}, err
	}
	until := t.after(r.TTL)
	err = t.hold(r.Claim, fence, until, abandoned)
	return driver.Result{Granted: true, Fence: uint64(fence), Fences: fences, TTL: until - t.up,
		Abandoned: abandoned, Node: t.node}, err
}

// refused is the refusal of a Vote.
func (v view) refused(r driver.VoteRequest, now reading) driver.Result {
	res := v.refusal(r.Claim, now)
	if r.Proposal != 0 {
		res.Fence = v.floor(r.Mode, now)
	}
	return res
}

// refusal says what is in the way of a claim.
func (v view) refusal(c driver.Claim, now reading) driver.Result {
	res := driver.Result{Why: driver.Held, Ahead: v.ahead, Node: v.head.node}
	switch {
	case !v.own.live(now.up):
	case v.own.kind == kindHeld:
		res.Ahead = 0
	case v.own.kind == kindGone:
		res.Why = driver.Released
	}
	var held time.Duration
	if v.holder.live(now.up) {
		held, res.Left = now.up-v.holder.since, v.opens(c)-now.up
		switch {
		case !v.shared():
			res.Holder = v.holder.holder(now.up)
		case len(v.beside) > 0:
			res.Holder = v.beside[0].holder(now.up)
		}
	}
	switch {
	case !v.hints && !v.behind:
		res.RetryIn = nextLook(v.ahead, held, res.Left, v.took)
	case v.ahead == 0:
		res.RetryIn = max(res.Left, time.Millisecond) // nobody tells that a lease expires
	}
	return res
}

func (v view) tooLow(r driver.VoteRequest, now reading) driver.Result {
	least := v.floor(r.Mode, now)
	if v.own.live(now.up) && v.own.kind == kindHeld { // beside others its own may be above what is compared
		least = max(least, uint64(v.own.fence))
	}
	return driver.Result{Why: driver.FenceTooLow, Fence: least, Node: v.head.node}
}
