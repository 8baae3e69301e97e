// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package recipe is what hasp and Curator's recipes agree about in ZooKeeper: what a node of a key is called, which nodes hold
// the key and which wait, and how a client gets from a request to a grant ([Attempt]) and what it has until then ([Record]).
//
// It decides, and does nothing: it has no connection, clock, goroutine or lock. Its caller does what it says, and tells it what
// came of it.
package recipe
