// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// synchronizers opens some with connections of their own, whose waiters are woken by messages alone.
func (w *world) synchronizers(rdb redis.UniversalClient) *Synchronizers {
	s := NewSynchronizers(rdb, nil)
	s.poll = time.Hour
	w.Cleanup(func() { _ = s.Close() })
	return s
}

// begin calls f at the same time as the rest of the test, and returns what it says.
func begin(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// ends waits for a call.
func (w *world) ends(done <-chan error, want error) {
	w.Helper()
	select {
	case err := <-done:
		failIf(w, !errors.Is(err, want), "it ended with %v, want %v", err, want)
	case <-w.ctx.Done():
		w.Fatal("it does not end")
	}
}

// runs fails if a call has ended.
func (w *world) runs(done <-chan error) {
	w.Helper()
	select {
	case err := <-done:
		w.Errorf("it ended with %v", err)
	default:
	}
}

// joined subscribes to a channel as the first, and returns once no event of that can wake a waiter any more.
func (w *world) joined(s *Synchronizers, channel string) (leave func()) {
	w.Helper()
	p, err := s.posts.Get(-1)
	w.succeeds(err)
	const marker = "redisson_sc:marker"
	for _, name := range []string{channel, marker} {
		if ok, err := p.Join(w.ctx, name); !ok {
			w.Fatalf("Join: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	first := &watcher{}
	p.watch(ctx, marker, first)
	w.do("PUBLISH", marker, "1")
	w.hint(first.hint)
	return func() { p.Leave(channel) }
}

// asleep waits until n wait on a channel, all of whom were answered since they subscribed, and were given no hint after that.
func (w *world) asleep(s *Synchronizers, channel string, n int) {
	w.Helper()
	w.until("they wait", func() bool {
		p := s.posts.Find(-1)
		if p == nil {
			return false
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting[channel]) == n && !slices.ContainsFunc(p.waiting[channel], func(w *watcher) bool { return w.signals != w.heeded })
	})
}

var evalsha = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// scripts counts how many ran.
func (w *world) scripts() int {
	w.Helper()
	m := evalsha.FindStringSubmatch(w.admin.Info(w.ctx, "commandstats").Val())
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

func (w *world) until(what string, so func() bool) {
	w.Helper()
	for !so() {
		select {
		case <-w.ctx.Done():
			w.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// messages subscribes as Java does, and returns a function that returns the next message.
func (w *world) messages(channel string) (next func() string) {
	w.Helper()
	ps := w.admin.Subscribe(w.ctx, channel)
	w.Cleanup(func() { _ = ps.Close() })
	if _, err := ps.Receive(w.ctx); err != nil {
		w.Fatal(err)
	}
	return func() string {
		w.Helper()
		m, err := ps.ReceiveMessage(w.ctx)
		if err != nil {
			w.Fatal(err)
		}
		return m.Payload
	}
}

// must returns what a method says that has to succeed.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (w *world) succeeds(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}
