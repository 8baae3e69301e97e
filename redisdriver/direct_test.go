// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

// own is a context as hasp makes them.
type own struct{ context.Context }

func (o own) AsksAgain() context.Context { return o.Context }

// heeding has a client heed the deadlines of contexts, which lone requests need, and no time-out of its own.
func heeding(o *redis.Options) {
	o.ContextTimeoutEnabled = true
	o.ReadTimeout, o.PoolTimeout, o.DialTimeout = -1, time.Hour, time.Hour
}

// warm makes requests until the server answers promptly.
func (w *world) warm(d *Driver) {
	w.Helper()
	w.until("it answers promptly", func() bool {
		w.release(d, w.granted(d, "warm"))
		return d.send.Prompt()
	})
}

// A lone request to a server that stands still is given up early by its own caller, who is to ask again: that
// takes the way on which a caller leaves with its context. What came twice is done once.
func TestLoneRequestIsAskedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.over(w.client(heeding), nil)
	r := ask("k")
	try := func(ctx context.Context) error {
		_, err := d.Try(ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL})
		return err
	}
	release := func(ctx context.Context) error {
		return d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL, Settled: true})
	}
	for _, f := range []func(context.Context) error{try, release} {
		w.warm(d)
		w.server.Stop()
		if err := f(own{w.ctx}); !driver.IsAskAgain(err) {
			t.Errorf("a lone request: %v", err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := f(own{ctx}); !errors.Is(err, context.Canceled) {
			t.Errorf("the next one: %v", err)
		}
		w.server.Cont()
		w.warm(d)
		if err := f(own{w.ctx}); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("a lone request once it answers again: %v", err)
		}
	}
	if h := w.inspect(d, "k"); h.Held {
		t.Errorf("it was released, and is held: %+v", h)
	}
}

// Whoever does not ask again is never told to, nor is one that has less time than that takes.
func TestWhoIsNotToldToAskAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.over(w.client(heeding), nil)
	for name, begin := range map[string]func() (context.Context, context.CancelFunc){
		"another's context": func() (context.Context, context.CancelFunc) { return context.WithTimeout(w.ctx, time.Second) },
		"little time": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
			return own{ctx}, cancel
		},
	} {
		w.warm(d)
		w.server.Stop()
		ctx, cancel := begin()
		if _, err := d.Try(ctx, driver.TryRequest{Claim: ask("k").Claim(), TTL: time.Minute}); driver.IsAskAgain(err) ||
			!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) { // the connection's may be first
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		w.server.Cont()
	}
}

// Nor does a lone caller wait for a connection, of a pool whose connections are all in use, or that are gone with a
// server which takes no new ones.
func TestLoneRequestWaitsForNoConnection(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(w *world, rdb *redis.Client, dials *atomic.Bool){
		"all in use": func(w *world, rdb *redis.Client, _ *atomic.Bool) {
			go rdb.BLPop(w.ctx, 0, "never")
			w.until("somebody uses the connection", func() bool { return rdb.PoolStats().IdleConns == 0 })
		},
		"none can be made": func(w *world, rdb *redis.Client, hangs *atomic.Bool) {
			hangs.Store(true)
			w.do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		},
	} {
		w := newWorld(t)
		hangs := new(atomic.Bool)
		rdb := w.client(func(o *redis.Options) {
			heeding(o)
			o.PoolSize = 1
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if hangs.Load() {
					<-w.ctx.Done()
					return nil, w.ctx.Err()
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
		})
		d := w.over(rdb, nil)
		w.warm(d)
		r := ask("k")
		if _, err := d.Try(own{w.ctx}, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL}); err != nil {
			t.Errorf("%s: the first lone request: %v", name, err)
		}
		spoil(w, rdb, hangs)
		if err := d.Release(own{w.ctx}, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL, Settled: true}); !driver.IsAskAgain(err) {
			t.Errorf("%s: a lone request: %v", name, err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := d.Release(own{ctx}, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL, Settled: true}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the next one: %v", name, err)
		}
	}
}

// counter is a hook that counts the commands of a client.
type counter struct{ commands atomic.Int64 }

func (*counter) DialHook(next redis.DialHook) redis.DialHook { return next }
func (*counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

// A lone request goes through the hooks of the client, whenever it got them.
func TestLoneRequestIsSeenByHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rdb := w.client(heeding)
	d := w.over(rdb, nil)
	w.warm(d)
	hook := &counter{}
	rdb.AddHook(hook)
	r := ask("k")
	if res, err := d.Try(own{w.ctx}, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL}); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	if n := hook.commands.Load(); n != 1 {
		t.Errorf("a hook saw %d commands", n)
	}
}

// A client that does not heed deadlines could hold its caller up for long: nobody sends by himself then.
func TestNobodySendsAloneWithoutDeadlines(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	w.warm(d)
	w.server.Stop()
	defer w.server.Cont()
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if _, err := d.Try(own{ctx}, driver.TryRequest{Claim: ask("k").Claim(), TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) || driver.IsAskAgain(err) {
		t.Errorf("a request to a server that stands still: %v", err)
	}
}
