// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// newCluster starts a cluster of one node that has all slots.
func newCluster(t testing.TB, args ...string) *world {
	t.Helper()
	w := newWorld(t, append([]string{"--cluster-enabled", "yes"}, args...)...)
	w.do("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
	w.until("the cluster is up", func() bool {
		return strings.Contains(w.admin.ClusterInfo(w.ctx).Val(), "cluster_state:ok")
	})
	return w
}

func (w *world) clusterClient(change func(*redis.ClusterOptions)) *redis.ClusterClient {
	o := &redis.ClusterOptions{Addrs: []string{w.server.Addr()}, DialTimeout: time.Hour, ReadTimeout: time.Hour, PoolTimeout: time.Hour}
	if change != nil {
		change(o)
	}
	c := redis.NewClusterClient(o)
	w.Cleanup(func() { _ = c.Close() })
	return c
}

// Slots are computed as the server computes them, and every sidecar of a lock
// lies in the lock's slot.
func TestSidecarsShareTheSlot(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	keySlot := func(key string) int {
		return int(w.admin.ClusterKeySlot(w.ctx, key).Val())
	}
	for _, prefix := range []string{"lock:", "", "{app}", "}", "{"} {
		d := w.over(w.clusterClient(nil), &Options{Prefix: prefix, NoPrefix: prefix == ""})
		for _, key := range hostile {
			n := d.names(key)
			want := keySlot(n.lock)
			for _, k := range []string{n.lock, n.grant, n.queue, n.places, n.mark.(string), n.gone(ask(key).Owner)} {
				if got := keySlot(k); got != want || wire.HashSlot(k) != want {
					t.Errorf("%q of lock %q is in slot %d, computed %d, want %d", k, n.lock, got, wire.HashSlot(k), want)
				}
			}
			if in := d.boxes.inbox(want); keySlot(in.channel) != want {
				t.Errorf("the channel %q is in slot %d, want %d", in.channel, keySlot(in.channel), want)
			}
		}
	}
}

func TestTagOfEverySlot(t *testing.T) {
	for s := range 16384 {
		if got := wire.HashSlot("x{" + wire.TagOf(s) + "}y"); got != s {
			t.Fatalf("the tag %q of slot %d is in slot %d", wire.TagOf(s), s, got)
		}
	}
}

// The suite on a cluster: of one node, which redirects nothing, but which
// refuses keys of two slots in one command and delivers sharded messages.
func TestSuiteOnAClusterOfOne(t *testing.T) {
	t.Parallel()
	testserver.Variant(t, "slots")
	drivertest.Run(t, drivertest.Harness{Parallel: true, New: func(t testing.TB) drivertest.Store {
		w := newCluster(t)
		w.ctx = context.Background()
		return drivertest.Store{
			Open:      func() driver.Driver { return New(w.clusterClient(nil), nil) },
			Leftovers: func() []string { return permanent(t, w.admin) },
			Names:     func() []string { return everything(t, w.admin) },
		}
	}})
}

// The lanes of a Renew on a cluster wait for the connections that there are.
func TestRenewWaitsForConnections(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	d := New(w.clusterClient(func(o *redis.ClusterOptions) { o.PoolSize, o.PoolTimeout = 1, time.Microsecond }), nil)
	var rs []driver.RenewRequest
	for i := range 100 {
		r := ask(strconv.Itoa(i))
		w.grant(d, r)
		rs = append(rs, r.Renewal())
	}
	d.Renew(w.ctx, rs, func(i int, r driver.Renewal) { failIf(t, r.Err != nil, "%s: %v", rs[i].Key, r.Err) })
}

// One mark serves the whole server; in a cluster each slot has its own.
func TestOneMark(t *testing.T) {
	w, d := newPlain(t)
	for _, key := range hostile {
		w.grant(d, ask(key))
	}
	marks := 0
	for _, k := range w.keys() {
		if strings.HasPrefix(k, "hasp.fence") {
			marks++
		}
	}
	failIf(t, marks != 1, "there are %d marks", marks)
}

// A client that does not know that it talks to a cluster gets an error that says so.
func TestPlainClientOnACluster(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	d := w.driver(nil)
	_, err := contend.Try(w.ctx, d, ask("k"))
	failIf(t, d.Classify(err) != driver.ClassMisconfigured, "Try says: %v", err)
	failIf(t, w.admin.Exists(w.ctx, "lock:k").Val() != 0, "and left a key")
}

// Those that are being subscribed have nobody yet, and are not idle.
func TestMoreSlotsThanSubscriptionsAtOnce(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	d := w.over(w.clusterClient(nil), nil)
	var hinted, polls atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 * wire.MaxBoxes {
		wg.Go(func() {
			switch hints, err := contend.Watch(w.ctx, d, ask(fmt.Sprint("k", i))); {
			case err != nil:
				t.Errorf("Watch %d: %v", i, err)
			case hints == nil:
				polls.Add(1)
			default:
				hinted.Add(1)
			}
		})
	}
	wg.Wait()
	if hinted.Load() != wire.MaxBoxes || polls.Load() != 2*wire.MaxBoxes {
		t.Errorf("%d get hints and %d poll, want %d and %d", hinted.Load(), polls.Load(), wire.MaxBoxes, 2*wire.MaxBoxes)
	}
}

// Beyond the bound of subscriptions waiters poll, and a slot without waiters
// for makes room.
func TestSubscriptionsAreBounded(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	d := w.over(w.clusterClient(nil), nil)
	ctx, leave := context.WithCancel(w.ctx)
	for i := range wire.MaxBoxes {
		hints, err := contend.Watch(ctx, d, ask(string(rune('a'+i))))
		stopIf(t, err != nil || hints == nil, "Watch %d: %v, %v", i, hints, err)
	}
	if n := len(d.boxes.Open); n != wire.MaxBoxes {
		t.Fatalf("%d subscriptions for %d slots", n, wire.MaxBoxes)
	}
	last := ask("beyond")
	if hints, err := contend.Watch(w.ctx, d, last); err != nil || hints != nil {
		t.Fatalf("one too many: %v, %v", hints, err)
	}
	w.grant(d, ask("beyond"))
	if res := w.refuse(d, queued(last)); res.RetryIn <= 0 || res.RetryIn > pollMax {
		t.Errorf("a waiter that polls got %+v", res)
	}
	leave()
	w.until("a slot makes room", func() bool {
		hints, err := contend.Watch(w.ctx, d, last)
		return err == nil && hints != nil
	})
	if n := len(d.boxes.Open); n != wire.MaxBoxes {
		t.Errorf("%d subscriptions are open", n)
	}
}
