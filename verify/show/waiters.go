// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
)

// freeBar is for how long a key may be free beside a live waiter, without the round trips of the link.
const freeBar = time.Second

// crowd is many waiters for one key of one engine.
type crowd struct {
	waiters, clients int
	rtt, length, ttl time.Duration

	mu       sync.Mutex
	released time.Time // when the latest release began; zero: the key is held
	free     time.Duration
	handoffs int
	served   int   // waiters that had it once, at least
	failed   error // the first one

	errs, lost atomic.Int64
}

func waiters(flags *flag.FlagSet) func(*testserver.Program) []row {
	var c crowd
	flags.IntVar(&c.waiters, "waiters", 64, "how many goroutines want the key")
	flags.IntVar(&c.clients, "clients", 8, "over how many clients they are spread")
	flags.DurationVar(&c.rtt, "rtt", 50*time.Millisecond, "the round trip of each link")
	flags.DurationVar(&c.length, "for", 20*time.Second, "how long each engine is measured")
	flags.DurationVar(&c.ttl, "ttl", 10*time.Second, "the TTL")
	busy := flags.Int("busy", 0, "how many busy loops run beside")
	only := flags.String("engine", "", "one engine alone")
	return func(t *testserver.Program) (rows []row) {
		for range *busy {
			loop := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
			t.Must(loop.Start())
			t.Cleanup(func() { _, _ = loop.Process.Kill(), loop.Wait() })
		}
		for _, e := range stores {
			if e.name == "" || *only != "" && *only != e.name {
				continue
			}
			got, err := testserver.Perform(t.Context(), func(t *testserver.Program) []row {
				c := &crowd{waiters: c.waiters, clients: c.clients, rtt: c.rtt, length: c.length, ttl: c.ttl}
				return c.run(t, e.name, e.start(place{t, c.rtt, c.ttl}))
			})
			t.Must(err)
			rows = append(rows, got...)
		}
		return rows
	}
}

func (c *crowd) run(t *testserver.Program, name string, open opener) []row {
	ctx, cancel := context.WithTimeout(t.Context(), c.length)
	defer cancel()
	var all sync.WaitGroup
	var end []func() error
	for range c.clients {
		conn, err := open()
		t.Must(err)
		client, err := hasp.New(conn.Driver, &hasp.Options{Observe: c.observe})
		t.Must(err)
		end = append(end, client.Close, conn.Disconnect)
		for range c.waiters / c.clients {
			all.Go(func() { c.wait(ctx, client.Mutex("k", &hasp.LockOptions{TTL: c.ttl})) })
		}
	}
	<-ctx.Done()
	c.nowFree()
	all.Wait()
	for _, f := range end {
		_ = f() // what the link still holds is not the figure
	}
	what := fmt.Sprintf("%s: %d waiters of %d clients, a round trip of %v", name, c.waiters, c.clients, c.rtt)
	most := freeBar + 2*c.rtt
	rows := []row{judged(c.free <= most && c.lost.Load() == 0 && c.errs.Load() == 0, what,
		fmt.Sprintf("free ≤ %v, none lost, none failed", most), "%.1f handoffs/s; %d served; free for at most %v; %d lost; %d failed",
		float64(c.handoffs)/c.length.Seconds(), c.served, c.free.Round(time.Millisecond), c.lost.Load(), c.errs.Load())}
	if c.failed != nil {
		rows = append(rows, figure(what+": the first error", "%v", c.failed))
	}
	return rows
}

func (c *crowd) observe(e hasp.Event) {
	if e.Kind == hasp.EventLost {
		c.lost.Add(1)
	}
}

// wait takes the key again and again.
func (c *crowd) wait(ctx context.Context, m *hasp.Mutex) {
	for first := true; ; {
		lease, err := m.Lock(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = lease.Release()
			}
			return
		}
		if err == nil {
			c.granted(first)
			first = false
			c.gone()
			err = lease.Release()
		}
		if err != nil {
			c.fail(err)
		}
	}
}

func (c *crowd) granted(first bool) {
	c.nowFree()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = time.Time{}
	c.handoffs++
	if first {
		c.served++
	}
}

// nowFree notes for how long the key has been free until now.
func (c *crowd) nowFree() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.released.IsZero() {
		c.free = max(c.free, time.Since(c.released))
	}
}

// gone notes that a release begins.
func (c *crowd) gone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.released = time.Now()
}

func (c *crowd) fail(err error) {
	c.errs.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}
