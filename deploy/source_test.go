// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/memdriver"
	haspprom "github.com/hasplock/hasp/telemetry/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var must = expect.Need

// ttl is that of all leases of a run, and the store's longest.
const ttl = 6 * time.Second

// run is a shop of three processes whose locks are in one store: orders want a key one after
// the other, stock is tried and left alone when it is taken, and a nightly job is held all the
// time while others wait for it. Each scrape is a second of its script.
type run struct {
	t         testing.TB
	store     *memdriver.Store
	clients   []*hasp.Client
	scrapes   chan struct{}
	now       int // seconds
	pace      int // seconds that a step of the script takes
	forgotten chan struct{}
	all       sync.WaitGroup
}

// source serves the metrics of a run. Its incident takes 8 steps of pace seconds, and then the
// store is held back.
func source(t testing.TB, pace int) http.Handler {
	r := &run{
		t: t, pace: pace, scrapes: make(chan struct{}, 10_000), forgotten: make(chan struct{}, 10),
		store: memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ttl}),
	}
	metrics := haspprom.New(&haspprom.Options{Classes: []string{"order", "stock", "nightly"}, Engine: "memory"})
	for range 3 {
		c, err := hasp.New(r.store, &hasp.Options{Observe: event.Observers(metrics.Observe, r.observe)})
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		r.clients = append(r.clients, c)
	}
	must(t, r.clients[0].Operator().Admit(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		r.all.Wait()
	})
	for _, c := range r.clients {
		r.all.Go(func() { r.orders(ctx, c) })
		r.all.Go(func() { r.stock(ctx, c) })
		for i := range 4 {
			r.all.Go(func() { r.nightly(ctx, c, fmt.Sprint("nightly:", i)) })
		}
	}
	r.all.Go(func() { r.incident(ctx) })

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	serve := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		serve.ServeHTTP(w, req)
		r.scrapes <- struct{}{}
	})
}

func (r *run) observe(_ context.Context, e *event.Event) {
	if e.Kind == event.Forgotten {
		r.forgotten <- struct{}{}
	}
}

var options = &hasp.LockOptions{TTL: ttl}

// orders come whether or not those before them were served, and give up after a step.
func (r *run) orders(ctx context.Context, c *hasp.Client) {
	for pause(ctx, 300*time.Millisecond) {
		r.all.Go(func() {
			wait, cancel := context.WithTimeout(ctx, time.Duration(r.pace)*time.Second)
			defer cancel()
			if lease, err := c.Mutex("order:1", options).Lock(wait); err == nil {
				pause(ctx, 40*time.Millisecond)
				_ = lease.Release()
			}
		})
	}
}

func (r *run) stock(ctx context.Context, c *hasp.Client) {
	for pause(ctx, 150*time.Millisecond) {
		r.all.Go(func() {
			if lease, err := c.Mutex(fmt.Sprint("stock:", rand.IntN(10)), options).TryLock(ctx); err == nil {
				pause(ctx, 80*time.Millisecond)
				_ = lease.Release()
			}
		})
	}
}

// nightly holds a key until it is lost, and then waits for it again.
func (r *run) nightly(ctx context.Context, c *hasp.Client, key string) {
	for ctx.Err() == nil {
		if lease, err := c.Mutex(key, options).Lock(ctx); err == nil {
			<-lease.Context(ctx).Done()
			_ = lease.Release()
		}
	}
}

// pause waits for a time that differs around mean, and returns false when ctx has ended.
func pause(ctx context.Context, mean time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(float64(mean) * (0.5 + rand.Float64()))):
	}
	return ctx.Err() == nil
}

// incident is what goes wrong: a holder is stuck, and is broken after four steps; a lease is
// dropped; the store is away for some seconds; it is restarted without its data.
func (r *run) incident(ctx context.Context) {
	c := r.clients[0]
	if !r.until(ctx, 2*r.pace) {
		return
	}
	stuck, err := c.Mutex("order:1", options).Lock(ctx)
	if err != nil {
		r.failed(ctx, err)
		return
	}
	if !r.until(ctx, 6*r.pace) {
		return
	}
	if err := c.Operator().Break(ctx, stuck.Key(), stuck.Owner()); err != nil {
		r.failed(ctx, err)
		return
	}
	if err := stuck.Release(); err == nil {
		r.failed(ctx, fmt.Errorf("the stuck holder lost nothing"))
	}
	r.forget(ctx)
	if !r.until(ctx, 7*r.pace) {
		return
	}
	last, err := c.Mutex("stock:last", options).Lock(ctx)
	if err != nil {
		r.failed(ctx, err)
		return
	}
	r.store.SetUnreachable(true)
	if err := last.Release(); err == nil {
		r.failed(ctx, fmt.Errorf("a store that is away confirmed a release"))
	}
	r.store.SetUnreachable(false)
	if r.until(ctx, 8*r.pace) {
		r.store.Restart(nil)
	}
	r.until(ctx, -1)
}

// forget drops a lease, and returns once it was found.
func (r *run) forget(ctx context.Context) {
	if _, err := r.clients[0].Mutex("stock:forgotten", options).Lock(ctx); err != nil {
		r.failed(ctx, err)
		return
	}
	for {
		runtime.GC()
		select {
		case <-r.forgotten:
			return
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Millisecond): // no event says that a collection has found nothing
		}
	}
}

// until goes on to a second, or for ever, and returns false when the test has ended before.
func (r *run) until(ctx context.Context, second int) bool {
	for r.now != second {
		select {
		case <-r.scrapes:
			r.now++
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (r *run) failed(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.t.Errorf("the run went wrong: %v", err)
	}
}
