// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package quorum makes one engine of 3, 5 or 7 independent ones: a key is held
// by whoever a majority of the nodes granted it to. It is the Redlock algorithm
// of "Distributed Locks with Redis" (https://redis.io/docs/latest/develop/use/patterns/distributed-locks/)
// with what that leaves to its readers: nodes that forgot are held back until
// nothing they forgot can matter, and every lease has a fence that rises from
// holder to holder.
//
//	var nodes []driver.Node
//	for _, addr := range []string{"redis-1:6379", "redis-2:6379", "redis-3:6379"} {
//		rdb := redis.NewClient(&redis.Options{Addr: addr})
//		nodes = append(nodes, redisdriver.NewNode(rdb, 30*time.Second, nil))
//	}
//	locks, err := hasp.New(quorum.New(nodes, nil), nil)
//
// # How it works
//
// A Try asks all nodes at once, with one owner and one proposed fence, and
// returns with the answers of a majority; a node that does not answer within a
// node time-out far below the TTL has no vote. What a lost race left on a minority is
// given back at once. Release goes to every node that was asked, also to those
// that failed. A renewal counts when a majority prolonged what it had without a
// gap. A node that hangs has one probe under way and nothing behind it.
//
// # Restarted nodes
//
// A node whose process, or memory, is another than the one that was admitted
// grants nothing: see [driver.Recorded]. This package times its wait and admits it,
// and gives running leases their vote back. A new deployment waits, too, unless
// an operator gives the word that no locks are active: [Driver.Admit].
//
// # Waiting
//
// There is a line on one node: of those in service, the one whose store's present
// life comes first by name, which all clients see alike, in whatever order they
// list the nodes. It hands its vote to the next in line, who then asks the others.
// While clients see different nodes in service, waiting is less fair, and nothing
// else.
//
// # Sharing
//
// Readers (driver.Shared) need a majority each, and their majorities may overlap in
// any way; a writer needs one of nodes on which nobody reads. A writer that converts
// does so on all nodes; those that missed it are told with the renewals. How many
// share a key cannot be bounded: each node would count for itself, and with n votes
// on each there could be n*nodes/majority holders. Take n locks, or one store.
//
// That a holder did not finish is told by any node that voted. One that was away
// while the next holder came and went tells it once more.
//
// # What it cannot promise
//
// A node that votes and whose wall clock steps forward ends leases early, and
// two holders are possible: fences still rise. So does an eviction, or a lock key
// that somebody deletes. What a lease protects should compare fences.
package quorum
