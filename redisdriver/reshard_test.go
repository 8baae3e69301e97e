// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// group is a deployment of several servers, and clients of it.
type group struct {
	testing.TB
	ctx     context.Context
	open    func() redis.UniversalClient
	options *Options // of drivers
}

func newGroup(t testing.TB, open func() redis.UniversalClient) *group {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for a machine under load
	t.Cleanup(cancel)
	return &group{TB: t, ctx: ctx, open: open}
}

// master is the running master of a slot. It may not answer at once.
func (g *group) master(servers *testserver.RedisCluster, slot int) *testserver.Server {
	g.Helper()
	for {
		if s := servers.Master(slot); s != nil {
			return s
		}
		stopIf(g, g.ctx.Err() != nil, "no master of slot %d answers", slot)
		g.pause()
	}
}

// client opens a client of hasp with connections of its own.
func (g *group) client() *hasp.Client {
	g.Helper()
	rdb := g.open()
	c, err := hasp.New(New(rdb, g.options), nil)
	must(g, err)
	g.Cleanup(func() {
		_ = c.Close()
		_ = rdb.Close()
	})
	return c
}

// A slot that moves to another master takes its leases along. While it moves, nobody is granted a key of it.
func TestResharding(t *testing.T) {
	t.Parallel()
	servers := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	g := newGroup(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs()})
	})
	holder, other := g.client(), g.client()
	const n = 20
	key := func(i int) string { return fmt.Sprintf("{tag}%d", i) }
	var leases []*hasp.Lease
	for i := range n {
		l, err := holder.Mutex(key(i), &hasp.LockOptions{TTL: time.Hour}).Lock(g.ctx)
		must(t, err)
		leases = append(leases, l)
	}
	reader, err := holder.RWMutex("{tag}read", &hasp.LockOptions{TTL: time.Hour}).RLock(g.ctx)
	must(t, err)
	free, err := holder.Mutex("{tag}free", &hasp.LockOptions{TTL: time.Hour}).Lock(g.ctx) // is released on the way
	must(t, err)
	next := []<-chan *hasp.Lease{g.wait(other, key(0)), g.wait(other, "{tag}free")}
	for _, key := range []string{key(0), "{tag}free"} {
		for info, err := holder.Operator().Inspect(g.ctx, key); info.Waiters == 0; info, err = holder.Operator().Inspect(g.ctx, key) {
			must(t, err)
		}
	}
	slot := wire.HashSlot("lock:" + key(0))
	from, to := g.master(servers, slot), servers.Masters[0]
	if to == from {
		to = servers.Masters[1]
	}
	raw := g.open()
	defer raw.Close()
	d := New(raw, nil)
	defer d.Close()
	var many []driver.RenewRequest // in one script: every other one is of an owner who does not hold its key
	for i := range n {
		r := ask(fmt.Sprintf("{tag}many%d", i/2))
		if i%2 == 0 {
			if res, err := contend.Try(g.ctx, d, r); err != nil || !res.Granted {
				t.Fatalf("%+v, %v", res, err)
			}
		}
		many = append(many, r.Renewal())
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
		begun, ttl := time.Now(), time.Duration(step+2)*time.Hour // however long the slot moves
		for i, l := range leases {
			if err := l.Extend(g.ctx, ttl); err != nil || time.Until(l.Deadline()) < ttl-5*time.Minute {
				t.Errorf("step %d: Extend of %q: %v; it lasts until %v", step, key(i), err, l.Deadline())
			}
		}
		for i := range many {
			many[i].TTL = ttl
			if i%2 == 1 {
				many[i].TTL = 24 * time.Hour
			}
		}
		for i, got := range renewed(g.ctx, d, many) {
			if held := i%2 == 0; held && (got.Err != nil || got.TTL != ttl) || !held && got.Err == nil {
				t.Errorf("step %d: renewal %d: %+v", step, i, got)
			}
		}
		for i := 0; i < n; i += 2 {
			names := d.names(many[i].Key)
			for key, most := range map[string]time.Duration{names.lock: ttl, names.grant: ttl + keep} { // each key has one master at any moment
				if left := raw.PTTL(g.ctx, key).Val(); left > most+time.Second || left < most-time.Since(begun)-keep/2 {
					t.Errorf("step %d: %q lasts for %v more", step, key, left)
				}
			}
		}
		if step == 1 {
			if err := free.Release(); err != nil && class(err) != driver.ClassUnreachable {
				t.Errorf("Release on the way: %v", err)
			}
		}
		if err := reader.Extend(g.ctx, time.Hour); step > 0 && err == nil || reader.Err() != nil {
			t.Errorf("step %d: Extend of a reader: %v; its lease: %v", step, err, reader.Err())
		}
	})
	for i, l := range append(leases, reader) {
		if err := l.Extend(g.ctx, time.Hour); err != nil {
			t.Errorf("%d: Extend: %v", i, err)
		}
		if err := l.Release(); err != nil {
			t.Errorf("%d: Release: %v", i, err)
		}
	}
	for _, next := range next {
		if l := <-next; l == nil {
			t.Error("a waiter was not granted its key")
		} else if err := l.Release(); err != nil {
			t.Error(err)
		}
	}
	for i := range n {
		if _, err := other.Mutex(key(i), nil).TryLock(g.ctx); errors.Is(err, hasp.ErrHeld) {
			t.Errorf("%q: %v", key(i), err)
		}
	}
}

// renewed is what a Renew says of each request.
func renewed(ctx context.Context, d driver.Driver, rs []driver.RenewRequest) map[int]driver.Renewal {
	var mu sync.Mutex
	out := map[int]driver.Renewal{}
	d.Renew(ctx, rs, func(i int, r driver.Renewal) {
		mu.Lock()
		defer mu.Unlock()
		out[i] = r
	})
	return out
}

func class(err error) driver.Class {
	var e *hasp.Error
	errors.As(err, &e)
	if e == nil {
		return driver.ClassUnknown
	}
	return e.Class
}
