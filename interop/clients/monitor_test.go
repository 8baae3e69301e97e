// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// monitor sees the commands that clients send to servers (Redis's MONITOR): only so can a test know that the client of somebody else
// has been refused and waits.
type monitor struct {
	testing.TB
	asks  []*redis.Client // one for each server
	marks int

	mu    sync.Mutex
	lines []string
	news  chan struct{} // closed and made anew with each line
}

func watch(t testing.TB, servers ...*testserver.Server) *monitor {
	t.Helper()
	m := &monitor{TB: t, news: make(chan struct{})}
	for _, s := range servers {
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { rdb.Close() })
		m.asks = append(m.asks, rdb)
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("MONITOR\r\n")); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewScanner(c)
		if in.Buffer(nil, 1<<20); !in.Scan() || in.Text() != "+OK" {
			t.Fatalf("MONITOR says %q", in.Text())
		}
		read := make(chan struct{})
		go func() {
			defer close(read)
			for in.Scan() {
				m.add(in.Text())
			}
		}()
		t.Cleanup(func() { c.Close(); <-read })
	}
	return m
}

// add keeps a command of a client, not of a script, unless it ends something.
func (m *monitor) add(line string) {
	if strings.Contains(line, " lua] ") || strings.Contains(line, "UNSUBSCRIBE") || strings.Contains(line, "unlock_latch") {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, line)
	close(m.news)
	m.news = make(chan struct{})
}

// mark forgets all commands that were sent before.
func (m *monitor) mark() {
	m.Helper()
	m.marks++
	for i, rdb := range m.asks {
		text := fmt.Sprintf("mark.%d.%d.", m.marks, i)
		if err := rdb.Echo(m.Context(), text).Err(); err != nil {
			m.Fatal(err)
		}
		m.sees(text, 1)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = nil
}

// sees waits for n commands that name a key, from the mark on.
func (m *monitor) sees(key string, n int) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.Context(), soon)
	defer cancel()
	for {
		m.mu.Lock()
		found := 0
		for _, line := range m.lines {
			if strings.Contains(line, key) {
				found++
			}
		}
		lines, news := m.lines, m.news
		m.mu.Unlock()
		if found >= n {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			m.Fatalf("%d commands name %s, want %d, within %v:\n%s", found, key, n, soon, strings.Join(lines[max(0, len(lines)-20):], "\n"))
		}
	}
}

// steps is how many commands a client sends before it only waits.
var steps = map[string]int{
	"lock": 3, "fair": 3, "fenced": 3, "read": 3, "write": 3, "multi": 3, // a try, a subscription, and another try
}

// waits waits until a waiter of a kind waits.
func (m *monitor) waits(kind, key string) {
	m.Helper()
	key, _, _ = strings.Cut(key, ",") // it waits for the first of several
	m.sees(key, max(1, steps[kind]))
}

// median is that of some times.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}
