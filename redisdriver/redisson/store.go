// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"

	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// store is what a Driver and Synchronizers are made of: the caller's client, and what they opened themselves.
type store struct {
	client  wire.Client
	prefix  string
	cluster bool
	id      string
	bad     error // the configuration cannot work

	send *wire.Sender

	life    context.Context // ends with close
	end     context.CancelFunc
	running sync.WaitGroup
	posts   *posts
}

// newStore returns a store. wake wakes its waiters; next is the message that goes on to the next waiter when one leaves.
func newStore(c wire.Client, prefix string, wake func(channel, payload string, all []*watcher), next string) *store {
	t := c.Traits()
	s := &store{client: c, prefix: prefix, cluster: t.Cluster, id: rand.Text(), bad: t.Unusable}
	if s.bad == nil && strings.HasPrefix(prefix, wire.Sidecars) {
		s.bad = &wire.ConfigError{Why: fmt.Sprintf("the prefix %q begins with %q, which is reserved for what hasp stores beside locks: "+
			"choose another prefix", prefix, wire.Sidecars)}
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.send = wire.NewSender(c, 0, s.life.Done())
	s.posts = &posts{s: s, wake: wake, next: next}
	s.posts.Boxes = wire.Boxes[*post]{New: s.posts.post, Running: &s.running, Open: map[int]*post{}}
	return s
}

// publish is the command that sends messages to Java: in a cluster of Redis 7 it uses sharded channels.
func (s *store) publish() string {
	if s.cluster {
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// slotOf is the hash slot of a key without its prefix; -1 outside a cluster.
func (s *store) slotOf(key string) int {
	if !s.cluster {
		return -1
	}
	return wire.HashSlot(s.prefix + key)
}

// reserved returns what is wrong with a key that begins as hasp's own do.
func (s *store) reserved(key string) error {
	if strings.HasPrefix(s.prefix+key, wire.Sidecars) {
		return &wire.ConfigError{Why: fmt.Sprintf("the key %q begins with %q, which is reserved for what hasp stores beside locks: choose another",
			s.prefix+key, wire.Sidecars)}
	}
	return nil
}

// close ends subscriptions and goroutines, and waits for that for a second at most.
func (s *store) close() {
	s.end()
	s.posts.Close()
}
