// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// After a connection that carried hints was lost, every watcher gets one, and
// hints go on.
func TestSubscriberIsKilled(t *testing.T) {
	for _, how := range []string{"CLIENT KILL", "restart"} {
		t.Run(how, func(t *testing.T) {
			w, d, other := newTwo(t)
			a, b, c := ask("k"), ask("k"), ask("other")
			w.on(other).grant(a, ask("other"))
			hints, bystander := w.wait(d, b), w.wait(d, c)
			if how == "restart" {
				w.server.Kill()
				w.server.Restart()
			} else {
				w.do("CLIENT", "KILL", "TYPE", "pubsub")
			}
			w.hint(hints)
			w.hint(bystander)
			w.subscribed(d, 1)
			if how == "restart" { // without persistence: all is forgotten
				a = ask("k")
				w.grant(w.driver(nil), a)
			}
			w.until("its place gets hints again", func() bool {
				w.refuse(d, queued(b))
				mode, _ := d.boxes.mode(b.Claim())
				return mode == modePublishCounted
			})
			w.refuse(d, queued(b))
			select {
			case <-hints:
			default:
			}
			w.on(w.driver(nil)).release(a).hint(hints).on(d).claim(b)
		})
	}
}

func (d *Driver) inboxName() string { return wire.Sidecars + "inbox:" + d.id }

// subscribed waits until so many connections are subscribed to the inbox of a driver.
func (w *world) subscribed(d *Driver, n int64) {
	w.Helper()
	w.until(fmt.Sprintf("%d listen", n), func() bool {
		all, err := w.admin.PubSubNumSub(w.ctx, d.inboxName()).Result()
		return err == nil && all[d.inboxName()] == n
	})
}

// FLUSHALL deletes holder and queue. A waiter learns by its next sign of
// life that its place is gone, and tries again; fences keep rising.
func TestFlushWhileWaiting(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	before := w.grant(d, a).Fence
	w.on(d).wait(b).do("FLUSHALL")
	w.renewsNothing(d, a)
	w.renewsNothing(d, queued(b))
	if after := w.grant(d, queued(b)).Fence; after <= before {
		t.Errorf("the fence is %d after %d", after, before)
	}
}

func TestScriptFlush(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).do("SCRIPT", "FLUSH")
	w.inspect(d, "k")
	w.on(d).do("SCRIPT", "FLUSH").renew(a, queued(b)).do("SCRIPT", "FLUSH").release(a).do("SCRIPT", "FLUSH").grant(b).do("SCRIPT", "FLUSH")
	errs := make(chan error)
	const many = 200 // travel together
	for i := range many {
		go func() { _, err := contend.Try(w.ctx, d, ask(fmt.Sprint("n", i))); errs <- err }()
	}
	for range many {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// Every call returns soon after its context ends, though the client lets no
// context interrupt its sockets.
func TestHungServer(t *testing.T) {
	w := newWorld(t)
	patient := func(o *redis.Options) { o.MaxRetries = 10 }
	d := w.over(w.client(patient), nil)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b)
	w.server.Stop()
	calls := map[string]func(context.Context) error{
		"Try":     func(ctx context.Context) error { _, err := contend.Try(ctx, d, ask("other")); return err },
		"Release": func(ctx context.Context) error { return contend.Release(ctx, d, a) },
		"Inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, "k"); return err },
		"Renew": func(ctx context.Context) (err error) {
			contend.Renew(ctx, d, []contend.Owner{a, queued(b)}, func(_ int, r driver.Renewal) { err = r.Err })
			return errors.Join(err, ctx.Err())
		},
		"List": func(ctx context.Context) error {
			for _, err := range d.List(ctx, "") {
				return err
			}
			return nil
		},
		"Watch": func(ctx context.Context) error {
			_, err := contend.Watch(ctx, w.over(w.client(patient), nil), b)
			return err
		},
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
		returned := make(chan error, 1)
		go func() { returned <- call(ctx) }()
		select {
		case err := <-returned:
			failIf(t, err == nil, "%s succeeded on a server that hangs", name)
		case <-w.ctx.Done(): // long before the client gives up by itself
			t.Errorf("%s has not returned, and its context has ended", name)
		}
		cancel()
	}
	w.server.Cont()
	w.until("what was given up is over", func() bool {
		lanes, _ := d.send.Busy()
		return lanes == 0
	})
	w.until("it answers again", func() bool { return contend.Release(w.ctx, d, a) == nil || w.holder(d, "k") == b.Owner })
	w.grant(d, queued(b))
}

