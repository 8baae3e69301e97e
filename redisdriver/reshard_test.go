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
	"github.com/hasplock/hasp/driver"
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
	reader, err := holder.RWMutex("{tag}read", &hasp.LockOptions{TTL: time.Minute}).RLock(g.ctx)
	if err != nil {
		t.Fatal(err)
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
	raw := g.open()
	defer raw.Close()
	d := New(raw, nil)
	defer d.Close()
	stranger := func() (got driver.Renewal) { // one who does not hold the key prolongs nothing
		r := ask(key(2))
		r.TTL = time.Hour
		d.Renew(g.ctx, []driver.RenewRequest{r.Renewal()}, func(_ int, r driver.Renewal) { got = r })
		return got
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
		ttl := time.Duration(step+1) * 10 * time.Minute // however long the slot moves
		for i, l := range leases {
			if err := l.Extend(g.ctx, ttl); err != nil || time.Until(l.Deadline()) < ttl-5*time.Minute {
				t.Errorf("step %d: Extend of %q: %v; it lasts until %v", step, key(i), err, l.Deadline())
			}
		}
		if got := stranger(); got.Err == nil {
			t.Errorf("step %d: the renewal of one who does not hold the key: %+v", step, got)
		}
		if left := raw.PTTL(g.ctx, "lock:"+key(2)).Val(); left > ttl || left < ttl-5*time.Minute {
			t.Errorf("step %d: %q lasts for %v more", step, key(2), left)
		}
		if err := reader.Extend(g.ctx, time.Minute); step > 0 && err == nil || reader.Err() != nil {
			t.Errorf("step %d: Extend of a reader: %v; its lease: %v", step, err, reader.Err())
		}
	})
	for i, l := range append(leases, reader) {
		if err := l.Extend(g.ctx, 5*time.Second); err != nil {
			t.Errorf("%d: Extend: %v", i, err)
		}
		if err := l.Release(); err != nil {
			t.Errorf("%d: Release: %v", i, err)
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
