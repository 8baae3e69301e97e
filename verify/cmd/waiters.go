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
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/testserver"
)

const (
	// freeBar is for how long a key may be free beside a live waiter, without the round trips of the link.
	freeBar = time.Second
	// crowdTTL is that of the leases.
	crowdTTL = 10 * time.Second
)

// crowd is many waiters for one key of one engine.
type crowd struct {
	waiters, clients int
	rtt, length, ttl time.Duration
	least            int           // handoffs, however long they take
	hold             time.Duration // for how long each has the key, and then rests for half as long
}

func waiters(flags *flag.FlagSet) func(*testserver.Program) {
	c := crowd{ttl: crowdTTL}
	flags.IntVar(&c.waiters, "waiters", 64, "how many goroutines want the key")
	flags.IntVar(&c.clients, "clients", 8, "over how many clients they are spread")
	flags.DurationVar(&c.rtt, "rtt", 50*time.Millisecond, "the round trip of each link")
	flags.DurationVar(&c.length, "for", 20*time.Second, "how long each engine is measured")
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
				c.judge(t, e.name, c.run(t, e.start(place{t, c.rtt, c.ttl})))
				return nil
			})
			if err != nil {
				t.Errorf("%s: %w", e.name, err)
			}
		}
	}
}

func (c *crowd) judge(t *testserver.Program, name string, q *queue) {
	free := slices.Max(append(q.gaps, 0))
	fmt.Printf("%s: %d waiters of %d clients, a round trip of %v: %.1f handoffs/s; %d served; free for at most %v; %d lost; %d failed\n", name,
		c.waiters, c.clients, c.rtt, float64(len(q.pairs))/c.length.Seconds(), q.served, free.Round(time.Millisecond), q.lost, len(q.failed))
	if most := freeBar + 2*c.rtt; free > most || q.lost > 0 || len(q.failed) > 0 {
		t.Errorf("MISSED: free for at most %v, none lost, none failed: %w", most, errors.Join(q.failed...))
	}
}

// queue is what the waiters saw.
type queue struct {
	traits driver.Traits

	mu          sync.Mutex
	released    time.Time       // when the latest release began; zero: the key is held
	gaps, pairs []time.Duration // from each release to the next grant; and for each grant from the request to the end of its release
	served      int             // waiters that had it once, at least
	lost        int
	failed      []error
}

// run has the waiters contend for the key, with clients of their own.
func (c *crowd) run(t *testserver.Program, open opener) *queue {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var q queue
	var all sync.WaitGroup
	var end []func() error
	for range c.clients {
		conn, err := open()
		t.Must(err)
		q.traits = conn.Traits()
		client, err := conn.Client(&hasp.Options{Observe: q.observe})
		t.Must(err)
		end = append(end, client.Close)
		for range c.waiters / c.clients {
			all.Go(func() { q.wait(ctx, client.Mutex("k", &hasp.LockOptions{TTL: c.ttl}), c.hold) })
		}
	}
	gaps := 0
	for begun := time.Now(); ctx.Err() == nil && (time.Since(begun) < c.length || gaps < c.least); time.Sleep(5 * time.Millisecond) {
		q.note(func() { gaps = len(q.gaps) })
	}
	cancel()
	q.note(q.wasFree)
	all.Wait()
	for _, f := range end {
		_ = f() // what the link still holds is not the figure
	}
	return &q
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
		q.gaps = append(q.gaps, time.Since(q.released))
	}
	q.released = time.Time{}
}

// wait takes the key again and again.
func (q *queue) wait(ctx context.Context, m *hasp.Mutex, hold time.Duration) {
	for served := 1; ; {
		begun := time.Now()
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
				q.served += served
			})
			served = 0
			time.Sleep(hold)
			q.note(func() { q.released = time.Now() })
			err = lease.Release()
			q.note(func() { q.pairs = append(q.pairs, time.Since(begun)) })
			time.Sleep(hold / 2)
		}
		if err != nil {
			q.note(func() { q.failed = append(q.failed, err) })
		}
	}
}
