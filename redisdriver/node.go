// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// Node is a Driver of a server that keeps a record of its present life, and grants
// nothing after it may have forgotten leases (a restart, a flush, a promoted
// replica) until one of its clients has held it back for as long as the longest
// lease lasts. It is for package quorum, and for a single server whose locks must
// survive its restart. It costs the server 5 µs for a lock and unlock under load,
// and 10 for one that comes alone.
type Node struct{ *Driver }

var (
	_ driver.Async    = (*Node)(nil)
	_ driver.Recorded = (*Node)(nil)
)

// NewNode is New for a server that keeps a record. maxTTL is the longest lease, at
// least 10 ms: no request may ask for more. The client is not a
// *redis.ClusterClient.
//
// Every client of the locks must be a Node, as others grant whatever the record
// says, and have the same maxTTL, as each holds the server back for its own.
func NewNode(rdb redis.UniversalClient, maxTTL time.Duration, o *Options) *Node {
	d := newDriver(rdb, o)
	d.maxTTL, d.scripts = maxTTL, &node
	if d.bad == nil {
		d.bad = refuseNode(rdb, maxTTL)
	}
	return &Node{d}
}

// Vote asks for the server's vote; see [driver.Node].
func (n *Node) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	return n.vote(ctx, r)
}

// Withdraw gives a vote back; see [driver.Node].
func (n *Node) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	return n.withdraw(ctx, r)
}
