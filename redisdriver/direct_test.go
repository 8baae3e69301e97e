// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// own is a context as hasp makes them.
type own struct{ context.Context }

func (o own) AsksAgain() context.Context { return o.Context }

// A lone request to a server that stands still is given up early by its own caller, who is to ask again: that
// takes the way on which a caller leaves with its context. What came twice is done once.
func TestLoneRequestIsAskedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(nil)
	r := ask("k")
	try := func(ctx context.Context) error {
		_, err := d.Try(ctx, driver.TryRequest{Claim: r.Claim(), TTL: r.TTL})
		return err
	}
	release := func(ctx context.Context) error {
		return d.Release(ctx, driver.ReleaseRequest{Claim: r.Claim(), TTL: r.TTL, Settled: true})
	}
	for _, f := range []func(context.Context) error{try, release} {
		w.release(d, w.granted(d, "warm")) // it answers promptly
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
		_ = f(own{w.ctx})
	}
	if h := w.inspect(d, "k"); h.Held {
		t.Errorf("it was released, and is held: %+v", h)
	}
}

// Whoever does not ask again is never told to, nor is one that has less time than that takes.
func TestWhoIsNotToldToAskAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(nil)
	for name, begin := range map[string]func() (context.Context, context.CancelFunc){
		"another's context": func() (context.Context, context.CancelFunc) { return context.WithTimeout(w.ctx, time.Second) },
		"little time": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithTimeout(w.ctx, 50*time.Millisecond)
			return own{ctx}, cancel
		},
	} {
		w.release(d, w.granted(d, "warm"))
		w.server.Stop()
		ctx, cancel := begin()
		if _, err := d.Try(ctx, driver.TryRequest{Claim: ask("k").Claim(), TTL: time.Minute}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		w.server.Cont()
	}
}
