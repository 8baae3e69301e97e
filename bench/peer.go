// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// defaultTTL is every peer's TTL, unless a scenario varies it.
const defaultTTL = 30 * time.Second

// target says where the clients of a peer connect. It is plain data, so that it can be
// passed to a child process.
type target struct {
	Redis []string // host:port of five independent servers; most peers use the first
	Etcd  string   // host:port; empty without an etcd
	// ZooKeeper is host:port; empty before a peer needed it.
	ZooKeeper string
	Dir       string // of the peers that lock a file
	// Agent is the address of hasp agent, or the command line of one.
	Agent []string
	TTL   time.Duration
}

// peer is a lock that people use today, or hasp itself.
type peer struct {
	name   string // as tables, flags and files call it
	config string // one line: how it is configured, with its TTL and connections
	on     store
	fails  bool // Lock of a held key fails, and does not wait
	// differs is in what alone it differs from another peer.
	differs trait
	// open makes one client, as a user would, with connections of its own.
	// ctx bounds the opening only.
	open func(ctx context.Context, to target) (locker, error)
	// command, of a peer of S7, which needs no open, returns the program and the arguments before the command to run; of S17, the URL of the
	// agent's store. hasp is in dir.
	command func(e *env, dir string) []string
}

// store is what a peer locks in.
type store int

const (
	onRedis store = iota
	onEtcd
	onZooKeeper
	onFile
	inProcess // it excludes within this process only; nothing crosses a network
)

type trait int

const (
	patient  trait = iota + 1 // how it waits
	turned                    // only where the goroutines of one client contend
	keeping                   // only where a client wants a key again
	trailing                  // only where none waits for a key that was released
)

// available reports whether what the peer needs is installed.
func (p *peer) available(e *env) bool {
	if p.command != nil && family(p.name) != baseline {
		if _, err := exec.LookPath(p.command(e, "")[0]); err != nil {
			return false
		}
	}
	return (p.on != onEtcd || e.etcd != nil) && (p.on != onZooKeeper || testserver.HasZooKeeper())
}

// waiting reports whether a peer waits, as is asked of it in most scenarios. Redlock has a scenario of its own.
func waiting(_ *env, p *peer) bool {
	return !p.fails && p.differs < turned && p.name != redlock
}

// unlock releases a key, once; it fails if the lock was lost.
type unlock = func(context.Context) error

// locker is one client of a peer. Its methods may be called by any number of
// goroutines at once.
type locker interface {
	// Lock acquires the key; if the peer waits, until ctx ends. A peer in this process ignores ctx.
	Lock(ctx context.Context, key string) (unlock, error)
	// Close closes the client and its connections.
	Close() error
}

// sharer is a locker that any number of readers can hold at once.
type sharer interface {
	// RLock is Lock for a reader.
	RLock(ctx context.Context, key string) (unlock, error)
}

// peers are in the order of the tables. The first one is what the others are
// compared with.
var peers = slices.Concat(
	haspPeers, redlockPeers, floorPeers, redislockPeers, redsyncPeers, rueidislockPeers, etcdPeers, localPeers,
)

// baseline is the peer that ratios are against.
const baseline = "hasp"

// family is the first word of a peer's name.
func family(peer string) string {
	first, _, _ := strings.Cut(peer, " ")
	return first
}
