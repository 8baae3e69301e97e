// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"bytes"
	"context"
	"errors"
	"net"
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

// Behind a proxy that carries every command but SUBSCRIBE, a Lock joins the queue
// and has the key soon after it is free.
func TestProxyWithoutSubscribe(t *testing.T) {
	w := newWorld(t)
	client := func(rdb *redis.Client) *hasp.Client {
		c, err := hasp.New(New(rdb, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	holder := client(w.client(nil))
	behind := client(w.client(func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &closing{conn}, err
		}
	}))
	held, err := holder.Mutex("k", nil).Lock(w.ctx)
	w.succeeds(err)
	got := make(chan error, 1)
	go func() {
		lease, err := behind.Mutex("k", nil).Lock(w.ctx)
		if err == nil {
			err = lease.Release()
		}
		got <- err
	}()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		info, err := holder.Operator().Inspect(w.ctx, "k")
		stopIf(t, err != nil || time.Now().After(end), "after 20s %d wait in the queue, %v", info.Waiters, err)
		if info.Waiters == 1 {
			break
		}
	}
	began := time.Now()
	w.succeeds(held.Release())
	w.succeeds(<-got)
	if took := time.Since(began); took > 5*time.Second { // it looks every 100 ms
		t.Errorf("the key was free for %v", took)
	}
}
