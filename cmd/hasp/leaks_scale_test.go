// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver"
	"github.com/redis/go-redis/v9"
)

// What hasp leaks costs in a Redis with so many keys (HASP_TEST_LEAKS=1000000), and what another client feels of it. This is for a
// machine that does nothing else: no verdict but the log's.
func TestLeaksAmongMany(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv("HASP_TEST_LEAKS"))
	if err != nil {
		t.Skip("HASP_TEST_LEAKS names no number of keys")
	}
	server := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	leaked := fillWithLocks(t, rdb, n)
	locks, err := hasp.New(redisdriver.New(rdb, nil), nil)
	must(t, err)
	t.Cleanup(func() { locks.Close() })
	p := newSandbox(t, "redis://"+server.Addr()).hasp("leaks")
	begun, done := time.Now(), make(chan struct{})
	go func() { defer close(done); _ = p.cmd.Wait() }()
	lockPairs(t, locks, time.Hour, done)
	t.Logf("hasp leaks took %v among %d keys", time.Since(begun).Round(100*time.Millisecond), n)
	if found := strings.Count(p.out.String(), "\n"); found != leaked {
		t.Errorf("%d leaks were found, want %d; it said %s", found, leaked, p.err.String())
	}

	// The same again, stopped for every other moment: whatever else the machine does then is in both.
	const moment = 500 * time.Millisecond
	var without, during []time.Duration
	p = newSandbox(t, "redis://"+server.Addr()).hasp("leaks")
	done = make(chan struct{})
	go func() { defer close(done); _ = p.cmd.Wait() }()
	for over := false; !over; {
		during = append(during, lockPairs(t, locks, moment, done)...)
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		without = append(without, lockPairs(t, locks, moment, nil)...)
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		select {
		case <-done:
			over = true
		default:
		}
	}
	for _, q := range []float64{0.5, 0.99, 0.999} {
		a, b := quantile(without, q), quantile(during, q)
		t.Logf("a lock and unlock of another client, quantile %v: %v without (%d), %v during (%d): %.2f times", q, a, len(without), b, len(during), float64(b)/float64(a))
	}
}

// fillWithLocks makes n keys: locks with a grant each, and some that leak. It returns how many of these.
func fillWithLocks(t *testing.T, rdb *redis.Client, n int) (leaked int) {
	t.Helper()
	now := time.Now()
	for from := 0; from < n/2; from += 5000 {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(from+5000, n/2); i++ {
				owner := rand.Text()
				label := driver.Label{Host: "web-3", PID: 4211, User: "app", Reason: "export", Process: "0123456789abcdef-12345", Since: now}.Encode()
				lock := fmt.Sprintf("lock:class%d/%d", i%20, i)
				grant := fmt.Sprintf("%s %016d %013d h", owner, now.UnixMicro()+int64(i), now.UnixMilli())
				switch {
				case i%1000 == 1: // a person's PERSIST: nobody renews it
					p.Set(t.Context(), lock, owner+" "+label, 0)
					leaked++
				case i%1000 == 2:
					p.Set(t.Context(), lock, "another program", 0)
					leaked++
				default:
					p.Set(t.Context(), lock, owner+" "+label, time.Hour)
				}
				expiry := 2 * time.Hour
				if i%1000 == 1 {
					expiry = 50 * time.Second
				}
				p.Set(t.Context(), "hasp.grant:{"+lock+"}", grant, expiry)
			}
			return nil
		})
		must(t, err)
	}
	return leaked
}

// lockPairs locks and unlocks keys, some 500 times a second, for so long or until done is closed, and returns how long each took.
func lockPairs(t *testing.T, locks *hasp.Client, most time.Duration, done <-chan struct{}) (took []time.Duration) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	end := time.After(most)
	for i := 0; ; i++ {
		select {
		case <-done:
			return took
		case <-end:
			return took
		case <-tick.C:
		}
		begun := time.Now()
		lease, err := locks.Mutex(fmt.Sprintf("another/%d", i%100), nil).TryLock(context.Background())
		if err == nil {
			err = lease.Release()
		}
		must(t, err)
		took = append(took, time.Since(begun))
	}
}

func quantile(all []time.Duration, q float64) time.Duration {
	all = slices.Sorted(slices.Values(all))
	return all[min(int(q*float64(len(all))), len(all)-1)]
}
