// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/redis/go-redis/v9"
)

// closing is a connection through a proxy that closes on SUBSCRIBE, as some do.
type closing struct{ net.Conn }

func (c *closing) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("subscribe")) {
		_ = c.Close()
		return 0, errors.New("closed by the proxy")
	}
	return c.Conn.Write(b)
}

// deaf is a driver behind such a proxy: its connections are, that it opens while closes says so.
func (w *world) deaf(closes *atomic.Bool) *Driver {
	return w.over(w.client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if closes.Load() && err == nil {
				conn = &closing{conn}
			}
			return conn, err
		}
	}), nil)
}

// Behind a proxy that carries every command but SUBSCRIBE, a Lock joins the queue
// and has the key soon after it is free.
func TestProxyWithoutSubscribe(t *testing.T) {
	w := newWorld(t)
	var closes atomic.Bool
	closes.Store(true)
	holder, deaf := newClient(t, w.driver(nil)), w.deaf(&closes)
	behind, o := newClient(t, deaf), &hasp.LockOptions{TTL: time.Hour}
	held, err := holder.Mutex("k", o).Lock(w.ctx)
	w.succeeds(err)
	got := make(chan error, 1)
	go func() {
		lease, err := behind.Mutex("k", o).Lock(w.ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	w.until("it waits in the queue", func() bool {
		info, err := holder.Operator().Inspect(w.ctx, "k")
		w.succeeds(err)
		return info.Waiters == 1
	})
	if res := w.refuse(deaf, queued(ask("k"))); res.Ahead != 1 || res.RetryIn <= 0 || res.RetryIn > pollMax {
		t.Errorf("the next waiter there is refused with %+v", res)
	}
	w.succeeds(held.Release())
	w.succeeds(<-got)
}
