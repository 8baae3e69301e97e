// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"context"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/redisson"
	"github.com/redis/go-redis/v9"
)

// synchronizer is one of Redisson's in Go: set gives it permits, or a count; take waits for a permit, or for it to open.
type synchronizer struct {
	kind string
	set  func(ctx context.Context, n int) (bool, error)
	take func(ctx context.Context) (id string, err error)
	give func(ctx context.Context, id string) error
}

func synchronizers(s *redisson.Synchronizers, key string) []synchronizer {
	m, p, l := s.Semaphore("semaphore."+key), s.PermitExpirableSemaphore("permit."+key), s.CountDownLatch("latch."+key)
	return []synchronizer{
		{"semaphore", m.TrySetPermits, func(ctx context.Context) (string, error) { return "-", m.Acquire(ctx, 1) },
			func(ctx context.Context, _ string) error { return m.Release(ctx, 1) }},
		{"permit", p.TrySetPermits, func(ctx context.Context) (string, error) { return p.Acquire(ctx, 10*time.Minute) },
			func(ctx context.Context, id string) error { return p.Release(ctx, id) }},
		{"latch", l.TrySetCount, func(ctx context.Context) (string, error) { return "-", l.Wait(ctx) },
			func(ctx context.Context, _ string) error { return l.CountDown(ctx) }},
	}
}

// Semaphores and latches are shared with a running Redisson: what one side gives wakes the other that waits, both ways.
func TestRedissonSynchronizers(t *testing.T) {
	server := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	j := start(t, java, longTTL, server.Addr())
	s := redisson.NewSynchronizers(rdb, nil)
	t.Cleanup(func() { s.Close() })
	for _, of := range synchronizers(s, "k") {
		t.Run(of.kind, func(t *testing.T) {
			key := of.kind + ".k"
			// Java gives, and wakes Go.
			held := j.locks("a", of.kind, key, 0, func(p *params) { p.Slots = 1 })
			if set, err := of.set(t.Context(), 5); set || err != nil {
				t.Fatalf("it was set again: %v, %v", set, err)
			}
			type taken struct {
				id  string
				err error
			}
			got := make(chan taken, 1)
			go func() {
				id, err := of.take(t.Context())
				got <- taken{id, err}
			}()
			listeners(t, rdb, key, 1)
			held.unlock()
			ours := <-got
			if ours.err != nil {
				t.Fatal(ours.err)
			}
			// Go gives, and wakes Java.
			if of.kind == "latch" {
				if set, err := of.set(t.Context(), 1); !set || err != nil {
					t.Fatalf("it was not set: %v, %v", set, err)
				}
			}
			listeners(t, rdb, key, 0)
			next := j.asks("b", of.kind, key, soon)
			listeners(t, rdb, key, 1)
			if err := of.give(t.Context(), ours.id); err != nil {
				t.Fatal(err)
			}
			next.granted()
		})
	}
}

// listeners waits until so many connections are subscribed to a channel of key.
func listeners(t *testing.T, rdb *redis.Client, key string, want int64) {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(time.Millisecond) {
		var n int64
		channels := rdb.PubSubChannels(t.Context(), "*"+key+"*").Val()
		for _, one := range rdb.PubSubNumSub(t.Context(), channels...).Val() {
			n += one
		}
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d listen to %q, want %d", n, channels, want)
		}
	}
}
