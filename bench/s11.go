// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/hasplock/hasp/internal/testserver"
)

// s11 is S2 on ZooKeeper.
var s11 = scenario{
	name:  "s11",
	title: "one hot key on ZooKeeper, clients with sessions of their own, held for 1 ms",
	about: "As S2, on one ZooKeeper that syncs each write to the disk, beside the lock of the client that Go programs use. " +
		"Commands are the packets that the server received for each grant.",
	metrics: contended,
	variants: func(bool) []variant {
		return []variant{{"16 clients", 16}, {"128 clients", 128}}
	},
	field: func(*env, []*peer) []*peer {
		if !testserver.HasZooKeeper() {
			return nil
		}
		return slices.Clone(zookeeperPeers)
	},
	run: func(ctx context.Context, e *env, v variant, p *peer) (figures, error) {
		e.startZooKeeper()
		return runS2(ctx, e, v, p)
	},
	bars: []bar{
		atLeast(1, "128 clients: more handoffs/s than go-zookeeper's lock", 128, "handoffs", "go-zookeeper"),
		atMost(1, "128 clients: p99 wait at most that of go-zookeeper's lock", 128, "p99", "go-zookeeper"),
	},
}
