// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// crowd is four threads of two JVMs and four processes of hasp over one server.
type crowd struct {
	*testing.T
	rdb  *redis.Client
	java [2]*peer
	hasp [4]*peer
}

func newCrowd(t *testing.T) *crowd {
	s := testserver.Redis(t)
	c := &crowd{T: t, rdb: redis.NewClient(&redis.Options{Addr: s.Addr()})}
	t.Cleanup(func() { c.rdb.Close() })
	for i := range c.java {
		c.java[i] = start(t, java, longTTL, s.Addr())
	}
	for i := range c.hasp {
		c.hasp[i] = start(t, haspPeer, longTTL, s.Addr())
	}
	return c
}

// members are Java's and hasp's in turn.
func (c *crowd) members() (all []member) {
	for i, p := range c.hasp {
		all = append(all, member{c.java[i%2], fmt.Sprint("j", i)}, member{p, "h"})
	}
	return all
}

// total is the sum of one number under one kind of lock.
type total struct {
	lock string
	n    int
	took time.Duration
}

func TestCrowdOfRedisson(t *testing.T) {
	c := newCrowd(t)
	c.sums()
	c.fairOrder()
	c.readers()
}

// sums: no addition to a number is lost, whatever kind of lock the two sides share; fences rise from each holder to the next, whoever it is.
func (c *crowd) sums() {
	for _, k := range []struct{ lock, ours, theirs string }{
		{"`RLock`", "lock", "lock"},
		{"fair lock", "fair", "fair"},
		{"`RFencedLock`, fences rise", "fenced", "fenced"},
		{"write lock", "write", "write"},
		{"spin lock, and hasp's plain lock", "lock", "spin"},
	} {
		each := pick(2500, 25)
		number := "sum." + k.theirs
		var mu sync.Mutex
		var fences []string
		took := together(c, c.members(), each, time.Hour, func(_ int, m member) error {
			kind := k.ours
			if m.program == java {
				kind = k.theirs
			}
			return m.under(m.thread, kind, number+".lock", func(l *lease) error {
				mu.Lock() // the detector of races knows nothing of the lock
				fences = append(fences, l.Fence)
				mu.Unlock()
				return add(c.Context(), c.rdb, number)
			})
		})
		if got, err := c.rdb.Get(c.Context(), number).Int(); got != 8*each {
			c.Errorf("%s: the number is %d, want %d: %v", k.theirs, got, 8*each, err)
		}
		c.Logf("%s: %d in %v", k.lock, 8*each, took)
		results.totals = append(results.totals, total{k.lock, 8 * each, took})
		if k.theirs == "fenced" {
			c.rise(fences, 8*each)
		}
	}
}

// rise checks that there are n fences, each larger than the one before.
func (c *crowd) rise(all []string, n int) {
	c.Helper()
	if len(all) != n {
		c.Fatalf("%d fences, want %d", len(all), n)
	}
	last := int64(0)
	for i, text := range all {
		f, err := strconv.ParseInt(text, 10, 64)
		if err != nil || f <= last {
			c.Fatalf("fence %d is %s after %d: %v", i, text, last, err)
		}
		last = f
	}
}

// fairOrder: a fair lock is granted in the order of arrival, whoever waits.
func (c *crowd) fairOrder() {
	for round := range pick(10, 2) {
		key := fmt.Sprint("fair.", round)
		all := c.members()
		if round%2 == 1 { // hasp first
			all[0], all[1], all[2], all[3] = all[1], all[0], all[3], all[2]
		}
		first := all[0].locks(all[0].thread, "fair", key, forever)
		var rest []*lease
		for i, m := range all[1:] {
			rest = append(rest, m.asks(m.thread, "fair", key, forever))
			queued(c, c.rdb, key, int64(i+1))
		}
		first.unlock()
		for i, l := range rest {
			l.granted()
			for _, later := range rest[i+1:] {
				later.quiet()
			}
			l.unlock()
		}
	}
}

