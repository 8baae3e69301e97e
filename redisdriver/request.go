// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
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
	a, refused, err := d.prepare(voting.VoteRequest{TryRequest: r})
	if a.call == nil {
		return refused, err
	}
	_, err = d.send.DoAlone(ctx, a.call)
	slow, sent := wire.Slow(err)
	if slow {
		a.Enters = a.Enters && !sent // when the first request comes, it says that this owner did not enter
		a = d.attempt(a.VoteRequest)
		_, err = d.again(ctx, a.call, sent)
	}
	res, err := d.tried(ctx, a, err)
	res.Unsettled = sent
	return res, err
}

// Release ends the lease of r.Owner, or gives its place up; see [driver.Driver]. It is sent as a Try is.
func (d *Driver) Release(ctx context.Context, r driver.ReleaseRequest) error {
	if err := d.check(r.Claim); err != nil {
		return err
	}
	c := d.releaseCall(voting.WithdrawRequest{ReleaseRequest: r})
	reply, err := d.send.DoAlone(ctx, c)
	slow, sent := wire.Slow(err)
	if slow {
		reply, err = d.again(ctx, c.Again(), sent)
	}
	if err = d.released(reply, err); sent && errors.Is(err, driver.ErrNotHeld) {
		return nil // perhaps the first request released it
	}
	return err
}

// again sends a request that was slow before, by a lane. Its outcome is unknown if it was sent before, even if it is not now.
func (d *Driver) again(ctx context.Context, c *wire.Call, sent bool) (reply any, err error) {
	reply, err = d.send.Do(ctx, c)
	if err != nil && sent {
		err = fmt.Errorf("redis: the first request had no answer in time, the second: %w", err)
	}
	return reply, err
}

// attempt is a Try on its way.
type attempt struct {
	voting.VoteRequest
	call   *wire.Call
	hinted bool // hints will reach it in the queue
	begun  time.Time
}

func (d *Driver) attempt(r voting.VoteRequest) attempt {
	c, hinted := d.tryCall(r)
	return attempt{r, c, hinted, time.Now()}
}

// prepare returns an attempt, or one without a call, and what needs no call to be said.
func (d *Driver) prepare(r voting.VoteRequest) (a attempt, refused driver.Result, err error) {
	switch err = d.valid(r.Key, r.Check()); {
	case err != nil:
		return a, refused, err
	case d.maxTTL != 0 && r.TTL > d.maxTTL:
		return a, driver.Result{Why: voting.TTLTooLong, TTL: d.maxTTL}, nil
	}
	return d.attempt(r), refused, nil
}

// tried reads the answer to an attempt. With an error the call's may still be written.
func (d *Driver) tried(ctx context.Context, a attempt, err error) (driver.Result, error) {
	if err != nil {
		return driver.Result{}, err
	}
	d.delay.sample(time.Since(a.begun))
	got, err := parseTry(a.call.Reply)
	switch {
	case err != nil:
		return driver.Result{}, err
	case got.kind != "":
		return driver.Result{}, &TypeError{Key: d.prefix + a.Key, Type: got.kind}
	}
	res := &got.Result
	res.Run = a.call.Life
	if !res.Granted {
		if got.refuse(a.hinted); !a.Enters || !a.hinted || !d.enters() {
			res.At = 0
		}
		return *res, nil
	}
	res.TTL = max(a.TTL, res.TTL)
	var gives *wire.Call
	if a.Proposal == 0 { // a vote is withdrawn up to a fence
		gives = releaseOf(a.call)
	}
	d.leases.note(a.ID(), res.Fence, res.TTL, gives)
	if d.renew.Replicas() > 0 {
		return d.confirm(ctx, driver.RenewRequest{Claim: a.Claim, TTL: a.TTL, Fence: res.Fence}, *res)
	}
	return *res, nil
}

// tryCall is a Try as the batch script wants it. hinted says that hints will
// reach r.
func (d *Driver) tryCall(r voting.VoteRequest) (c *wire.Call, hinted bool) {
	n, v, ttl, state, place := d.keyed(r.Key), value(r.Claim), wire.Millis(r.TTL), d.grantState(), ""
	if r.Proposal != 0 {
		state = strings.ToUpper(state)
	}
	if r.Queue {
		place, hinted = d.place(r)
	}
	switch {
	case r.Mode == driver.Shared || r.Queue || r.Fences > 1 || tryVariant(r) != "":
		a := tryAnyArgs{value: v, ttl: ttl, state: state, fences: max(r.Fences, 1), how: tryVariant(r), place: place, patience: wire.Millis(r.Patience)}
		fence := r.Proposal
		if r.Convert {
			fence = r.Fence
		}
		if fence != 0 {
			a.fence = digits(fence)
		}
		if r.Mode == driver.Shared {
			a.limit = limitOf(r.Claim)
		}
		return d.batchCall(n, r.Owner, a.args()), hinted
	case r.Proposal != 0:
		return d.batchCall(n, r.Owner, proposeArgs{v, ttl, state, digits(r.Proposal)}.args()), hinted
	}
	return d.batchCall(n, r.Owner, tryArgs{v, ttl, state, ttl + keep.Milliseconds()}.args()), hinted
}

