// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/verify"
	"github.com/redis/go-redis/v9"
)

// ratioBar is how much more work a handoff may be when 512 wait than when 2 do.
const ratioBar = 1.2

func handoff(flags *flag.FlagSet) func(*tb) []row {
	total := flags.Int("handoffs", 2048, "how many handoffs are measured for each number of clients")
	return func(t *tb) []row {
		var rows []row
		var first, last float64
		for _, n := range []int{2, 64, 512} {
			m, err := perform(t.ctx, func(sub *tb) *measured { return measure(sub, n, max(*total/n, 1)) })
			t.must(err)
			perJoin, perGrant := float64(m.joining)/float64(m.handoffs), float64(m.granting)/float64(m.handoffs)
			rows = append(rows,
				judged(m.outOfOrder == 0, fmt.Sprintf("%d clients: grants in the order of the queue", n), "all",
					"%d of %d", m.handoffs-m.outOfOrder, m.handoffs),
				figure(fmt.Sprintf("%d clients: handoffs", n), "%.0f/s", float64(m.handoffs)/m.took.Seconds()),
				figure(fmt.Sprintf("%d clients: commands in the server", n),
					"%.2f a handoff (release and claim), %.2f to join the queue", perGrant, perJoin))
			if first == 0 {
				first = perGrant + perJoin
			}
			last = perGrant + perJoin
		}
		return append(rows, judged(last <= ratioBar*first, "commands a handoff with its joining, 512 clients to 2",
			fmt.Sprintf("≤ %.1f", ratioBar), "%.3f (%.2f to %.2f)", last/first, last, first))
	}
}

// measured is the result of some rounds with one number of clients.
type measured struct {
	handoffs, outOfOrder int
	joining, granting    int // commands in the server
	took                 time.Duration
}

// measure runs rounds: one client holds the key while n others, each with connections
// of its own, join the queue; then the key is handed from each to the next.
func measure(t *tb, n, rounds int) *measured {
	s := testserver.Redis(t)
	adm := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
	t.Cleanup(func() { _ = adm.Close() }) // its server goes, too
	blocker := verify.Locks(t, s.Addr(), nil)
	l := &queue{n: n, joined: make(chan struct{}, 2*n), done: make(chan error, n)}
	for range n {
		var waits atomic.Bool
		l.begin = append(l.begin, func() { waits.Store(false) })
		l.mutexes = append(l.mutexes, verify.Locks(t, s.Addr(), func(e hasp.Event) {
			if e.Kind == hasp.EventWaiting && waits.CompareAndSwap(false, true) {
				l.joined <- struct{}{}
			}
		}).Mutex("k", nil))
	}
	m := &measured{}
	l.round(t, adm, blocker, &measured{}) // connections and scripts
	for range rounds {
		l.round(t, adm, blocker, m)
	}
	return m
}

// queue is the clients that wait.
type queue struct {
	n       int
	mutexes []*hasp.Mutex
	begin   []func()
	joined  chan struct{}
	done    chan error

	mu     sync.Mutex
	grants []string // owners, in the order of their grants
}

func (l *queue) round(t *tb, adm *redis.Client, blocker *hasp.Client, m *measured) {
	held, err := blocker.Mutex("k", nil).Lock(t.ctx)
	t.must(err)
	l.grants = l.grants[:0]
	before := commands(t, adm)
	for i, mutex := range l.mutexes {
		l.begin[i]()
		go func() { l.done <- l.hold(t, mutex) }()
	}
	for range l.n {
		l.wait(t, l.joined)
	}
	joined := commands(t, adm)
	info, err := blocker.Inspect(t.ctx, "k")
	t.must(err)
	ready := commands(t, adm)

	start := time.Now()
	t.must(held.Release())
	for range l.n {
		select {
		case err := <-l.done:
			t.must(err)
		case <-t.ctx.Done():
			t.Fatalf("%w", t.ctx.Err())
		case <-time.After(time.Minute):
			t.Fatalf("the queue of %d clients does not advance after %d grants", l.n, len(l.grants))
		}
	}
	m.took += time.Since(start)
	m.granting += commands(t, adm) - ready
	m.joining += joined - before
	m.handoffs += l.n
	for i, owner := range l.grants {
		if i >= len(info.Queue) || info.Queue[i].Owner != owner {
			m.outOfOrder++
		}
	}
}

func (l *queue) wait(t *tb, c <-chan struct{}) {
	select {
	case <-c:
	case <-t.ctx.Done():
		t.Fatalf("%w", t.ctx.Err())
	case <-time.After(time.Minute):
		t.Fatalf("not all of %d clients joined the queue", l.n)
	}
}

// hold waits for the key and releases it.
func (l *queue) hold(t testing.TB, mutex *hasp.Mutex) error {
	lease, err := mutex.Lock(t.Context())
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.grants = append(l.grants, lease.Owner())
	l.mu.Unlock()
	return lease.Release()
}

// commands counts what the server ran so far, within scripts too, but for
// INFO itself.
func commands(t *tb, adm *redis.Client) (n int) {
	text, err := adm.Info(t.ctx, "commandstats").Result()
	t.must(err)
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":calls=")
		if !ok || name == "cmdstat_info" {
			continue
		}
		calls, _, _ := strings.Cut(rest, ",")
		c, err := strconv.Atoi(calls)
		t.must(err)
		n += c
	}
	return n
}
