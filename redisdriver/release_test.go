// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/redis/go-redis/v9"
)

// The answer to a hint for nobody gives the key to the next.
func TestHandoffToNobodyGoesOn(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.on(d).grant(a).wait(b, c).release(a)
	if err := w.unclaimed(d, b); err != nil {
		t.Errorf("the handoff is not given up: %v", err)
	}
	w.has(d, c)
}

// An unclaimed lease that is over is a place, also where more leases are over than one
// script ends.
func TestReleaseOfAPlaceBehindManyLeases(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := reader("k"), reader("k"), reader("k")
	w.grant(d, a)
	n := d.names("k")
	held := w.admin.HGet(w.ctx, n.held, value(a.Claim())).Val()
	pipe := w.admin.Pipeline()
	for i := range 1100 {
		pipe.ZAdd(w.ctx, n.shares, redis.Z{Score: 1, Member: fmt.Sprint(i)})
		pipe.HSet(w.ctx, n.held, fmt.Sprint(i), held)
	}
	pipe.ZAdd(w.ctx, n.shares, redis.Z{Score: 2, Member: value(b.Claim())})
	pipe.HSet(w.ctx, n.held, value(b.Claim()), strings.Replace(held, " h ", " c ", 1)+
		fmt.Sprintf(" 1 %013d 10000 100 nS0 %s", w.micros()/1000, d.inboxName()))
	pipe.ZAdd(w.ctx, n.shares, redis.Z{Score: 3, Member: value(c.Claim())})
	pipe.HSet(w.ctx, n.held, value(c.Claim()), held)
	_, err := pipe.Exec(w.ctx)
	w.succeeds(err)
	many := w.admin.Dump(w.ctx, n.shares).Val()
	w.releasesNothing(seen(d), c)
	w.on(d).do("RESTORE", n.shares, 60000, many, "REPLACE").release(b)
}

// What a holder did not finish goes with its record, and leaves nothing that never expires.
func TestUnfinishedWithoutARecord(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	a.End = driver.EndUnfinished
	w.on(d).grant(a).do("DEL", d.names("k").grant).release(a)
	if keys := permanent(t, w.admin); len(keys) != 0 {
		t.Errorf("these never expire: %q", keys)
	}
}

// When a place is given up, the next gets a hint, and nobody else.
func TestReleaseOfAPlaceHintsTheNext(t *testing.T) {
	w := newWorld(t)
	d, next, last := w.driver(nil), w.driver(nil), w.driver(nil)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.on(d).grant(ask("k")).wait(a).on(next).wait(b).on(last).wait(c)
	others := w.news(last)
	hints := w.news(next)
	w.release(d, a)
	if m, ok := next.parseHint(w.came(hints)); !ok || m.after != 0 {
		t.Errorf("the next got a hint: %v, %+v", ok, m)
	}
	w.do("PUBLISH", last.inboxName(), "end")
	if m := w.came(others); m != "end" {
		t.Errorf("the last got %q", m)
	}
}

// A place that is given up before one whose waiter is gone leaves nobody to get a hint.
func TestReleaseOfAPlaceBeforeADeadOne(t *testing.T) {
	w, d := newPlain(t)
	n, b, dead := d.names("k"), ask("k"), ask("k")
	w.on(d).grant(ask("k")).wait(b).do("ZADD", n.queue, 5, value(dead.Claim())).
		do("HSET", n.places, dead.Owner, "0000000000001 10000 500 n hasp.inbox:dead").release(b)
	if w.admin.Exists(w.ctx, n.queue).Val() != 0 {
		t.Errorf("in the queue are still %v", w.admin.ZRange(w.ctx, n.queue, 0, -1).Val())
	}
}

// Who releases on behalf of nobody has released nothing, also when it may not tell the next.
func TestMuteReleaseOfNothing(t *testing.T) {
	w := newWorld(t)
	mute, d := w.as("bob", "-publish"), w.driver(nil)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).do("DEL", "lock:k")
	w.releasesNothing(mute, ask("k"))
}

// When one of two sharers leaves, the first in the queue gets a hint if that was the one
// whose lease ends last.
func TestReleaseBesideAnotherSharer(t *testing.T) {
	const end = 20 * time.Minute // of the lease that stands
	for leaves, want := range map[time.Duration]bool{10 * time.Minute: false, 30 * time.Minute: true} {
		w, d, other := newTwo(t)
		a, b, writer := reader("k"), reader("k"), ask("k")
		a.TTL, b.TTL = leaves, end
		w.on(d).grant(a, b).on(other).wait(writer)
		sub := w.news(other)
		w.on(d).release(a).do("PUBLISH", other.inboxName(), "end")
		m, hint := other.parseHint(w.came(sub))
		if hint != want || hint && (m.after < end/2 || m.after > end+time.Second) {
			t.Errorf("a lease of %v was given up: hint %v, %+v", leaves, hint, m)
		}
	}
}

// A reader's lease that is over cannot be released any more, beside one that stands.
func TestReleaseOfAnExpiredReader(t *testing.T) {
	w, d := newPlain(t)
	a, b := reader("k"), reader("k")
	b.TTL, b.Settled = 50*time.Millisecond, true
	w.on(d).grant(a, b)
	ends := w.admin.ZScore(w.ctx, d.names("k").shares, value(b.Claim())).Val()
	w.until("it is over", func() bool { return float64(w.micros()/1000) > ends })
	w.releasesNothing(seen(d), b)
}

// Nor can half a lease.
func TestReleaseOfHalfALease(t *testing.T) {
	w, d := newPlain(t)
	a, b := reader("k"), reader("k")
	b.Settled = true
	w.on(d).grant(a, b).do("ZREM", d.names("k").shares, value(b.Claim()))
	w.releasesNothing(seen(d), b)
}

// That a sharer did not finish is remembered until somebody is told, whoever leaves in between.
func TestSharerThatDiedIsRemembered(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := sharer("k", 3), sharer("k", 3), sharer("k", 3)
	for _, r := range []contend.Owner{a, b, c} {
		w.grant(d, r)
	}
	w.do("ZADD", d.names("k").shares, "XX", w.micros()/1000-1, value(a.Claim())) // its lease is over
	w.release(d, b)
	if res := w.grant(d, sharer("k", 3)); !res.Abandoned {
		t.Error("nobody is told")
	}
}

// What is known of a shared key lasts as long as the leases, also once its grant was evicted.
func TestGrantThatWasEvicted(t *testing.T) {
	w, d := newPlain(t)
	a, b := sharer("k", 3), sharer("k", 3)
	b.End = driver.EndUnfinished
	w.on(d).grant(a, b)
	grant := d.names("k").grant
	w.on(d).do("DEL", grant).release(b)
	if left := w.admin.PTTL(w.ctx, grant).Val(); left < 9*time.Minute {
		t.Errorf("it is known for %v", left)
	}
}

// A handoff that nobody claimed in time is a place, which a node has to release, too.
func TestNodeReleasesALapsedHandoff(t *testing.T) {
	for name, ask := range map[string]func(string) contend.Owner{"alone": ask, "shared": reader} {
		t.Run(name, func(t *testing.T) {
			w, d := newVoting(t)
			a, b := proposing("k", w.micros()), ask("k")
			b.Fence, b.Settled = 1, true
			w.on(d).grant(a).wait(b).release(a).has(b).do("DEL", "lock:k").release(b)
			if info := w.inspect(d, "k"); info.Waiters > 0 || info.Held {
				t.Errorf("it left %+v", info)
			}
		})
	}
}
