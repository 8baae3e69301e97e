// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"
)

// defaultTTL is every peer's TTL, unless a scenario varies it.
const defaultTTL = 30 * time.Second

// target says where the clients of a peer connect. It is plain data, so that it can be
// passed to a child process.
type target struct {
	Redis []string // host:port of five independent servers; most peers use the first
	Etcd  string   // host:port; empty without an etcd
	// ZooKeeper is host:port; empty before env.startZooKeeper.
	ZooKeeper string
	Dir       string // for those that lock a file
	TTL       time.Duration
}

// peer is a lock that people use today, or hasp itself. Scenarios that do not use
// lockers have peers of their own, without open.
type peer struct {
	name    string // as tables, flags and files call it
	modules []string
	config  string // one line: how it is configured, with its TTL and connections
	// waits: Lock waits for a held key. Without it Lock fails.
	waits bool
	// patience: it differs from another peer only in how it waits.
	patience bool
	// turns: it differs from another peer only where the goroutines of one
	// client contend.
	turns bool
	// keeps: it differs from another peer only where a client wants a key again.
	keeps bool
	// etcd: it needs etcd.
	etcd bool
	// zookeeper: it needs ZooKeeper.
	zookeeper bool
	// local: it excludes within this process only; nothing crosses a network.
	local bool
	// open makes one client, as a user would, with connections of its own.
	// ctx bounds the opening only.
	open func(ctx context.Context, to target) (locker, error)
}

// locker is one client of a peer. Its methods may be called by any number of
// goroutines at once.
type locker interface {
	// Lock acquires the key; if the peer waits, until ctx ends. A local peer
	// ignores ctx. unlock releases the key, once; it fails if the lock was lost.
	Lock(ctx context.Context, key string) (unlock func(context.Context) error, err error)
	// Close closes the client and its connections.
	Close() error
}

// sharer is a locker that any number of readers can hold at once.
type sharer interface {
	// RLock is Lock for a reader.
	RLock(ctx context.Context, key string) (unlock func(context.Context) error, err error)
}

// peers are in the order of the tables. The first one is what the others are
// compared with.
var peers = slices.Concat(
	haspPeers, redlockPeers, floorPeers, redislockPeers, redsyncPeers, rueidislockPeers, etcdPeers, localPeers,
)

// baseline is the peer that ratios are against.
const baseline = "hasp"
