// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// followed is a master with two replicas, and a driver for which both must confirm.
func followed(t *testing.T) (w *world, replicas []*testserver.Server, d *Driver) {
	t.Helper()
	w = newWorld(t, "--repl-diskless-sync-delay", "0", "--repl-timeout", "600")
	for range 2 {
		s := testserver.Redis(t)
		s.Follow(w.server)
		replicas = append(replicas, s)
	}
	return w, replicas, w.driver(&Options{Replicas: 2})
}

// A grant that was lost in a failover, so that a reader has the key when replicas are to confirm it, is gone.
func TestReplicasConfirmNothing(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, reader("k"))
	var e *ReplicasError
	if _, err := d.confirm(w.ctx, ask("k").Renewal(), driver.Result{}); !errors.As(err, &e) || !e.Gone {
		t.Errorf("confirmed: %v", err)
	}
}

// A lease counts when both replicas have it, and so does each renewal: also one that changes nothing at the master, as that
// of a client which asks again because no answer came.
func TestReplicasConfirm(t *testing.T) {
	t.Parallel()
	w, replicas, d := followed(t)
	alone := w.driver(nil)
	short := func(what string, err error) {
		t.Helper()
		var e *ReplicasError
		failIf(t, !errors.As(err, &e) || e.Want != 2 || e.Got > 1 || d.Classify(err) != driver.ClassUnreachable, "%s: %v", what, err)
	}
	held, reader := ask("held"), ask("read")
	reader.Mode = driver.Shared
	for _, r := range []contend.Owner{held, reader} {
		w.grant(d, r)
	}
	for _, s := range replicas {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		if got := rdb.Exists(w.ctx, "lock:held", "lock:read").Val(); got != 2 {
			t.Errorf("a replica has %d of the 2 leases that were granted", got)
		}
		_ = rdb.Close()
	}

	ended, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := d.confirm(ended, held.Renewal(), driver.Result{}); err == nil || driver.IsNotSent(err) {
		t.Errorf("a lease that was granted, and not confirmed: %v", err) // else nobody would release it
	}

	replicas[0].Stop()
	next := ask("next")
	for range 3 { // of which the later ones write nothing of their own
		_, err := contend.Try(w.ctx, d, next)
		short("Try", err)
	}
	brief := held
	brief.TTL = time.Second // the lease has longer: nothing is prolonged
	for _, r := range []contend.Owner{held, held, brief, reader} {
		short("Renew", w.renew(d, r)[0])
	}
	for _, r := range []contend.Owner{brief, reader} { // WAIT is about what its connection wrote, so that it must have written something
		r.TTL = time.Second
		w.do("CONFIG", "RESETSTAT")
		if err := w.renew(alone, r)[0]; err != nil || w.calls()["set"] != 1 {
			t.Errorf("a renewal that prolongs nothing: %v, %d writes", err, w.calls()["set"])
		}
	}
	if res := w.try(d, ask("held")); res.Granted {
		t.Error("granted twice")
	}
	if err := w.renew(alone, held)[0]; err != nil { // of a client that asks for none
		t.Error(err)
	}

	replicas[0].Cont()
	for _, r := range []contend.Owner{held, brief, reader} {
		w.until("it catches up", func() bool { return w.renew(d, r)[0] == nil })
	}
	w.on(d).grant(next).release(next)
	w.renewsNothing(d, ask("nobody's"))
}

// Lock tries again until the replicas confirm, and TryLock says that they did not.
func TestLockWaitsForReplicas(t *testing.T) {
	t.Parallel()
	w, replicas, d := followed(t)
	c := newClient(t, d)
	replicas[1].Stop()
	var short *ReplicasError
	w.until("TryLock says that they do not confirm", func() bool { // on a slow machine, that the store did not answer in time
		l, err := c.Mutex("k", nil).TryLock(w.ctx)
		stopIf(t, class(err) != driver.ClassUnreachable, "TryLock: %v, %v", l, err)
		return errors.As(err, &short)
	})
	granted := make(chan error, 1)
	go func() {
		l, err := c.Mutex("k", nil).Lock(w.ctx)
		if err == nil {
			err = l.Release()
		}
		granted <- err
	}()
	w.until("it asks", func() bool { return w.admin.Exists(w.ctx, "lock:k").Val() == 1 })
	select {
	case err := <-granted:
		t.Fatalf("Lock: %v", err)
	default:
	}
	replicas[1].Cont()
	w.succeeds(<-granted)
}