// The client's own retries are off for our commands: what timed out and was
// given up would be carried out after the caller's Release.
func TestClientDoesNotSendAgain(t *testing.T) {
	w := newWorld(t)
	stuck := dialer{late: true}
	rdb := w.client(func(o *redis.Options) { o.Dialer, o.MaxRetries = stuck.dial, 5 })
	d := w.over(rdb, nil)
	w.on(d).grant(ask("warm")).do("CONFIG", "RESETSTAT")
	stuck.hangNext() // the reply is lost; another connection would do
	if _, err := contend.Try(w.ctx, d, ask("k")); d.Classify(err) != driver.ClassUnreachable {
		t.Errorf("Try without a reply says %v", err)
	}
	if n := w.calls()["evalsha"]; n != 1 {
		t.Errorf("it was sent %d times", n)
	}
	both := []contend.Owner{ask("k"), queued(ask("k"))}
	contend.Renew(w.ctx, d, both, func(int, driver.Renewal) {}) // go-redis has other connections for pipelines
	w.do("CONFIG", "RESETSTAT")
	stuck.hangNext()
	contend.Renew(w.ctx, d, both, func(_ int, r driver.Renewal) {
		failIf(t, d.Classify(r.Err) != driver.ClassUnreachable, "Renew without a reply says %v", r.Err)
	})
	if n := w.calls()["evalsha"]; n != 2 {
		t.Errorf("two scripts of a Renew were sent %d times", n)
	}
}

// The tombstone: a Try that comes after the Release of its owner is refused,
// whatever it had, and does not join the queue.
func TestLateTryIsRefused(t *testing.T) {
	w, d := newPlain(t)
	for name, had := range map[string]func(r contend.Owner){
		"nothing": func(contend.Owner) {},
		"lease":   func(r contend.Owner) { w.grant(d, r) },
		"place": func(r contend.Owner) {
			w.on(d).grant(ask(r.Key)).join(r)
		},
	} {
		r := ask(name)
		had(r)
		begun := time.Now()
		if err := contend.Release(w.ctx, d, r); (name == "nothing") != errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Release says %v", name, err)
		}
		gone := d.names(name).gone(r.Owner)
		if left := w.admin.PTTL(w.ctx, gone).Val(); !lasts(left, driver.MaxTransit, begun) {
			t.Errorf("%s: the tombstone stays %v", name, left)
		}
		w.on(d).do("SET", gone, "", "EX", 3600).refuse(r).join(r)
		if info := w.inspect(d, name); info.Waiters != 0 || info.Holder.Owner == r.Owner {
			t.Errorf("%s: it left %+v", name, info)
		}
	}
}

// Close ends the subscription and leaves the caller's client open.
func TestCloseLeavesTheClient(t *testing.T) {
	w := newWorld(t)
	rdb := w.client(nil)
	d := New(rdb, nil)
	w.on(d).grant(ask("k")).wait(ask("k"))
	w.succeeds(d.Close())
	if err := rdb.Ping(w.ctx).Err(); err != nil {
		t.Errorf("the caller's client: %v", err)
	}
	w.subscribed(d, 0)
	if _, err := contend.Watch(w.ctx, d, ask("k")); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Watch after Close: %v", err)
	}
}

// After a failover the old master may live on as a replica, with our
// subscription. It still carries messages, but the count of receivers no
// longer includes us: the driver notices and subscribes at the new master.
func TestSubscriptionFollowsTheMaster(t *testing.T) {
	t.Parallel()
	old, w := newWorld(t), newWorld(t)
	var master atomic.Pointer[string]
	at := func(w *world) { addr := w.server.Addr(); master.Store(&addr) }
	at(old)
	d := w.over(w.client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, *master.Load())
		}
	}), nil)
	d.boxes.options.Pace = 0 // as usual: it finds out by a check
	r := ask("k")
	w.watch(d, r)
	host, port, err := net.SplitHostPort(w.server.Addr())
	must(t, err)
	at(w)
	old.do("REPLICAOF", host, port)
	old.do("CLIENT", "KILL", "TYPE", "normal") // the commands of the driver, and of admin
	w.subscribed(d, 1)                         // at the new master
}

// In a cluster the server ends a subscription whose slot moves away; the
// driver makes it anew.
func TestSubscriptionIsEnded(t *testing.T) {
	t.Parallel()
	w := newCluster(t)
	d := w.over(w.clusterClient(nil), nil)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	hints := w.wait(d, b)
	s := wire.HashSlot("lock:k")
	w.do("CLUSTER", "DELSLOTS", s)
	w.do("CLUSTER", "ADDSLOTS", s)
	w.hint(hints) // not at the next check, which comes in an hour
	w.until("its place gets hints again", func() bool {
		mode, _ := d.boxes.mode(b.Claim())
		return mode == modeShardPublishCounted
	})
	w.on(d).join(b).release(a).hint(hints)
}
