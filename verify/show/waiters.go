// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/testserver"
)

// freeBar is for how long a key may be free beside a live waiter, without the round trips of the link.
const freeBar = time.Second

// crowd is many waiters for one key of one engine.
type crowd struct {
	waiters, clients int
	rtt, length, ttl time.Duration
}

func waiters(flags *flag.FlagSet) func(*testserver.Program) {
	var c crowd
	flags.IntVar(&c.waiters, "waiters", 64, "how many goroutines want the key")
	flags.IntVar(&c.clients, "clients", 8, "over how many clients they are spread")
	flags.DurationVar(&c.rtt, "rtt", 50*time.Millisecond, "the round trip of each link")
	flags.DurationVar(&c.length, "for", 20*time.Second, "how long each engine is measured")
	flags.DurationVar(&c.ttl, "ttl", 10*time.Second, "the TTL")
	busy := flags.Int("busy", 0, "how many busy loops run beside")
	only := flags.String("engine", "", "one engine alone")
	return func(t *testserver.Program) {
		for range *busy {
			loop := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
			t.Must(loop.Start())
			t.Cleanup(func() { _, _ = loop.Process.Kill(), loop.Wait() })
		}
		for _, e := range stores {
			if e.name == "" || *only != "" && *only != e.name {
				continue
			}
			_, err := testserver.Perform(t.Context(), func(t *testserver.Program) any {
				c.run(t, e.name, e.start(place{t, c.rtt, c.ttl}))
				return nil
			})
			if err != nil {
				t.Errorf("%s: %w", e.name, err)
			}
		}
	}
}

// queue is what the waiters saw.
type queue struct {
	mu       sync.Mutex
	released time.Time // when the latest release began; zero: the key is held
	free     time.Duration
	handoffs int
	served   int // waiters that had it once, at least
	lost     int
	failed   []error
}

func (c *crowd) run(t *testserver.Program, name string, open opener) {
	ctx, cancel := context.WithTimeout(t.Context(), c.length)
	defer cancel()
	var q queue
	var all sync.WaitGroup
	var end []func() error
	for range c.clients {
		conn, err := open()
		t.Must(err)
		client, err := conn.Client(&hasp.Options{Observe: q.observe})
		t.Must(err)
		end = append(end, client.Close)
		for range c.waiters / c.clients {
			all.Go(func() { q.wait(ctx, client.Mutex("k", &hasp.LockOptions{TTL: c.ttl})) })
		}
	}
	<-ctx.Done()
	q.note(q.wasFree)
	all.Wait()
	for _, f := range end {
		_ = f() // what the link still holds is not the figure
	}
	fmt.Printf("%s: %d waiters of %d clients, a round trip of %v: %.1f handoffs/s; %d served; free for at most %v; %d lost; %d failed\n", name,
		c.waiters, c.clients, c.rtt, float64(q.handoffs)/c.length.Seconds(), q.served, q.free.Round(time.Millisecond), q.lost, len(q.failed))
	if most := freeBar + 2*c.rtt; q.free > most || q.lost > 0 || len(q.failed) > 0 {
		t.Errorf("MISSED: free for at most %v, none lost, none failed: %w", most, errors.Join(q.failed...))
	}
}

func (q *queue) note(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f()
}

func (q *queue) observe(_ context.Context, e *event.Event) {
	if e.Kind == event.Lost {
		q.note(func() { q.lost++ })
	}
}

// wasFree notes for how long the key has been free until now.
func (q *queue) wasFree() {
	if !q.released.IsZero() {
		q.free = max(q.free, time.Since(q.released))
	}
}

// wait takes the key again and again.
func (q *queue) wait(ctx context.Context, m *hasp.Mutex) {
	for served := 1; ; {
		lease, err := m.Lock(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = lease.Release()
			}
			return
		}
		if err == nil {
			q.note(func() {
				q.wasFree()
				q.released = time.Time{}
				q.handoffs++
				q.served += served
			})
			served = 0
			q.note(func() { q.released = time.Now() })
			err = lease.Release()
		}
		if err != nil {
			q.note(func() { q.failed = append(q.failed, err) })
		}
	}
}
