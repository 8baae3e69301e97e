// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// StartVote starts a Vote: a Node is a quorum.Async.
func (n *Node) StartVote(ctx context.Context, r driver.VoteRequest, done func(driver.Result, error)) {
	c, hinted, refused, err := n.prepare(r)
	if c == nil {
		done(refused, err)
		return
	}
	begun := time.Now()
	n.send.Begin(ctx, c, func(c *wire.Call) {
		if c.Err != nil {
			done(driver.Result{}, c.Err)
			return
		}
		done(n.tried(ctx, r, c, hinted, begun))
	})
}

// StartWithdraw starts a Withdraw: a Node is a quorum.Async.
func (n *Node) StartWithdraw(ctx context.Context, r driver.WithdrawRequest, done func(error)) {
	if err := n.check(r.Claim); err != nil {
		done(err)
		return
	}
	n.send.Begin(ctx, n.releaseCall(r), func(c *wire.Call) {
		done(n.releaseOutcome(c.Reply, c.Err))
	})
}
