// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package contend drives engines in tests, as an owner that contends for a key does.
package contend

import (
	"context"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Owner is an owner that contends for a key, with the fields of all of its requests:
// see voting.VoteRequest, driver.RenewRequest and voting.WithdrawRequest.
type Owner struct {
	Key, Owner, Label string
	TTL, Patience     time.Duration
	Mode              driver.Mode
	Limit             int

	Queue, Convert  bool
	Enters, Entered bool // of a Try, and of a Renew
	Fences          int
	Fence           uint64 // proposed in a Try; in a Convert and a Renew the fence held
	Wanted          func() // in a Renew
	Keeps           bool   // in a Renew with Wanted
	Raise, Restore  bool

	Settled bool
	End     driver.End
	UpTo    uint64
}

// Claim is what all of its requests contain.
func (o Owner) Claim() driver.Claim {
	return driver.Claim{Key: o.Key, Owner: o.Owner, Label: o.Label, Mode: o.Mode, Limit: o.Limit}
}

// Vote is its request to a node.
func (o Owner) Vote() voting.VoteRequest {
	r := voting.VoteRequest{
		TryRequest: driver.TryRequest{Claim: o.Claim(), TTL: o.TTL, Queue: o.Queue, Patience: o.Patience, Fences: o.Fences, Convert: o.Convert,
			Enters: o.Enters},
		Proposal: o.Fence, Raise: o.Raise, Restore: o.Restore,
	}
	if o.Convert {
		r.Proposal, r.Fence = 0, o.Fence
	}
	return r
}

// Renewal is its request in a Renew.
func (o Owner) Renewal() driver.RenewRequest {
	return driver.RenewRequest{Claim: o.Claim(), TTL: o.TTL, Queue: o.Queue, Patience: o.Patience, Fence: o.Fence, Wanted: o.Wanted,
		Keeps: o.Keeps, Entered: o.Entered}
}

// Withdrawal is its Withdraw at a node.
func (o Owner) Withdrawal() voting.WithdrawRequest {
	return voting.WithdrawRequest{UpTo: o.UpTo,
		ReleaseRequest: driver.ReleaseRequest{Claim: o.Claim(), TTL: o.TTL, End: o.End, Settled: o.Settled}}
}

// Try asks d for o; where o proposes a fence d must be a voting.Node.
func Try(ctx context.Context, d driver.Driver, o Owner) (driver.Result, error) {
	r := o.Vote()
	if r.Proposal == 0 {
		return d.Try(ctx, r.TryRequest)
	}
	n, ok := d.(voting.Node)
	if !ok {
		return driver.Result{}, fmt.Errorf("%T is no voting.Node: %w", d, driver.ErrUnsupported)
	}
	return n.Vote(ctx, r)
}

// Renew has d renew for some owners.
func Renew(ctx context.Context, d driver.Driver, owners []Owner, done func(i int, r driver.Renewal)) {
	rs := make([]driver.RenewRequest, len(owners))
	for i, o := range owners {
		rs[i] = o.Renewal()
	}
	d.Renew(ctx, rs, done)
}

// Release releases what o has; where o.UpTo is set, d must be a voting.Node.
func Release(ctx context.Context, d driver.Driver, o Owner) error {
	r := o.Withdrawal()
	if r.UpTo == 0 {
		return d.Release(ctx, r.ReleaseRequest)
	}
	n, ok := d.(voting.Node)
	if !ok {
		return fmt.Errorf("%T is no voting.Node: %w", d, driver.ErrUnsupported)
	}
	return n.Withdraw(ctx, r)
}

// Watch has d give hints to o.
func Watch(ctx context.Context, d driver.Driver, o Owner) (<-chan driver.Hint, error) {
	return d.Watch(ctx, o.Claim())
}
