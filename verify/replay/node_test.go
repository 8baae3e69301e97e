// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// member is what a node of a quorum has to implement.
type member interface {
	driver.Node
	driver.Recorded
}

// node is a real node, and its faults.
type node interface {
	member
	restart()                // empty
	snapshot()               // saves what it has
	reload()                 // restarts from the snapshot
	flush()                  // loses everything, and runs on
	jump(by time.Duration)   // of its wall clock
	uptime() time.Duration   // by its wall clock
	oldClock(at time.Time)   // its clock shows this when it is admitted; zero: the true time
	micros() (clock uint64)  // its wall clock
	vanish(key string) error // the holder loses the key
	expire(key string)       // forgets a free key if it is time for that by the clock
}

// memNode is a node in memory.
type memNode struct {
	*memdriver.Store

	mu    sync.Mutex
	off   time.Duration
	fixed time.Time // what the clock shows; zero: the time
	old   time.Time
	up    time.Time
	saved *memdriver.Snapshot
}

func newMemNode(maxTTL time.Duration) *memNode {
	n := &memNode{up: time.Now().Add(-time.Hour)}
	n.Store = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: maxTTL, Now: n.now})
	return n
}

func (n *memNode) now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.fixed.IsZero() {
		return n.fixed
	}
	return time.Now().Add(n.off)
}

func (n *memNode) restart() {
	n.Restart(nil)
	n.up = n.now()
}

func (n *memNode) snapshot() { n.saved = n.Snapshot() }

func (n *memNode) reload() {
	n.Restart(n.saved)
	n.up = n.now()
}

func (n *memNode) flush() { n.Flush() }

func (n *memNode) jump(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.off += by
}

func (n *memNode) uptime() time.Duration { return n.now().Sub(n.up) }

func (n *memNode) oldClock(at time.Time) { n.old = at }

func (n *memNode) micros() uint64 { return uint64(n.now().UnixMicro()) }

func (n *memNode) vanish(key string) error { return vanish(n, key) }

func (n *memNode) expire(key string) {
	_, _ = n.Inspect(context.Background(), key) // the store checks it when it is inspected
}

// Admit admits the node. The stories of leases are not about fences: there its
// clock is set back meanwhile, so that no proposal is refused for the time since it
// was made.
func (n *memNode) Admit(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
	n.set(n.old)
	defer n.set(time.Time{})
	return n.Store.Admit(ctx, r, maxTTL)
}

func (n *memNode) set(fixed time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fixed = fixed
}

// vanish frees a key, like a break, but the node does not remember it.
func vanish(n member, key string) error {
	info, err := n.Inspect(context.Background(), key)
	if err != nil || !info.Held {
		return errors.Join(err, errors.New("nobody holds the key"))
	}
	return contend.Release(context.Background(), n, contend.Owner{Key: key, Owner: info.Holder.Owner, Label: info.Holder.Label, Settled: true})
}

// redisNode is a redis-server.
type redisNode struct {
	*redisdriver.Node
	t      testing.TB
	server *testserver.Server
	admin  *redis.Client
	up     time.Time
	stuck  bool // steps of the clock are skipped
}

func newRedisNode(t testing.TB, maxTTL time.Duration) *redisNode {
	n := &redisNode{t: t, server: testserver.Redis(t), up: time.Now().Add(-time.Hour)}
	n.admin = redis.NewClient(&redis.Options{Addr: n.server.Addr()})
	n.Node = redisdriver.NewNode(n.admin, maxTTL, nil)
	t.Cleanup(func() {
		_ = n.Close()
		_ = n.admin.Close()
	})
	return n
}

// again returns a new driver of the server, which is empty.
func (n *redisNode) again(t testing.TB, maxTTL time.Duration) *redisNode {
	n.flush()
	o := &redisNode{t: t, server: n.server, admin: n.admin, up: time.Now().Add(-long)}
	o.Node = redisdriver.NewNode(n.admin, maxTTL, nil)
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func (n *redisNode) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *redisNode) restart() {
	if err := os.Remove(filepath.Join(n.server.Dir(), "dump.rdb")); err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	n.reload()
}

func (n *redisNode) snapshot() { n.must(n.admin.Save(context.Background()).Err()) }

// reload returns once the new server is reached: go-redis may still have connections to
// the previous one.
func (n *redisNode) reload() {
	n.server.Restart()
	n.up = time.Now()
	for range 1000 {
		if n.admin.Ping(context.Background()).Err() == nil {
			return
		}
	}
	n.t.Fatal("the server is not reached")
}

func (n *redisNode) flush() { n.must(n.admin.FlushAll(context.Background()).Err()) }

func (n *redisNode) jump(time.Duration) {
	if !n.stuck {
		n.t.Fatal("the clock of this server cannot be stepped")
	}
}

func (n *redisNode) uptime() time.Duration { return time.Since(n.up) }

func (n *redisNode) oldClock(time.Time) {}

func (n *redisNode) micros() uint64 {
	now, err := n.admin.Time(context.Background()).Result()
	n.must(err)
	return uint64(now.UnixMicro())
}

// expire does what Redis itself does once its clock is ahead.
func (n *redisNode) expire(string) {
	grants, err := n.admin.Keys(context.Background(), "hasp.grant:*").Result()
	n.must(err)
	n.must(n.admin.Del(context.Background(), grants...).Err())
}

func (n *redisNode) vanish(key string) error { return vanish(n, key) }