// A lease that all replicas confirmed outlives its master, whichever of them is promoted.
func TestFailoverKeepsAConfirmedLease(t *testing.T) {
	t.Parallel()
	servers := testserver.NewRedisSentinel(t, testserver.RedisGroup{Timeout: down})
	g := newGroup(t, func() redis.UniversalClient {
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: testserver.MasterName, SentinelAddrs: servers.Addrs()})
	})
	g.options = &Options{Replicas: 2}
	holder := g.client()
	lease, err := holder.Mutex("k", &hasp.LockOptions{TTL: time.Hour}).Lock(g.ctx)
	must(t, err)
	servers.Master.Kill()
	g.options = nil // one replica is left
	other := g.client()
	for {
		_, err := other.Mutex("k", nil).TryLock(g.ctx)
		if errors.Is(err, hasp.ErrHeld) {
			break
		} else if err == nil || g.ctx.Err() != nil {
			t.Fatalf("TryLock beside the holder: %v", err)
		}
		g.pause()
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// In a cluster the replicas of the key's own master confirm.
func TestReplicasConfirmInACluster(t *testing.T) {
	t.Parallel()
	servers := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	g := newGroup(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), ClusterStateReloadInterval: time.Hour, ReadTimeout: time.Hour})
	})
	rdb := g.open()
	defer rdb.Close()
	d := New(rdb, &Options{Replicas: 1})
	defer d.Close()
	one := ask("k")
	if res, err := contend.Try(g.ctx, d, one); err != nil || !res.Granted {
		t.Fatalf("%+v, %v", res, err)
	}
	var replica *testserver.Server
	for i := range servers.Masters {
		if servers.Master(wire.HashSlot("lock:k")) == servers.Masters[i] {
			replica = servers.Replicas[i]
		}
	}
	replica.Stop()
	var short *ReplicasError
	renew := func(r contend.Owner) (err error) {
		contend.Renew(g.ctx, d, []contend.Owner{r}, func(_ int, answer driver.Renewal) { err = answer.Err })
		return err
	}
	if err := renew(one); !errors.As(err, &short) {
		t.Errorf("Renew: %v", err)
	}
	two := one
	for i := 0; servers.Master(wire.HashSlot("lock:"+two.Key)) == servers.Master(wire.HashSlot("lock:k")); i++ {
		two = ask(string(rune('a' + i)))
	}
	if res, err := contend.Try(g.ctx, d, two); err != nil || !res.Granted {
		t.Errorf("a key of another master: %+v, %v", res, err)
	}
	replica.Cont()
	renewed := func(what string) {
		t.Helper()
		for renew(one) != nil {
			g.pause()
			stopIf(t, g.ctx.Err() != nil, "never: %s", what)
		}
	}
	renewed("it catches up")

	slot := wire.HashSlot("lock:k")
	from, to := g.master(servers, slot), servers.Masters[0]
	if to == from {
		to = servers.Masters[1]
	}
	servers.Move(slot, from, to, func(int) {})
	renewed("a holder that only renews finds the new master of its key")
}

// A client finds the replica that replaced a master of a cluster, though the dead master sends it nowhere, and no master moves a slot.
func TestMasterOfAClusterDies(t *testing.T) {
	t.Parallel()
	servers := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: 5 * time.Second})
	g := newGroup(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.Addrs(), ClusterStateReloadInterval: time.Hour, MaintNotificationsConfig: quietly})
	})
	rdb := g.open()
	defer rdb.Close()
	d := New(rdb, nil)
	defer d.Close()
	one := ask("k")
	granted := func() {
		t.Helper()
		for res, err := contend.Try(g.ctx, d, one); !res.Granted; res, err = contend.Try(g.ctx, d, one) {
			stopIf(t, g.ctx.Err() != nil, "never: %+v, %v", res, err)
			g.pause()
		}
	}
	granted()
	g.master(servers, wire.HashSlot("lock:k")).Kill()
	granted()
}