// tryVariant is what a Try does besides asking, or "".
func tryVariant(r voting.VoteRequest) string {
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

// place describes r's place in the queue: patience, claim, mode and inbox as
// queue.lua wants them. hinted says that hints will reach r.
func (d *Driver) place(r voting.VoteRequest) (text string, hinted bool) {
	claim := d.delay.claim(r.TTL)
	mode, inbox := d.boxes.mode(r.Claim)
	if mode == modePoll {
		claim = min(claim+pollMax, d.delay.longest())
		inbox = wire.Sidecars + "inbox:" + d.id
	}
	takes := ""
	if r.Proposal != 0 {
		takes = "P"
	} else if r.Enters && r.Mode == driver.Exclusive && mode != modePoll && d.enters() {
		takes = "E" + d.boxes.expect(r.Claim)
	}
	if r.Mode == driver.Shared {
		takes += "S" + limitOf(r.Claim)
	}
	return fmt.Sprintf("%d %d %c%s %s", wire.Millis(r.Patience), wire.Millis(claim), mode, takes, inbox), mode != modePoll
}

// answer is what try.lua says: the Result as far as the script knows it, and what the rest of a refusal is made of.
type answer struct {
	driver.Result        // TTL 0, of a grant: as long as was asked; Fence, of a refusal: what a proposal must be above, or 0
	kind          string // the lock key holds something of this type

	value string        // of the holder
	left  time.Duration // or free, or forever
	grant grant
	next  int64 // what became of the search for the next in the queue: nextFound…
}

// What try.lua says of the next in the queue.
const (
	nextFound  = iota // or was not looked for
	nextMute          // it could not get a hint
	nextMore          // the search goes on with the next call
	nextHanded        // it has the key now
)

func parseTry(v any) (answer, error) {
	var a answer
	if text, ok := v.(string); ok { // of a key that was free: all else is as usual
		fence, err := strconv.ParseUint(text, 10, 64)
		if err != nil || fence == 0 {
			return a, wire.ErrReply
		}
		a.Granted, a.Fence, a.Fences = true, fence, 1
		return a, nil
	}
	r := wire.NewReply(v)
	switch code := wire.Next[int64](r); code {
	case 1:
		a.Granted = true
		a.Fence = parseFence(wire.Next[string](r), r)
		a.Abandoned = wire.Next[int64](r) == 1
		a.TTL = wire.Span(wire.Next[int64](r))
		a.Fences = int(wire.Next[int64](r))
		a.Handoff = wire.Span(wire.Next[int64](r))
		if len(r.Fields) > 0 {
			a.Slot = int(wire.Next[int64](r))
		}
		r.Bad = r.Bad || a.Fences < 1
	case -1:
		a.kind = wire.Next[string](r)
		r.Bad = r.Bad || a.kind == ""
	case 4:
		a.Why = voting.NotVoting
	case 5:
		a.Why = voting.TTLTooLong
		a.TTL = wire.Span(wire.Next[int64](r))
	case 0, 2, 3:
		a.Why = [...]driver.Why{driver.WhyHeld, 0, driver.WhyReleased, voting.FenceTooLow}[code]
		a.refused(r)
	default:
		r.Bad = true
	}
	if r.Bad || len(r.Fields) > 0 {
		return answer{}, wire.ErrReply
	}
	return a, nil
}

// refused reads what is said of a key that is held.
func (a *answer) refused(r *wire.Reply) {
	a.value = wire.Next[string](r)
	a.left = wire.Span(wire.Next[int64](r))
	a.Ahead = int(wire.Next[int64](r))
	a.grant = parseGrant(wire.Next[string](r))
	a.next = wire.Next[int64](r)
	switch least := wire.Next[string](r); least {
	case "":
	case "keeps":
		a.Keeps = true
	default:
		var err error // of a key without fences it is 0
		a.Fence, err = strconv.ParseUint(least, 10, 64)
		r.Bad = r.Bad || err != nil
	}
	if len(r.Fields) > 0 { // of a Try that queues
		a.At = time.Duration(parseFence(wire.Next[string](r), r)) * time.Microsecond
	}
}

func parseFence(s string, r *wire.Reply) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	r.Bad = r.Bad || err != nil || n == 0
	return n
}

// refuse completes the Result of a Try that was not granted.
func (a *answer) refuse(hinted bool) {
	switch a.Why {
	case voting.NotVoting:
		a.RetryIn = pollMax
	case voting.TTLTooLong:
	case voting.FenceTooLow:
		a.RetryIn = lookAfter
	case driver.WhyHeld, driver.WhyReleased:
		if a.left != wire.Free {
			a.Holder = a.grant.holder(a.value)
			a.Left = max(a.left, 0)
		}
		if a.Why == driver.WhyHeld {
			a.RetryIn = a.retryIn(hinted)
		}
	}
}

