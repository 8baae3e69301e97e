// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zkdriver

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/zkdriver/internal/recipe"
	"github.com/hasplock/hasp/zkdriver/internal/zk"
)

// A holder whose connection is cut gets it back although the server takes no more connections of this host than it has, and
// other programs wait for one; those are told why they have none.
func TestHolderIsBackBeforeWaiters(t *testing.T) {
	t.Parallel()
	const most = 5
	server := testserver.ZooKeeper(t, "maxClientCnxns=5")
	w := &world{TB: t, ctx: t.Context(), root: "/crowd", server: server}
	holder, p := w.behind(time.Hour)
	tells := told(holder)
	r := ask("k")
	w.grant(holder, r)
	for range most - 1 {
		d := w.driver()
		w.eventually("it waits", func() bool {
			res, err := contend.Try(w.ctx, d, queued(ask("k")))
			return err == nil && !res.Granted
		})
	}
	var attempts atomic.Int64
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		attempts.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	var out []*Driver
	for range 3 {
		c := Connect([]string{server.Addr()}, &ConnOptions{SessionTimeout: time.Hour, Dial: dial})
		t.Cleanup(func() { _ = c.Close() })
		d := w.over(c)
		_, err := contend.Try(w.ctx, d, queued(ask("k")))
		if !errors.Is(err, zk.ErrFull) || !strings.Contains(err.Error(), "maxClientCnxns") || d.Classify(err) != driver.ClassUnreachable {
			t.Fatalf("the server has no room: %v", err)
		}
		out = append(out, d)
	}
	p.Refuse()
	p.CloseAll()
	before := attempts.Load()
	w.eventually("others have tried to take the place", func() bool {
		connected := false
		for _, d := range out {
			connected = connected || d.c.zk.Server() != ""
		}
		return connected || attempts.Load() >= before+12
	})
	p.Clear()
	w.eventually("the lease is renewed", func() bool { return w.renew(holder, r).Err == nil })
	select {
	case id := <-tells:
		t.Errorf("told that %v is lost", id)
	default:
	}
	found := holder.c.ensemble(w.ctx)
	if text := found[0].Text; !strings.Contains(text, "as many connections") {
		t.Errorf("of a server that is full doctor says %q", text)
	}
}

// doctor says how many connections this host has, of how many.
func TestExamineCountsConnections(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testserver.ZooKeeper(t, "maxClientCnxns=50", "4lw.commands.whitelist=srvr,conf,cons"))
	d := w.driver()
	w.grant(d, ask("k"))
	for _, c := range []struct {
		more int
		text string
		warn bool
	}{{0, "this host has 1 of the 50 connections", false}, {39, "this host has 40 of the 50 connections", true}} {
		for range c.more {
			w.grant(w.driver(), ask(rand.Text()))
		}
		all, err := d.Examine(w.ctx)
		i := slices.IndexFunc(all, func(f operator.Finding) bool { return f.Check == "connections" })
		if err != nil || i < 0 || !strings.Contains(all[i].Text, c.text) || (all[i].Level == operator.LevelWarn) != c.warn {
			t.Errorf("it says %+v (%v)", all, err)
		}
	}
}

// A host that has all of its connections cannot be told how many it has: doctor says that they are all in use.
func TestExamineSaysThatNoConnectionIsLeft(t *testing.T) {
	t.Parallel()
	w := worldOf(t, testserver.ZooKeeper(t, "maxClientCnxns=1", "4lw.commands.whitelist=srvr,conf,cons"))
	d := w.driver()
	w.grant(d, ask("k"))
	all, err := d.Examine(w.ctx)
	if err != nil || !slices.ContainsFunc(all, func(f operator.Finding) bool {
		return f.Check == "connections" && f.Level == operator.LevelWarn && strings.Contains(f.Text, "as many as maxClientCnxns allows")
	}) {
		t.Errorf("it says %+v (%v)", all, err)
	}
}

// deadlines is a connection, and the shortest time for which it was to wait for a word.
type deadlines struct {
	net.Conn
	shortest *atomic.Int64
}

func (c deadlines) SetReadDeadline(at time.Time) error { // its calls come one after another
	c.shortest.Store(min(c.shortest.Load(), int64(time.Until(at))))
	return c.Conn.SetReadDeadline(at)
}

// A client that holds a lease of six seconds bears a silence of one: a renewal says so.
func TestSilenceIsBornByTheShortestLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var shortest atomic.Int64
	d := w.over(w.dialled(w.server.Addr(), 3*time.Minute, func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return deadlines{c, &shortest}, nil
	}))
	r := ask("k")
	r.TTL = 6 * time.Second
	w.eventually("a silence of a second is borne", func() bool { // after slow answers a longer one
		res, err := contend.Try(w.ctx, d, r)
		shortest.Store(int64(time.Hour))
		a := w.renew(d, r)
		return err == nil && res.Granted && a.Err == nil && time.Duration(shortest.Load()).Round(100*time.Millisecond) == time.Second
	})
}

// A lease that was handed over, and not claimed yet, is held.
func TestHandedLeaseIsHeld(t *testing.T) {
	t.Parallel()
	e := &entry{}
	e.State, e.TTL = recipe.Handed, time.Minute
	if got := (&Conn{entries: map[place]*entry{{}: e}}).shortest(); got != time.Minute {
		t.Errorf("the shortest lease is %v", got)
	}
}

// A lease outlives a connection that is cut off in silence, beside a healthy server.
func TestSilenceLosesNoLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := faultproxy.New(t, w.server.Addr())
	var latest, upTo atomic.Int64
	p.Hook(func(c faultproxy.Chunk) bool {
		latest.Store(max(latest.Load(), int64(c.Conn)))
		return int64(c.Conn) <= upTo.Load()
	})
	conn := w.connect(p.Addr(), 3*time.Minute)
	renewed := make(chan struct{}, 100)
	client, err := hasp.New(w.over(conn), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
		if e.Kind == event.Renewed {
			renewed <- struct{}{}
		}
	}})
	must(t, err)
	defer client.Close()
	l, err := client.Mutex("k", &hasp.LockOptions{TTL: 30 * time.Second}).Lock(w.ctx)
	must(t, err)
	defer l.Release()
	ctx := l.Context(w.ctx)
	for range 2 { // silent once, and again
		upTo.Store(latest.Load())
		select {
		case <-renewed:
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
}
