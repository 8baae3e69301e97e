// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// group is a deployment of several servers, and clients of it.
type group struct {
	testing.TB
	ctx  context.Context
	open func() redis.UniversalClient
}

func newGroup(t testing.TB, open func() redis.UniversalClient) *group {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for a machine under load
	t.Cleanup(cancel)
	return &group{t, ctx, open}
}

// client opens a client of hasp with connections of its own.
func (g *group) client() *hasp.Client {
	g.Helper()
	rdb := g.open()
	c, err := hasp.New(New(rdb, nil), nil)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
	})
	return c
}

// A slot that moves to another master takes its leases along. While it moves, nobody is granted a key of it.
func TestResharding(t *testing.T) {
	t.Parallel()
	servers := testserver.NewRedisCluster(t, 3, calm)
	g := newGroup(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs()})
	})
	holder, other := g.client(), g.client()
	const n = 20
	key := func(i int) string { return fmt.Sprintf("{tag}%d", i) }
	var leases []*hasp.Lease
	for i := range n {
		l, err := holder.Mutex(key(i), &hasp.LockOptions{TTL: 5 * time.Second}).Lock(g.ctx)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, l)
	}
	next := make(chan error, 1)
	go func() {
		l, err := other.Mutex(key(0), nil).Lock(g.ctx)
		if err == nil {
			err = l.Release()
		}
		next <- err
	}()
	for info, err := holder.Inspect(g.ctx, key(0)); info.Waiters == 0; info, err = holder.Inspect(g.ctx, key(0)) {
		if err != nil {
			t.Fatal(err)
		}
	}
	slot := hashSlot("lock:" + key(0))
	from := servers.Master(slot)
	to := servers.Masters[0]
	if to == from {
		to = servers.Masters[1]
	}
	servers.Move(slot, from, to, func(step int) {
		for i := range n {
			ctx, cancel := context.WithTimeout(g.ctx, 100*time.Millisecond)
			l, err := other.Mutex(key(i), nil).TryLock(ctx)
			cancel()
			if err == nil {
				t.Errorf("step %d: %q was granted to another: %v", step, key(i), l)
			}
		}
		for i, l := range leases { // however long the slot moves
			if err := l.Extend(g.ctx, time.Minute); err != nil || time.Until(l.Deadline()) < 50*time.Second {
				t.Errorf("step %d: Extend of %q: %v; it lasts until %v", step, key(i), err, l.Deadline())
			}
		}
	})
	for i, l := range leases {
		if err := l.Extend(g.ctx, 5*time.Second); err != nil {
			t.Errorf("%q: %v", key(i), err)
		}
	}
	for i, l := range leases {
		if err := l.Release(); err != nil {
			t.Errorf("%q: %v", key(i), err)
		}
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	for i := range n {
		if _, err := other.Mutex(key(i), nil).TryLock(g.ctx); errors.Is(err, hasp.ErrHeld) {
			t.Errorf("%q: %v", key(i), err)
		}
	}
}
