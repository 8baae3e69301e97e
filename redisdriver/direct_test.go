// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

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

// halting is a driver, and stall stops the server until it has sent so many scripts, and for longer than a lone one waits, which is
// then sent again.
func (w *world) halting() (d *Driver, stall func(scripts int64), rdb *redis.Client) {
	rdb = w.client(heeding)
	var left atomic.Int64
	rdb.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Name() == "evalsha" && left.Add(-1) == 0 {
			time.AfterFunc(600*time.Millisecond, w.server.Cont)
		}
		return next(ctx, cmd)
	}))
	return w.over(rdb, nil), func(scripts int64) {
		w.server.Stop()
		left.Store(scripts)
	}, rdb
}

// A lone request to a server that stands still is sent again by a lane. Of a Try the answer says so, and what came twice is done once.
func TestLoneRequestIsSentAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, stall, _ := w.halting()
	r := ask("k")
	w.warm(d)
	stall(2)
	res, err := d.Try(w.ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL})
	failIf(t, err != nil || !res.Granted || !res.Unsettled, "a Try: %+v, %v", res, err)
	w.warm(d)
	if res, err := d.Try(w.ctx, driver.TryRequest{Claim: ask("k").Claim(), TTL: r.TTL}); err != nil || res.Granted || res.Unsettled {
		t.Errorf("a Try that was sent once: %+v, %v", res, err)
	}
	w.warm(d)
	stall(2)
	waiter := ask("k")
	if res, err = d.Try(w.ctx, driver.TryRequest{Claim: waiter.Claim(), TTL: r.TTL, Queue: true, Patience: time.Minute, Enters: true}); err != nil || res.Granted || !res.Unsettled || res.At != 0 {
		t.Errorf("a Try that joins: %+v, %v", res, err)
	}
	w.warm(d)
	stall(2)
	if err := d.Release(w.ctx, driver.ReleaseRequest{Claim: waiter.Claim(), TTL: r.TTL, End: driver.EndUnused}); err != nil {
		t.Errorf("a Release of a place: %v", err)
	}
	w.warm(d)
	stall(2)
	if err := d.Release(w.ctx, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL}); err != nil {
		t.Errorf("a Release that came twice: %v", err)
	}
	if h := w.inspect(d, "k"); h.Held || h.Waiters != 0 {
		t.Errorf("it was released, and is held: %+v", h)
	}
}

// A break is sent once, and says so when it found nothing: nil would have a person believe that it broke a lease.
func TestBreakIsSentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, stall, _ := w.halting()
	other := w.driver(nil)
	w.warm(d)
	stall(1)
	w.releasesNothing(d, broken(ask("k")))
	theirs := ask("k")
	w.grant(other, theirs)
	w.warm(d)
	stall(1)
	w.release(d, broken(theirs))
	ours := ask("k")
	w.grant(d, ours)
	w.warm(d)
	stall(2)
	w.release(d, broken(ours)) // of its own lease that it lost: twice, and harmless
	if n := w.inspect(d, "k").Leases; n != 0 {
		t.Errorf("%d hold it still", n)
	}
}

// replyError is an error of a server.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// Where the second request is refused, the first may still come: the answer says so, and names what the second was told.
func TestLoneRequestIsRefusedTheSecondTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d, stall, rdb := w.halting()
	w.warm(d)
	demoted := false
	rdb.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if demoted {
			cmd.SetErr(replyError("READONLY You can't write against a read only replica."))
			return cmd.Err()
		}
		demoted = true
		return next(ctx, cmd)
	}))
	stall(2)
	r := ask("k")
	res, err := d.Try(w.ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL})
	if !res.Unsettled || driver.IsNotSent(err) || d.Classify(err) != driver.ClassReadOnly {
		t.Errorf("%+v, %v", res, err)
	}
	if err == nil || strings.Contains(err.Error(), "two requests") || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("it says: %v", err)
	}
	other := w.driver(nil)
	w.until("the first comes", func() bool { return w.holder(other, "k") == r.Owner })
}

// A caller whose context ends meanwhile leaves soon, and is never told that its Try was not sent. So does a caller that has less time
// than a lone request takes.
func TestLoneRequestLeavesWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	over := new(dialer)
	d := w.over(w.client(func(o *redis.Options) { heeding(o); o.Dialer = over.dial }), nil)
	r := ask("k")
	for name, f := range map[string]func(ctx context.Context) error{
		"Try": func(ctx context.Context) error {
			_, err := d.Try(ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL})
			return err
		},
		"Release": func(ctx context.Context) error {
			return d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL, Settled: true})
		},
	} {
		w.warm(d)
		w.server.Stop()
		ctx, cancel := context.WithCancel(w.ctx)
		sent := func() { cancel() }
		over.sent.Store(&sent)
		if err := f(ctx); !errors.Is(err, context.Canceled) || driver.IsNotSent(err) {
			t.Errorf("%s, alone: %v", name, err)
		}
		over.sent.Store(nil)
		ctx, cancel = context.WithTimeout(w.ctx, time.Minute) // never over
		time.AfterFunc(10*time.Millisecond, cancel)
		if err := f(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, the next one: %v", name, err)
		}
		w.server.Cont()
		w.warm(d)
		w.server.Stop()
		ctx, cancel = context.WithTimeout(w.ctx, 50*time.Millisecond)
		if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) { // the connection's may be first
			t.Errorf("%s with little time: %v", name, err)
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
		if _, err := d.Try(w.ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL}); err != nil {
			t.Errorf("%s: the first lone request: %v", name, err)
		}
		spoil(w, rdb, hangs)
		for _, which := range []string{"a lone request", "the next one"} {
			ctx, cancel := context.WithCancel(w.ctx)
			time.AfterFunc(10*time.Millisecond, cancel)
			if err := d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL, Settled: true}); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %s: %v", name, which, err)
			}
		}
	}
}

// A lone request goes through the hooks of the client, whenever it got them.
func TestLoneRequestIsSeenByHooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rdb := w.client(heeding)
	d := w.over(rdb, nil)
	w.warm(d)
	var n atomic.Int64
	rdb.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		n.Add(1)
		return next(ctx, cmd)
	}))
	r := ask("k")
	if res, err := d.Try(w.ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL}); err != nil || !res.Granted {
		t.Fatal(res, err)
	}
	if n.Load() == 0 { // a slow one is sent again
		t.Error("no hook saw it")
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
	if _, err := d.Try(ctx, driver.TryRequest{Claim: ask("k").Claim(), TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request to a server that stands still: %v", err)
	}
}
