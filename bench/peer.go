// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"
)

// defaultTTL is every peer's TTL, unless a scenario is about it.
const defaultTTL = 30 * time.Second

// target says where the clients of a peer connect. It is plain data, so that a
// child process can be given one.
type target struct {
	Redis []string // host:port of five independent servers; most peers use the first
	Etcd  string   // host:port; empty without an etcd
	TTL   time.Duration
}

// peer is a lock that people use today, or hasp itself. Scenarios that are not about
// lockers make peers of their own, without open.
type peer struct {
	name    string // as tables, flags and files call it
	modules []string
	config  string // one line: how it is configured, with its TTL and connections
	// waits: Lock waits for a key that somebody holds. The others fail.
	waits bool
	// patience: it differs from another peer only in how it waits.
	patience bool
	// turns: it differs from another peer only where the goroutines of one
	// client compete.
	turns bool
	// etcd: it needs an etcd.
	etcd bool
	// local: it excludes within this process only; nothing crosses a network.
	local bool
	// open makes one client as a user has one, with connections of its own.
	// ctx bounds the opening only.
	open func(ctx context.Context, to target) (locker, error)
}

// locker is one client of a peer. Its methods may be called by any number of
// goroutines at once.
type locker interface {
	// Lock takes the key, and waits for it until ctx ends when the peer
	// waits. A local peer ignores ctx. unlock gives the key back, once; it
	// fails when the lock was lost.
	Lock(ctx context.Context, key string) (unlock func(context.Context) error, err error)
	// Close closes the client and its connections.
	Close() error
}

// sharer is a locker that admits any number of readers at once.
type sharer interface {
	// RLock is Lock for one that only reads.
	RLock(ctx context.Context, key string) (unlock func(context.Context) error, err error)
}

// peers are in the order of the tables. The first one is what the others are
// compared with.
var peers = slices.Concat(
	haspPeers, redlockPeers, floorPeers, redislockPeers, redsyncPeers, rueidislockPeers, etcdPeers, localPeers,
)

// baseline is the peer that ratios are against.
const baseline = "hasp"
