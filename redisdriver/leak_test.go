// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// After Close no goroutine of the driver is left, whatever was under way: nor
// while it is open, beside the one that reads its subscription.
func TestNoGoroutineIsLeft(t *testing.T) {
	w := newWorld(t)
	link, lost := faultproxy.New(t, w.server.Addr()), stall.Watch(t)
	for _, how := range []string{"sound", "hung", "gone"} {
		link.Clear()
		ignore := goleak.IgnoreCurrent()
		rdb := redis.NewClient(&redis.Options{Addr: link.Addr(), ReadTimeout: time.Hour})
		d := New(rdb, nil)
		holder := ask(how)
		w.grant(d, holder)
		for range 20 {
			ctx, cancel := context.WithCancel(w.ctx)
			r := ask(how)
			if _, err := contend.Watch(ctx, d, r); err != nil {
				t.Fatal(err)
			}
			w.refuse(d, queued(r))
			cancel()
		}
		switch how {
		case "hung":
			link.Swallow(true, true)
		case "gone":
			w.server.Kill()
		}
		ctx, cancel := w.ctx, context.CancelFunc(func() {})
		if how != "sound" {
			ctx, cancel = context.WithTimeout(w.ctx, 50*time.Millisecond)
		}
		if err := contend.Release(ctx, d, holder); (err == nil) != (how == "sound") {
			t.Errorf("%s: Release says %v", how, err)
		}
		contend.Renew(ctx, d, []contend.Owner{holder, queued(ask(how))}, func(int, driver.Renewal) {})
		cancel()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := rdb.Close(); err != nil {
			t.Error(err)
		}
		link.Refuse()
		link.Reset() // what hangs ends, as by the client's time-outs
		const most = 3 * time.Second
		for begun, before := time.Now(), lost(); goleak.Find(ignore) != nil && time.Since(begun) < most+lost()-before; {
			time.Sleep(time.Millisecond)
		}
		goleak.VerifyNone(t, ignore)
	}
}