// readers: who has a read lock never sees the half of what was written under the write lock.
func (c *crowd) readers() {
	if err := c.rdb.MSet(c.Context(), "page.a", 0, "page.b", 0).Err(); err != nil {
		c.Fatal(err)
	}
	var torn atomic.Int64
	together(c, c.members(), pick(1000, 25), time.Hour, func(i int, m member) error {
		kind := []string{"write", "read", "read", "write"}[i/2]
		return m.under(m.thread, kind, "page", func(*lease) error {
			if kind == "write" {
				now := time.Now().UnixNano()
				return errors.Join(c.rdb.Set(c.Context(), "page.a", now, 0).Err(), c.rdb.Set(c.Context(), "page.b", now, 0).Err())
			}
			a, errA := c.rdb.Get(c.Context(), "page.a").Result() // one after the other: MGET would see no half
			b, errB := c.rdb.Get(c.Context(), "page.b").Result()
			if a != b {
				torn.Add(1)
			}
			return errors.Join(errA, errB)
		})
	})
	if n := torn.Load(); n > 0 {
		c.Errorf("%d reads saw the half of what was written", n)
	}
}

// Rule: a RedissonRedLock and hasp's Locks over the same servers exclude each other.
func TestRedLockOfRedisson(t *testing.T) {
	var servers []*testserver.Server
	var addrs []string
	for range 3 {
		s := testserver.Redis(t)
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	theirs, ours := start(t, java, longTTL, addrs...), start(t, goPeer, longTTL, addrs...)
	m := watch(t, servers[0])
	a, b := side{ours, both("red"), ""}, side{theirs, both("red"), ""}
	var took [2][]time.Duration
	for round := range pick(30, 3) {
		took[0] = append(took[0], handoff(t, m, a, b, "red.0", round == 0))
		took[1] = append(took[1], handoff(t, m, b, a, "red.1", round == 0))
	}
	t.Logf("Redisson after hasp %v, hasp after Redisson %v", median(took[0]), median(took[1]))
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer rdb.Close()
	together(t, []member{{ours, "0"}, {ours, "1"}, {theirs, "0"}, {theirs, "1"}}, pick(250, 10), time.Hour, func(_ int, m member) error {
		return m.under(m.thread, "red", "sum.lock", func(*lease) error { return add(t.Context(), rdb, "sum") })
	})
	if got, err := rdb.Get(t.Context(), "sum").Int(); got != 4*pick(250, 10) {
		t.Errorf("the number is %d, want %d: %v", got, 4*pick(250, 10), err)
	}
}

// A waiter of a fair lock that died keeps the others waiting, for as long as it said: hasp's for its patience, Java's for its wait time. It
// is measured, and not judged.
func TestDeadWaitersOfFairLockOfRedisson(t *testing.T) {
	if !*long {
		t.Skip("part of the long form: -long")
	}
	const said = 4 * time.Second // by Java's waiter; without a bound it says 5 minutes
	c := newCrowd(t)
	holder := c.java[0]
	for _, d := range []struct {
		who        string
		dead, next *peer
		wait       time.Duration
	}{
		{"hasp's", c.hasp[0], c.java[1], time.Hour},
		{"Redisson's", start(t, java, longTTL, c.rdb.Options().Addr), c.hasp[1], said},
	} {
		key := "dead." + d.dead.name
		held := holder.locks("a", "fair", key, forever)
		d.dead.asks("b", "fair", key, d.wait)
		queued(t, c.rdb, key, 1)
		d.dead.kill()
		next := d.next.asks("c", "fair", key, forever)
		queued(t, c.rdb, key, 2)
		left := held.unlock()
		got := next.granted().at
		t.Logf("%s waiter is dead at the head of the queue: the next, of %s, has the lock %v after the unlock", d.who, d.next.name, since(left, got))
	}
}
