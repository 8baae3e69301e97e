// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// With HASP_TEST_SCALE=1, on a quiet machine and without -race: 10,000 locks and 1,000 waiters, hasp ls, hasp top,
// and what others who use the store notice of them. It reports figures, and fails only where nothing works.
func TestScale(t *testing.T) {
	if os.Getenv("HASP_TEST_SCALE") == "" {
		t.Skip("it measures: HASP_TEST_SCALE is not set")
	}
	for _, queues := range []int{1000, 10} {
		t.Run(fmt.Sprintf("waiters for %d keys", queues), func(t *testing.T) { scale(t, 10_000, 1000, queues) })
	}
}

func scale(t *testing.T, locks, waiters, queues int) {
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	client := func() *hasp.Client {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 16})
		c, err := hasp.New(redisdriver.New(rdb, nil), nil)
		must(t, err)
		t.Cleanup(func() { _ = c.Close(); _ = rdb.Close() })
		return c
	}
	c := client()
	lo := &hasp.LockOptions{TTL: time.Hour}
	key := func(i int) string { return fmt.Sprintf("tenants/%04d/orders/%06d", i%977, i) }
	each(locks, 64, func(i int) {
		if _, err := c.Mutex(key(i), lo).TryLock(t.Context()); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range waiters {
		wg.Go(func() { _, _ = c.Mutex(key(i%queues), lo).Lock(ctx) }) // until the end of the test
	}
	if err := eventually(func() bool { return queued(t, c) == waiters }); err != nil {
		t.Fatalf("%d of %d wait: %v", queued(t, c), waiters, err)
	}

	var took, cpu []time.Duration
	for range 7 {
		began := time.Now()
		p := s.hasp("ls")
		p.ends(0)
		took = append(took, time.Since(began))
		cpu = append(cpu, p.cmd.ProcessState.UserTime()+p.cmd.ProcessState.SystemTime())
		if n := strings.Count(p.out.String(), "\n"); n < locks {
			t.Fatalf("hasp ls has %d lines", n)
		}
	}
	slices.Sort(took)
	slices.Sort(cpu)
	t.Logf("hasp ls, with the start of the process: median %v, least %v, most %v; CPU time %v (median)", took[len(took)/2], took[0], took[len(took)-1], cpu[len(cpu)/2])

	other := client()
	calm, watched := []time.Duration{}, []time.Duration{}
	for range 4 {
		calm = append(calm, pairs(t, other, 5*time.Second)...)
		sc, pid := s.bigTop(t)
		watched = append(watched, pairs(t, other, 10*time.Second)...)
		sc.figures(t, c, pid)
		sc.send("q")
		sc.expect(topLeft)
	}
	a, b := percentiles(calm), percentiles(watched)
	t.Logf("a lock and its release, by others: p50 %v, p99 %v without hasp top; p50 %v, p99 %v with it: p99 %.2f times", a[0], a[1], b[0], b[1], float64(b[1])/float64(a[1]))
}

// queued counts the waiters.
func queued(t *testing.T, c *hasp.Client) (n int) {
	t.Helper()
	waiters := map[string]int{} // a key may be listed twice
	for info, err := range c.Operator().List(t.Context(), "") {
		must(t, err)
		waiters[info.Key] = info.Waiters
	}
	for _, some := range waiters {
		n += some
	}
	return n
}

func each(n, atOnce int, do func(i int)) {
	var wg sync.WaitGroup
	for w := range atOnce {
		wg.Go(func() {
			for i := w; i < n; i += atOnce {
				do(i)
			}
		})
	}
	wg.Wait()
}

// pairs takes and releases keys of its own, 200 a second, and returns how long each took.
func pairs(t *testing.T, c *hasp.Client, long time.Duration) (took []time.Duration) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-ticker.C {
		began := time.Now()
		lease, err := c.Mutex(fmt.Sprintf("others/%d", len(took)%100), nil).TryLock(t.Context())
		must(t, err)
		must(t, lease.Release())
		took = append(took, time.Since(began))
	}
	return took
}

func percentiles(took []time.Duration) [2]time.Duration {
	slices.Sort(took)
	return [2]time.Duration{took[len(took)/2], took[len(took)*99/100]}
}

func (s *sandbox) bigTop(t *testing.T) (sc *screen, pid string) {
	t.Helper()
	_ = os.Remove(filepath.Join(s.dir, "pid"))
	sc = s.top(t, `sh -c 'echo $$ >pid; exec hasp top'`)
	sc.resize(50, 120)
	sc.shows(`\d{5} keys`)
	return sc, s.read("pid")
}

// figures says how soon hasp top shows what a key does, and what another did, and what it needs.
func (sc *screen) figures(t *testing.T, c *hasp.Client, pid string) {
	t.Helper()
	until := func(pattern string) time.Duration {
		began, re := time.Now(), regexp.MustCompile(pattern)
		for !re.MatchString(sc.shown()) {
			if time.Since(began) > limit {
				t.Fatalf("%q is not shown", pattern)
			}
			time.Sleep(time.Millisecond)
		}
		return time.Since(began)
	}
	var pressed []time.Duration
	for range 10 {
		for _, column := range []string{"key", "holder", "held", "left", "waiters"} {
			sc.send("s")
			pressed = append(pressed, until("sorted by "+column))
		}
	}
	p := percentiles(pressed)
	lease, err := c.Mutex("a new key", nil).TryLock(t.Context())
	must(t, err)
	sc.send("g")
	shown := until("> a new key|  a new key")
	must(t, lease.Release())
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	memory := regexp.MustCompile(`(?m)^(VmHWM|VmRSS):\s+(\d+ kB)`).FindAllString(string(status), -1)
	t.Logf("hasp top: a sort is shown after %v (median), %v (p99); another's lock after %v; %s", p[0], p[1], shown, strings.Join(memory, ", "))
}
