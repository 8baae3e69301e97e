// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package quorum combines 3, 5 or 7 independent stores into one engine: an owner holds
// a key when a majority of the nodes granted it. It is the Redlock algorithm
// of "Distributed Locks with Redis" (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/),
// with what that leaves to its readers: a node that lost data grants nothing until the
// leases it may have lost would have expired, and every lease has a fence that rises
// from holder to holder.
//
//	var nodes []voting.Node
//	for _, addr := range []string{"redis-1:6379", "redis-2:6379", "redis-3:6379"} {
//		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
//		nodes = append(nodes, redisdriver.NewNode(rdb, 30*time.Second, nil))
//	}
//	locks, err := hasp.New(quorum.New(nodes, nil), nil)
//
// # How it works
//
// A Try asks all nodes at once, with one owner and one proposed fence, and returns
// when a majority has answered; a node that does not answer within a node time-out,
// far below the TTL, has no vote. Votes of an attempt that did not win a majority are
// withdrawn at once. A release goes to every node that was asked, also to those that
// failed. A renewal counts when a majority prolonged what it had without a gap. A node
// that hangs is probed, one probe at a time, and is sent nothing else.
//
// What follows from which answer is decided in one place without I/O, internal/ballot;
// this package carries it out.
//
// # Restarted nodes
//
// A node with another process, or memory, than those that were admitted grants nothing:
// see [voting.Recorded]. This package times its wait and admits it, and gives running
// leases their vote back. A new deployment waits, too, unless an operator declares that
// no locks are active: [Driver.Admit].
//
// # Waiting
//
// The queue of waiters is on one node: of those in service, the first by the name of its
// store's present life, which all clients see alike, in whatever order they
// list the nodes. It hands its vote to the next in the queue, which then asks the others.
// While clients see different nodes in service, waiting is less fair, and nothing
// else.
//
// # Sharing
//
// Readers (driver.Shared) need a majority each, and their majorities may overlap in
// any way; a writer needs a majority of nodes without a reader. A writer that
// converts its lease does so on all nodes; those that missed it are told with the
// renewals. The number of holders that share a key cannot be bounded: each node would count
// for itself, and with n votes on each there could be n*nodes/majority holders. Take n
// locks, or one store.
//
// Any node that voted can say that a previous holder did not release the key. A node
// that was out of reach while the next holder came and went says so once more.
//
// # What it cannot promise
//
// A voting node ends leases early when its wall clock steps forward, and then two
// holders are possible: fences still rise. The same holds for an eviction, or a lock key
// that a person deletes. What a lease protects should compare fences.
package quorum
