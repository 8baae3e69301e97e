// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"fmt"
	"strconv"
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
		c.hasp[i] = start(t, haspPeer, longTTL, s.Addr()).ready()
	}
	for _, p := range c.java {
		p.ready()
	}
	return c
}

// member is one of the eight.
type member struct {
	*peer
	thread string
	java   bool
}

// members are Java's and hasp's in turn.
func (c *crowd) members() (all []member) {
	for i, p := range c.hasp {
		all = append(all, member{c.java[i%2], fmt.Sprint("j", i), true}, member{p, "h", false})
	}
	return all
}

// counts has all add to one number under a lock, and returns how long it took.
func (c *crowd) counts(ours, theirs, number string, each int) time.Duration {
	c.Helper()
	began := time.Now()
	all := c.members()
	for _, m := range all {
		kind := ours
		if m.java {
			kind = theirs
		}
		m.order(m.thread, "count %s %s.lock %d 3600000 %s", kind, number, each, number)
	}
	for _, m := range all {
		got := m.within(m.thread, 10*time.Minute)
		if n := m.numbers(m.thread, "counted", got)[0]; n != int64(each) {
			c.Errorf("%s counted %d times, want %d", m.name, n, each)
		}
	}
	took := time.Since(began)
	if got, err := c.rdb.Get(c.Context(), number).Int(); got != len(all)*each {
		c.Errorf("%s: the number is %d, want %d: %v", theirs, got, len(all)*each, err)
	}
	return took
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
		took := c.counts(k.ours, k.theirs, number, each)
		c.Logf("%s: %d in %v", k.lock, 8*each, took)
		results.totals = append(results.totals, total{k.lock, 8 * each, took})
	}
	c.rise("sum.fenced.fences", 8*pick(2500, 25))
}

// rise checks that a list has n numbers, each larger than the one before.
func (c *crowd) rise(list string, n int) {
	c.Helper()
	all, err := c.rdb.LRange(c.Context(), list, 0, -1).Result()
	if err != nil || len(all) != n {
		c.Fatalf("%d fences, want %d: %v", len(all), n, err)
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
		first, rest := all[0], all[1:]
		first.does(first.thread, "locked", "lock fair %s -1", key)
		for i, m := range rest {
			m.order(m.thread, "lock fair %s -1", key)
			queued(c, c.rdb, key, int64(i+1))
		}
		first.does(first.thread, "unlocked", "unlock fair %s", key)
		for i, m := range rest {
			m.says(m.thread, "locked")
			for _, later := range rest[i+1:] {
				later.quiet(later.thread)
			}
			m.does(m.thread, "unlocked", "unlock fair %s", key)
		}
	}
}

// readers: who has a read lock never sees the half of what was written under the write lock.
func (c *crowd) readers() {
	n := pick(1000, 25)
	for i, m := range c.members() {
		m.order(m.thread, "%s %[1]s page %d", []string{"write", "read", "read", "write"}[i/2], n)
	}
	for _, m := range c.members() {
		got := m.within(m.thread, 10*time.Minute)
		if got != fmt.Sprint("wrote ", n) && got != fmt.Sprintf("read %d torn 0", n) {
			c.Errorf("%s says %q", m.name, got)
		}
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
	theirs, ours := start(t, java, longTTL, addrs...), start(t, haspPeer, longTTL, addrs...)
	theirs.ready()
	ours.ready()
	m := watch(t, servers[0])
	a, b := side{ours, both("red"), ""}, side{theirs, both("red"), ""}
	var took [2][]time.Duration
	for round := range pick(30, 3) {
		took[0] = append(took[0], handoff(t, m, a, b, "red.0", round == 0))
		took[1] = append(took[1], handoff(t, m, b, a, "red.1", round == 0))
	}
	t.Logf("Redisson after hasp %v, hasp after Redisson %v", median(took[0]), median(took[1]))
	for _, s := range []side{a, b} {
		for n := range 2 {
			s.order(fmt.Sprint("count", n), "count red sum.lock %d 60000 sum", pick(250, 10))
		}
	}
	for _, s := range []side{a, b} {
		for n := range 2 {
			s.says(fmt.Sprint("count", n), "counted")
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	defer rdb.Close()
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
		{"Redisson's", start(t, java, longTTL, c.rdb.Options().Addr).ready(), c.hasp[1], said},
	} {
		key := "dead." + d.dead.name
		holder.does("a", "locked", "lock fair %s -1", key)
		d.dead.order("b", "lock fair %s %d", key, d.wait.Milliseconds())
		queued(t, c.rdb, key, 1)
		d.dead.kill()
		d.next.order("c", "lock fair %s -1", key)
		queued(t, c.rdb, key, 2)
		left := holder.does("a", "unlocked", "unlock fair %s", key)[0]
		got := d.next.says("c", "locked")[0]
		t.Logf("%s waiter is dead at the head of the queue: the next, of %s, has the lock %v after the unlock", d.who, d.next.name, since(left, got))
	}
}
