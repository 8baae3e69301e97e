// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// down is for how long a master is silent before it is replaced, in tests of that.
const down = 3 * time.Second

func newSentinels(t testing.TB) (*testserver.RedisSentinel, *group) {
	t.Helper()
	servers := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: down})
	return servers, newGroup(t, func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.MasterName, SentinelAddrs: servers.Addrs()})
	})
}

// replicated waits until every replica has what the master has.
func replicated(t testing.TB, s *testserver.RedisSentinel) {
	t.Helper()
	one := redis.NewClient(&redis.Options{Addr: s.Master.Addr(), ReadTimeout: time.Minute})
	defer one.Close()
	if err := one.Set(t.Context(), "written", 1, 0).Err(); err != nil { // WAIT is about what its connection wrote
		t.Fatal(err)
	}
	if n, err := one.Wait(t.Context(), len(s.Replicas), 0).Result(); err != nil || int(n) != len(s.Replicas) {
		t.Fatalf("%d replicas have it: %v", n, err)
	}
}

// A lease that the promoted replica has goes on, and a waiter gets the key after it.
func TestFailoverKeepsALease(t *testing.T) {
	t.Parallel()
	servers, g := newSentinels(t)
	holder, other := g.client(), g.client()
	const ttl = time.Hour // longer than a slow failover
	lease, err := holder.Mutex("k", &hasp.LockOptions{TTL: ttl}).Lock(g.ctx)
	must(t, err)
	next := g.wait(other, "k")
	for info, err := holder.Operator().Inspect(g.ctx, "k"); info.Waiters == 0; info, err = holder.Operator().Inspect(g.ctx, "k") {
		must(t, err)
	}
	replicated(t, servers)
	servers.Master.Kill()
	for lease.Extend(g.ctx, ttl) != nil {
		if err := lease.Err(); err != nil {
			t.Fatalf("the lease is lost: %v", err)
		}
		g.pause()
	}
	select {
	case l := <-next:
		t.Fatalf("somebody else was granted the key: %v", l)
	default:
	}
	must(t, lease.Release())
	if l := <-next; l == nil || l.Fence() <= lease.Fence() {
		t.Errorf("the next lease is %v, after fence %d", l, lease.Fence())
	}
}

// A lease that no replica has yet is lost when its master dies: another is granted the key while the first may still believe that it
// holds it. The fence of the other one is larger, as their clocks agree, so that a guard refuses the first.
func TestFailoverLosesALease(t *testing.T) {
	t.Parallel()
	servers, g := newSentinels(t)
	holder, other := g.client(), g.client()
	replicated(t, servers)
	for _, s := range servers.Replicas {
		s.Stop()
	}
	one := redis.NewClient(&redis.Options{Addr: servers.Master.Addr()})
	defer one.Close()
	if err := one.Do(g.ctx, "CLIENT", "KILL", "TYPE", "REPLICA").Err(); err != nil { // or they would find it in their buffers
		t.Fatal(err)
	}
	lease, err := holder.Mutex("k", &hasp.LockOptions{TTL: time.Hour}).Lock(g.ctx) // no renewal tells the holder soon
	must(t, err)
	servers.Master.Kill()
	for _, s := range servers.Replicas {
		s.Cont()
	}
	l := <-g.wait(other, "k")
	switch {
	case l == nil:
		t.Error("nobody else was granted the key")
	case lease.Err() != nil:
		t.Errorf("the first holder knows of it already: %v", lease.Err())
	case l.Fence() <= lease.Fence():
		t.Errorf("fence %d after %d: no guard would refuse the first holder", l.Fence(), lease.Fence())
	}
	for lease.Err() == nil && g.ctx.Err() == nil { // its client may hear of the new master later
		if err := lease.Extend(g.ctx, time.Hour); err == nil {
			t.Fatal("the lease of the first holder was prolonged")
		}
		g.pause()
	}
	failIf(t, lease.Err() == nil, "the first holder is not told at its next renewal")
}

// At a promoted replica whose clock is behind that of the master, the fence falls. A node record holds the replica back until its clock
// has passed all that the master granted.
func TestFailoverBetweenSkewedClocks(t *testing.T) {
	t.Parallel()
	const behind = 1000 * time.Second // longer than any stall of the machine
	for _, record := range []bool{false, true} {
		open := func(w *world) *Driver { return w.driver(nil) }
		if record {
			open = (*world).node
		}
		w := newWorld(t, "--repl-diskless-sync-delay", "0")
		r, step := clocked(t)
		clock := func(by time.Duration) { step(fmt.Sprintf("%+d", by/time.Second)) }
		clock(-behind)
		master, promoted := open(w), open(r)
		if record {
			w.admit(master)
		}
		first, lost, second := ask("k"), ask("k"), ask("k")
		w.on(master).grant(first).release(first)
		r.server.Follow(w.server)
		r.do("REPLICAOF", "NO", "ONE")
		fence := w.grant(master, lost).Fence
		if record {
			r.heldBack(promoted, second)
			clock(admission.Wait(nodeMaxTTL) - behind) // the wait, which a client times
			r.admit(promoted)
		}
		if got := r.grant(promoted, second).Fence; (got > fence) != record {
			t.Errorf("with a record %v: fence %d after %d", record, got, fence)
		}
	}
}

// wait has a client ask for a key, also while its store is gone. The channel gets the lease, or is closed when there is none.
func (g *group) wait(c *hasp.Client, key string) <-chan *hasp.Lease {
	out := make(chan *hasp.Lease, 1)
	go func() {
		defer close(out)
		for g.ctx.Err() == nil {
			if l, err := c.Mutex(key, &hasp.LockOptions{TTL: time.Hour}).Lock(g.ctx); err == nil {
				out <- l
				return
			}
			g.pause()
		}
	}()
	return out
}

// pause is between two attempts while there may be no master.
func (g *group) pause() {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-g.ctx.Done():
	}
}
