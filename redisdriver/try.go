// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

const (
	lookAfter = 100 * time.Millisecond // the first in the queue, when no hint will come
	moreAfter = 2 * time.Millisecond   // where the search for the next in the queue goes on with the next call
	pollStep  = 50 * time.Millisecond  // without hints: this much longer for each place before
	pollMax   = time.Second            // but no longer than this
)

// Try requests r.Key once; see [driver.Driver]. It is sent alone if it can be, and by a lane if that takes too long.
func (d *Driver) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	v := driver.VoteRequest{TryRequest: r}
	c, hinted, refused, err := d.prepare(v)
	if c == nil {
		return refused, err
	}
	begun := time.Now()
	_, err = d.send.DoAlone(ctx, c)
	slow, sent := wire.Slow(err)
	if slow {
		v.Enters = v.Enters && !sent // when the first request comes, it says that this owner did not enter
		c, hinted = d.tryCall(v)
		begun = time.Now()
		_, err = d.again(ctx, c, sent)
	}
	var res driver.Result
	if err == nil {
		res, err = d.tried(ctx, v, c, hinted, begun)
	}
	res.Unsettled = sent
	return res, err
}

// again sends a request that was slow before, by a lane. Its outcome is unknown if it was sent before, even if it is not now.
func (d *Driver) again(ctx context.Context, c *wire.Call, sent bool) (reply any, err error) {
	reply, err = d.send.Do(ctx, c)
	if err != nil && sent {
		err = fmt.Errorf("redis: the first request had no answer in time, the second: %w", err)
	}
	return reply, err
}

// vote is Try for a quorum, which never waits for one node alone.
func (d *Driver) vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	c, hinted, refused, err := d.prepare(r)
	if c == nil {
		return refused, err
	}
	begun := time.Now()
	if _, err = d.send.Do(ctx, c); err != nil { // c.Reply may still be written then
		return driver.Result{}, err
	}
	return d.tried(ctx, r, c, hinted, begun)
}

// prepare returns the call of a Try, or what needs no call to be said.
func (d *Driver) prepare(r driver.VoteRequest) (c *wire.Call, hinted bool, refused driver.Result, err error) {
	switch err = d.valid(r.Key, r.Check()); {
	case err != nil:
		return nil, false, refused, err
	case d.maxTTL != 0 && r.TTL > d.maxTTL:
		return nil, false, driver.Result{Why: driver.TTLTooLong, TTL: d.maxTTL}, nil
	}
	c, hinted = d.tryCall(r)
	return c, hinted, refused, nil
}

// tried reads the answer to a Try that began at begun.
func (d *Driver) tried(ctx context.Context, r driver.VoteRequest, c *wire.Call, hinted bool, begun time.Time) (driver.Result, error) {
	d.delay.sample(time.Since(begun))
	a, err := parseTry(c.Reply)
	if err != nil {
		return driver.Result{}, err
	}
	switch {
	case a.kind != "":
		return driver.Result{}, &TypeError{Key: d.prefix + r.Key, Type: a.kind}
	case a.granted:
		res := driver.Result{
			Granted: true, Fence: a.fence, Fences: a.fences, TTL: max(r.TTL, a.lasts), Slot: a.slot, Abandoned: a.abandoned,
			Handoff: a.waited, Node: c.Life,
		}
		d.leases.note(r.ID(), res.Fence, res.TTL, releaseOf(c))
		if d.renew.Replicas() > 0 {
			return d.confirm(ctx, driver.RenewRequest{Claim: r.Claim, TTL: r.TTL, Fence: res.Fence}, res)
		}
		return res, nil
	}
	res := a.refusal(hinted)
	res.Node = c.Life
	if res.At = a.at; !r.Enters || !hinted || !d.enters() {
		res.At = 0
	}
	return res, nil
}

// tryCall is a Try as the batch script wants it. hinted says that hints will
// reach r.
func (d *Driver) tryCall(r driver.VoteRequest) (c *wire.Call, hinted bool) {
	n, state, place := d.keyed(r.Key), d.granted(), ""
	if r.Proposal != 0 {
		state = strings.ToUpper(state)
	}
	if r.Queue {
		place, hinted = d.place(r)
	}
	gone := n.gone(r.Owner)
	switch {
	case r.Mode == driver.Shared || r.Queue || r.Fences > 1 || how(r) != "":
		a := tryAnyArgs{
			value: value(r.Claim), ttl: wire.Millis(r.TTL), state: state, fences: max(r.Fences, 1), how: how(r),
			place: place, patience: wire.Millis(r.Patience),
		}
		fence := r.Proposal
		if r.Convert {
			fence = r.Fence
		}
		if fence != 0 {
			a.fence = digits(fence)
		}
		if r.Mode == driver.Shared {
			a.limit = strconv.FormatInt(limitOf(r.Claim), 10)
		}
		return d.batchCall(n, gone, a.args()), hinted
	case r.Proposal != 0:
		return d.batchCall(n, gone, proposeArgs{value(r.Claim), wire.Millis(r.TTL), state, digits(r.Proposal)}.args()), hinted
	}
	return d.batchCall(n, gone, tryArgs{value(r.Claim), wire.Millis(r.TTL), state, keeping(r.TTL)}.args()), hinted
}

// granted is the state of a grant, see queue.lua.
func (d *Driver) granted() string {
	if d.muted.Load() {
		return "m"
	}
	return "h"
}

// how says what a Try is more than an attempt.
func how(r driver.VoteRequest) string {
	switch {
	case r.Convert:
		return "convert"
	case r.Proposal == 0:
		return ""
	case r.Restore: // also where the lease is still here
		return "restore"
	case r.Raise:
		return "raise"
	}
	return ""
}

// maxLimit is the largest limit that the scripts tell from none, see `room` in common.lua.
const maxLimit = 1 << 40

func limitOf(c driver.Claim) int64 { return min(int64(c.Limit), maxLimit) }

// maxFence is the largest that 16 digits hold. The scripts compare fences as
// texts; this one is centuries ahead of every clock, and so refused.
const maxFence = 9_999_999_999_999_999

func digits(fence uint64) string { return fmt.Sprintf("%016d", min(fence, maxFence)) }

// enters says whether a waiter that is handed a key may enter on the message: not before replicas have confirmed it.
func (d *Driver) enters() bool { return d.renew.Replicas() == 0 && d.maxTTL == 0 }

// place describes r's place in the queue: patience, claim, mode and inbox as
// queue.lua wants them. hinted says that hints will reach r.
func (d *Driver) place(r driver.VoteRequest) (text string, hinted bool) {
	claim := d.delay.claim(r.TTL)
	mode, inbox := d.boxes.mode(r.Claim)
	if mode == modePoll {
		claim = min(claim+pollMax, maxClaim)
		inbox = wire.Sidecars + "inbox:" + d.id
	}
	takes := ""
	if r.Proposal != 0 {
		takes = "P"
	} else if r.Enters && r.Mode == driver.Exclusive && mode != modePoll && d.enters() {
		takes = "E" + d.boxes.expect(r.Claim)
	}
	if r.Mode == driver.Shared {
		takes += "S" + strconv.FormatInt(limitOf(r.Claim), 10)
	}
	return fmt.Sprintf("%d %d %c%s %s", wire.Millis(r.Patience), wire.Millis(claim), mode, takes, inbox), mode != modePoll
}