// looksAfterClaim: the client that handed the key over sees whether it is claimed, and may
// have lost the answer that says so, or asked again: the few behind that waiter look, too.
func (a *answer) looksAfterClaim() bool {
	return a.Ahead <= 3 && (a.grant.state == 'c' || a.grant.state == 'C')
}

// retryIn says when to try again without a hint. Only the first in the queue looks
// after the holder; a waiter that gets no hints has to poll.
func (a *answer) retryIn(hinted bool) time.Duration {
	expiry := lookAfter
	if a.left != wire.Forever { // 0: it ends within this millisecond
		expiry = a.left + time.Millisecond
	}
	silent := a.Holder.Foreign || a.grant.state == 'm' || a.grant.state == 'M' || a.grant.owner != a.Holder.Owner
	switch {
	case a.next == nextMore:
		return moreAfter
	case a.left == wire.Free || a.next == nextMute: // free, but not for us: the next in the queue could not get a hint
		return lookAfter
	case !hinted:
		return min(expiry, pollStep*time.Duration(a.Ahead+1), pollMax)
	case a.Ahead > 0 && a.next != nextHanded && !a.looksAfterClaim():
		return 0
	case silent:
		return min(expiry, lookAfter)
	}
	return expiry
}

// What release.lua answers.
const (
	releasedNothing = iota
	releasedLease
	releasedPlace
	releasedMute // the lease, but we may not PUBLISH to the next in the queue
)

// released reads the answer to a Release.
func (d *Driver) released(reply any, err error) error {
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
func (d *Driver) releaseCall(r voting.WithdrawRequest) *wire.Call {
	ours, ready := d.leases.drop(r.ID())
	if ready != nil && r.End == driver.EndFinished && r.Settled && r.UpTo == 0 {
		return ready
	}
	n, upTo := d.keyed(r.Key), ""
	if r.UpTo != 0 {
		upTo = digits(r.UpTo)
	}
	switch {
	case r.End != driver.EndFinished || !r.Settled:
		a := releaseAnyArgs{value: value(r.Claim), upTo: upTo, ending: endings[r.End]}
		if !r.Settled {
			a.tombstone = tombstone
		}
		if !ours && r.End != driver.EndUnused { // of what was never answered we do not know that it is ours
			a.tell = brokenChannel
		}
		c := d.batchCall(n, r.Owner, a.args())
		c.Once = !ours && r.End == driver.EndUnfinished // a break: nil would say that it broke a lease
		return c
	case upTo != "":
		return d.batchCall(n, "", withdrawArgs{value(r.Claim), upTo}.args())
	}
	return d.batchCall(n, "", releaseArgs{value(r.Claim)}.args())
}

// batchCall is one request of the batch script. owner is "" for a kind without its tombstone.
func (d *Driver) batchCall(n *names, owner string, args []any) *wire.Call {
	keys := n.all[:]
	if owner != "" {
		keys = append(append(make([]any, 0, len(n.all)+1), keys...), n.gone(owner))
	}
	return &wire.Call{Script: d.scripts.batch, Mark: n.mark, Keys: keys, Args: args}
}

// unclaimedCall is the answer to a hint without a waiter: a lease goes only when it was
// handed off and not claimed, since the hint may be late. And the owner is
// not remembered: it may have been away from its subscription for a moment only,
// and ask again. An owner that gave up was released by its caller.
func (d *Driver) unclaimedCall(c driver.Claim) *wire.Call {
	return d.batchCall(d.keyed(c.Key), c.Owner, releaseAnyArgs{value: value(c), ending: "unclaimed"}.args())
}

// giveBack answers a hint for an owner that has no watcher here: whatever it
// was given goes on to the next. When too many of them come at once, the rest
// is left to the claim time.
func (d *Driver) giveBack(c driver.Claim) {
	select {
	case d.giving <- struct{}{}:
	default:
		return
	}
	d.running.Go(func() {
		defer func() { <-d.giving }()
		ctx, cancel := context.WithTimeout(d.life, 5*time.Second)
		defer cancel()
		_, _ = d.send.Do(ctx, d.unclaimedCall(c)) // without an answer: the claim expires
	})
}

// tombstone is how long a released owner is remembered, in ms.
var tombstone = strconv.FormatInt(driver.MaxTransit.Milliseconds(), 10)

// endings are the ends of a lease as the batch script calls them.
var endings = map[driver.End]string{driver.EndUnused: "unused", driver.EndUnfinished: "unfinished"}

// releaseOf releases what a Try acquired: its keys but the tombstone, and its value.
func releaseOf(try *wire.Call) *wire.Call {
	return &wire.Call{Script: try.Script, Mark: try.Mark, Keys: try.Keys[:7], Args: []any{"release", try.Args[1]}}
}
