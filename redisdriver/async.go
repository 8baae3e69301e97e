// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// StartVote starts a Vote; see [driver.Async].
func (n *Node) StartVote(ctx context.Context, r driver.VoteRequest, done func(driver.Result, error)) {
	c, hinted, refused, err := n.prepare(r)
	if c == nil {
		done(refused, err)
		return
	}
	begun := time.Now()
	n.send.begin(ctx, c, func(c *call) {
		if c.err != nil {
			done(driver.Result{}, c.err)
			return
		}
		done(n.tried(ctx, r, c, hinted, begun))
	})
}

// StartWithdraw starts a Withdraw; see [driver.Async].
func (n *Node) StartWithdraw(ctx context.Context, r driver.WithdrawRequest, done func(error)) {
	if err := n.check(r.Claim); err != nil {
		done(err)
		return
	}
	n.send.begin(ctx, n.releaseCall(r), func(c *call) {
		if c.err != nil {
			done(c.err)
			return
		}
		done(n.releaseOutcome(c.reply))
	})
}
