// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/redis/go-redis/v9"
)

// Without a connection nothing was sent; if one broke, the outcome is unknown.
func TestNotSent(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*redis.Options){
		"refused":        func(o *redis.Options) { o.Network, o.Addr = "tcp", faultproxy.Nobody(t) },
		"wrong password": func(o *redis.Options) { o.Username, o.Password = "nobody", "wrong" },
	} {
		d := w.over(w.client(change), nil)
		var many sync.WaitGroup
		for range 20 { // in company, too
			many.Go(func() {
				if _, err := contend.Try(w.ctx, d, ask("k")); !driver.IsNotSent(err) {
					t.Errorf("%s: %v, want an error that says not sent", name, err)
				}
			})
		}
		many.Wait()
	}

	link := faultproxy.New(t, w.server.Addr())
	d := w.over(w.client(func(o *redis.Options) { o.Network, o.Addr = "tcp", link.Addr() }), nil)
	_, err := contend.Try(w.ctx, d, ask("warm"))
	w.succeeds(err)
	link.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Down {
			go link.Reset()
		}
		return c.Dir == faultproxy.Down
	})
	if _, err := contend.Try(w.ctx, d, ask("k")); err == nil || driver.IsNotSent(err) {
		t.Errorf("the reply was lost: %v, which must not say that nothing was sent", err)
	}
}

// A request reported as not sent never is sent, whatever the client does later.
func TestNotSentStaysSo(t *testing.T) {
	w := newWorld(t)
	rdb := w.client(nil)
	in, on, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	rdb.AddHook(hook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error { // returns when ctx ends, and continues
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		go func() {
			defer close(over)
			close(in)
			<-on
			_ = next(context.WithoutCancel(ctx), cmd)
		}()
		<-ctx.Done()
		return ctx.Err()
	}))
	d := w.over(rdb, nil)
	ctx, cancel := context.WithCancel(w.ctx)
	got := make(chan error, 1)
	(&Node{d}).StartVote(ctx, ask("k").Vote(), func(_ driver.Result, err error) { got <- err })
	<-in
	cancel()
	if err := <-got; !driver.IsNotSent(err) || !errors.Is(err, context.Canceled) {
		t.Fatalf("the Try: %v, want one that says not sent", err)
	}
	close(on)
	<-over
	if n := w.admin.Exists(w.ctx, "lock:k").Val(); n != 0 {
		t.Error("the store has the key, for nobody")
	}
}
