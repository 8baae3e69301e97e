// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package rueidis keeps locks in Redis over the client rueidis. All else is package redisdriver's, whose programs
// these locks are shared with:
//
//	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{"localhost:6379"}, ConnWriteTimeout: 8 * time.Second})
//	locks, err := hasp.New(hasprueidis.New(client, nil), nil)
//
// Any client works: of one server, of Sentinels, of a cluster, with any options. Requests of many goroutines travel
// together, as over go-redis: measured, that takes half the CPU time of rueidis's own pipelining. Subscriptions, and requests
// that wait for replicas, take connections of the client's blocking pool.
//
// rueidis sends no request of hasp's again by itself, but where ConnLifetime ends a connection with a silent server. A request is on its
// way once rueidis has it: a connection that hangs is given up after ConnWriteTimeout, 10 seconds by default, and up to two more. A lock's
// owner is remembered for 10 seconds after its release, so set 8 seconds or less.
package rueidis

import (
	"time"

	"github.com/hasplock/hasp/redisdriver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/rueidis"
)

// New returns a Driver that uses the caller's client, and never closes or changes it. It does no I/O. A client that cannot be
// used is reported by Check, by hasp.New, and by every method. See [redisdriver.New].
func New(client rueidis.Client, o *redisdriver.Options) *redisdriver.Driver {
	return redisdriver.Over(wrap(client), o)
}

// NewNode returns a driver of a server that keeps a node record; see [redisdriver.NewNode]. The client must not be a cluster's.
func NewNode(client rueidis.Client, maxTTL time.Duration, o *redisdriver.Options) *redisdriver.Node {
	return redisdriver.NodeOver(wrap(client), maxTTL, o)
}

// NewGuard returns a guard of data behind a client; see [redisdriver.NewGuard]. What is neither text nor bytes in a command is written
// as fmt.Sprint writes it. Get of an absent key returns go-redis's redis.Nil.
func NewGuard(client rueidis.Client) *redisdriver.Guard {
	c := wrap(client)
	c.heeds = true
	return redisdriver.GuardOver(c)
}

// NewRedisson returns a driver of Redisson's locks; see [redisson.New].
func NewRedisson(client rueidis.Client, o *redisson.Options) *redisson.Driver {
	return redisson.Over(wrap(client), o)
}

// NewSynchronizers returns Redisson's semaphores and latches; see [redisson.NewSynchronizers].
func NewSynchronizers(client rueidis.Client, o *redisson.SynchronizerOptions) *redisson.Synchronizers {
	return redisson.SynchronizersOver(wrap(client), o)
}
