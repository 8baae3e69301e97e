// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// What Redisson itself does that a program beside it has to know: docs/interop.md says so, and these tests notice when it changes.

// alone is a Redisson on a server of its own.
func alone(t *testing.T, ttl time.Duration) (*peer, *redis.Client, *testserver.Server) {
	if !*long {
		t.Skip("part of the long form: -long")
	}
	s := testserver.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { rdb.Close() })
	return start(t, java, ttl, s.Addr()), rdb, s
}

// gone waits until a key does not exist, and returns how long that took.
func gone(t testing.TB, rdb *redis.Client, key string, limit time.Duration) (took time.Duration, so bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < limit; time.Sleep(10 * time.Millisecond) { // no event says so
		n, err := rdb.Exists(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return time.Since(began), true
		}
	}
	return limit, false
}

// Finding D1: a read unlock within a write lock ends the renewal of the write lock, too, which then expires while it is held.
func TestRedissonForgetsTheWriteLock(t *testing.T) {
	const ttl = 2 * time.Second
	j, rdb, _ := alone(t, ttl)
	write := j.locks("a", "write", "k", forever)
	if _, so := gone(t, rdb, "k", 2*ttl); so {
		t.Fatal("the write lock is not renewed at all")
	}
	j.locks("a", "read", "k", forever).unlock()
	took, so := gone(t, rdb, "k", 4*ttl)
	if !so {
		t.Errorf("the write lock is renewed after the unlock of a read lock in it: this release does not have the defect")
	}
	t.Logf("the write lock was gone %v after the unlock of the read lock in it", took)
	if got := write.tells("status", "a", "held"); got != "lost" {
		t.Errorf("Redisson says %q of the write lock that is gone", got)
	}
}

// Finding D16: the watchdog of a reader sets the end of the lock to its own time, also where another reader's hold lasts longer.
func TestRedissonsWatchdogShortensTheLock(t *testing.T) {
	j, rdb, _ := alone(t, shortTTL)
	j.locks("a", "read", "k", forever)
	if err := rdb.PExpire(t.Context(), "k", longTTL).Err(); err != nil {
		t.Fatal(err)
	}
	for { // until it has renewed
		left, err := rdb.PTTL(t.Context(), "k").Result()
		if err != nil {
			t.Fatal(err)
		}
		if left <= shortTTL {
			t.Logf("of %v the watchdog left %v", longTTL, left)
			return
		}
		if left < longTTL-4*shortTTL {
			t.Fatalf("the lock still lasts for %v: this release does not have the defect", left)
		}
	}
}

// Finding D2: the unlock of a read lock within a write lock shortens the write lock to what the read lock's lease was.
func TestRedissonShortensTheWriteLock(t *testing.T) {
	j, rdb, _ := alone(t, longTTL)
	j.locks("a", "write", "k", forever, lasting(time.Minute))
	j.locks("a", "read", "k", forever, lasting(time.Second))
	j.locks("a", "read", "k", forever, lasting(time.Second)).unlock()
	if left := rdb.PTTL(t.Context(), "k").Val(); left > time.Second {
		t.Errorf("%v are left of the write lock: this release does not have the defect", left)
	}
}

// Finding D3: who keeps a read lock and unlocks the write lock around it tells nobody: readers that wait go on waiting until the TTL that
// they were told is over.
func TestRedissonDowngradesInSilence(t *testing.T) {
	const ttl = 6 * time.Second
	j, _, server := alone(t, ttl)
	other := start(t, java, ttl, server.Addr())
	m := watch(t, server)
	write := j.locks("a", "write", "page", forever)
	j.locks("a", "read", "page", forever)
	m.mark()
	next := other.asks("b", "read", "page", soon)
	m.waits("read", "page")
	left := write.unlock()
	got := next.granted().at
	t.Logf("the reader that waits has the lock %v after the downgrade; the TTL is %v", since(left, got), ttl)
	if since(left, got) < ttl/10 {
		t.Errorf("the reader was told: this release does not have the defect")
	}
}

