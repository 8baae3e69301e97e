// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package etcddriver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// user is a client of package hasp on a driver of its own.
func user(t testing.TB, addrs ...string) *hasp.Client {
	t.Helper()
	o := clientv3.Config{Endpoints: addrs, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: time.Second} // as doc.go advises; gRPC takes no less
	c, err := hasp.New(New(dialled(t, o), &Options{ElectionTimeout: quickElection}), nil)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// crowd has some processes contend for one key.
type crowd struct {
	rounds atomic.Int64
	inside atomic.Pointer[hasp.Lease]
	fence  atomic.Uint64
}

// join takes turns until ctx ends.
func (w *crowd) join(ctx context.Context, t testing.TB, c *hasp.Client) {
	for ctx.Err() == nil {
		lease, err := c.Mutex("crowd", &hasp.LockOptions{TTL: 3 * time.Second}).Lock(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("Lock: %v", err)
			}
			return
		}
		if other := w.inside.Swap(lease); other != nil && other.Err() == nil && lease.Err() == nil {
			t.Errorf("two hold the key: the fences are %d and %d", other.Fence(), lease.Fence())
		}
		if before := w.fence.Swap(lease.Fence()); before >= lease.Fence() && lease.Err() == nil {
			t.Errorf("the fence is %d after %d", lease.Fence(), before)
		}
		w.rounds.Add(1)
		w.inside.CompareAndSwap(lease, nil)
		if err := lease.Release(); err != nil && !errors.Is(err, hasp.ErrLost) && ctx.Err() == nil {
			t.Logf("Release: %v", err) // it is tried again in the background, or expires
		}
	}
}

// goesOn fails unless the crowd takes more turns soon.
func (w *crowd) goesOn(t testing.TB, after string) {
	t.Helper()
	start, from := time.Now(), w.rounds.Load()
	for w.rounds.Load() < from+20 {
		if time.Since(start) > limit {
			t.Fatalf("%d turns within %v after %s", w.rounds.Load()-from, limit, after)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("20 turns within %v after %s", time.Since(start).Round(time.Millisecond), after)
}

// TestCluster: the leader is killed, a minority is stopped, and the leader is cut off, while processes
// contend for a key and one holds another one all the time.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := testserver.NewEtcdCluster(t, quick...)
	holder := user(t, c.Addrs()...)
	const ttl = 2 * time.Minute
	kept, err := holder.Mutex("kept", &hasp.LockOptions{TTL: ttl}).Lock(t.Context())
	must(t, err)
	var w crowd
	goesOn := func(after string) {
		t.Helper()
		w.goesOn(t, after)
		for err := kept.Extend(t.Context(), ttl); err != nil; err = kept.Extend(t.Context(), ttl) {
			if lost := kept.Err(); lost != nil {
				t.Fatalf("after %s the lease is not renewed: %v, %v", after, err, lost)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	for range 4 {
		client := user(t, c.Addrs()...)
		running.Go(func() { w.join(ctx, t, client) })
	}
	goesOn("the start")

	leader := c.Leader()
	c.Members[leader].Kill()
	goesOn("the leader was killed")
	c.Members[leader].Restart()

	leader = c.Leader()
	minority := (leader + 1) % 3
	c.Members[minority].Stop()
	goesOn("a member was stopped")
	c.Members[minority].Cont()

	leader = c.Leader()
	c.Members[leader].Stop()
	goesOn("the leader was stopped")
	c.Members[leader].Cont()
	goesOn("it goes on")

	leader = c.Leader()
	c.Cut(leader)
	goesOn("the leader was cut off")
	c.Heal(leader)
	goesOn("it is back")
	must(t, kept.Release())
}

// TestCutOffHolder: a holder whose member is cut off from the others knows that its lease is over
// before another one has the key.
func TestCutOffHolder(t *testing.T) {
	t.Parallel()
	c := testserver.NewEtcdCluster(t, quick...)
	for _, lead := range []bool{true, false} {
		cut := c.Leader()
		if !lead {
			cut = (cut + 1) % 3
		}
		var rest []string
		for i, s := range c.Members {
			if i != cut {
				rest = append(rest, s.Addr())
			}
		}
		lease, err := user(t, c.Members[cut].Addr()).Mutex("k", &hasp.LockOptions{TTL: 3 * time.Second}).Lock(t.Context())
		must(t, err)
		lost := stall.Watch(t)
		ended := make(chan time.Time, 1)
		go func() { <-lease.Done(); ended <- time.Now() }()
		c.Cut(cut)
		next, err := user(t, rest...).Mutex("k", &hasp.LockOptions{TTL: time.Hour}).Lock(t.Context())
		granted := time.Now()
		must(t, err)
		if at := comes(t, ended, "the end of the lease of the holder that is cut off"); !lease.Deadline().Before(granted) || !at.Before(granted.Add(lost())) {
			t.Errorf("it learned of it %v after another had the key, its deadline was %v after that", at.Sub(granted), lease.Deadline().Sub(granted))
		} else {
			t.Logf("it learned of it %v before another had the key", granted.Sub(at))
		}
		if next.Fence() <= lease.Fence() || !next.Abandoned() {
			t.Errorf("the fence is %d after %d, abandoned: %v", next.Fence(), lease.Fence(), next.Abandoned())
		}
		if err := next.Release(); err != nil {
			t.Error(err)
		}
		c.Heal(cut)
	}
}

// TestSuiteOverACluster is TestSuite over three members: in turn, each driver talks to all.
func TestSuiteOverACluster(t *testing.T) {
	if !overCluster() {
		t.Skip("HASP_TEST_ETCD_CLUSTER is not set: this takes as long as the suite over one member")
	}
	t.Parallel()
	runSuite(t, testserver.NewEtcdCluster(t, quick...).Addrs()...)
}