// Finding D4: while the first in the queue of a fair lock is a client that has died, the others ask without a pause.
func TestRedissonAsksWithoutAPause(t *testing.T) {
	first, rdb, server := alone(t, longTTL)
	dead := start(t, java, longTTL, server.Addr())
	next := start(t, java, longTTL, server.Addr())
	held := first.locks("a", "fair", "k", forever)
	dead.asks("b", "fair", "k", forever)
	queued(t, rdb, "k", 1)
	dead.kill()
	waiter := next.asks("c", "fair", "k", forever)
	queued(t, rdb, "k", 2)
	held.unlock()
	const many = 500
	began, before := time.Now(), scripts(t, rdb)
	for scripts(t, rdb) < before+many {
		if time.Since(began) > soon {
			t.Fatal("this release does not have the defect")
		}
		time.Sleep(10 * time.Millisecond) // no event says so
	}
	t.Logf("the lock is free, its queue begins with a dead client, and the next in it sends %d scripts in %v", many, time.Since(began))
	waiter.quiet()
}

// queued waits until so many are in the queue of a fair lock.
func queued(t testing.TB, rdb redis.UniversalClient, key string, n int64) {
	t.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(5 * time.Millisecond) { // no event says so
		got, err := rdb.LLen(t.Context(), "redisson_lock_queue:{"+key+"}").Result()
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d are in the queue of %s, want %d: %v", got, key, n, err)
		}
		if got == n {
			return
		}
	}
}

// scripts is how many a server has run.
func scripts(t testing.TB, rdb *redis.Client) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			n, _ = strconv.Atoi(rest[:strings.Index(rest, ",")])
		}
	}
	return n
}

// Finding D5: the unlock of a fair lock that is gone succeeds, whoever does it.
func TestRedissonUnlocksWhatIsGone(t *testing.T) {
	j, rdb, _ := alone(t, longTTL)
	fair, plain := j.locks("a", "fair", "k", forever), j.locks("a", "lock", "plain", forever)
	if err := rdb.Del(t.Context(), "k", "plain").Err(); err != nil {
		t.Fatal(err)
	}
	fair.unlock()
	if got := fair.tells("release", "b", "unlocked"); got != "unlocked" {
		t.Errorf("Redisson says %q of the unlock by another thread: this release does not have the defect", got)
	}
	if got := plain.tells("release", "b", "unlocked"); got != "lost" { // a plain lock knows better
		t.Errorf("Redisson says %q of the unlock of a plain lock that is gone", got)
	}
}

// Finding D6: lockAndGetToken with a lease ignores the lease, and the lock is renewed.
func TestRedissonIgnoresTheLeaseOfAFencedLock(t *testing.T) {
	j, rdb, _ := alone(t, longTTL)
	j.locks("a", "fenced", "k", forever, lasting(time.Second))
	if left := rdb.PTTL(t.Context(), "k").Val(); left < longTTL/2 {
		t.Errorf("%v are left of a lease of a second: this release does not have the defect", left)
	}
	j.locks("a", "fenced", "waited", 0, lasting(time.Second)) // with a wait time it is heeded
	if left := rdb.PTTL(t.Context(), "waited").Val(); left > time.Second {
		t.Errorf("%v are left of a lease of a second that was tried for", left)
	}
	j.locks("a", "lock", "plain", forever, lasting(time.Second))
	if left := rdb.PTTL(t.Context(), "plain").Val(); left > time.Second {
		t.Errorf("%v are left of a lease of a second of a plain lock", left)
	}
}

// Finding D14: each write lock within a write lock adds its TTL to what is left, and a crash blocks the others for so long.
func TestRedissonAddsTTLs(t *testing.T) {
	j, rdb, _ := alone(t, longTTL)
	for range 3 {
		j.locks("a", "write", "k", forever)
	}
	left := rdb.PTTL(t.Context(), "k").Val()
	t.Logf("%v are left of a write lock that is held three times, with a TTL of %v", left, longTTL)
	if left < 2*longTTL {
		t.Errorf("this release does not have the defect")
	}
}
