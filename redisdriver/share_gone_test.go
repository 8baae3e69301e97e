// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// More leases than one script ends: the mark of one of the last is not lost
// when the lock is deleted by hand.
func TestMarkBehindManySharers(t *testing.T) {
	w, d := newPlain(t)
	for range 1001 {
		w.grant(d, reader("k"))
	}
	w.on(d).grant(sharer("k", 5000)).do("DEL", "lock:k")
	writer := ask("k")
	w.until("all are over", func() bool {
		res := w.try(d, writer)
		stopIf(t, res.Granted && !res.Abandoned, "the mark is gone")
		return res.Granted
	})
}

// A peer takes the key of an expired lease: its late release leaves the mark.
func TestMarkBesideAPeer(t *testing.T) {
	w, d := newPlain(t)
	a := sharer("k", 3)
	a.TTL = 50 * time.Millisecond
	w.grant(d, a)
	w.until("the lease is over", func() bool { return w.admin.Exists(w.ctx, "lock:k").Val() == 0 })
	w.do("SET", "lock:k", "peer")
	w.releasesNothing(seen(d), a)
	w.do("DEL", "lock:k")
	failIf(t, !w.grant(d, ask("k")).Abandoned, "the mark is gone")
}

// A vote can be withdrawn also after the key's largest fence was evicted.
func TestShareWithoutItsGrant(t *testing.T) {
	w, d := newVoting(t)
	a := reader("k")
	a.Fence = w.micros()
	w.on(d).grant(a).do("DEL", "hasp.grant:{lock:k}")
	a.Settled, a.UpTo = true, a.Fence
	w.release(d, a)
	failIf(t, w.inspect(d, "k").Held, "the lease stands")
}

// So can one that its owner has alone; and the key goes on to one that proposes.
func TestVoteWithoutItsGrant(t *testing.T) {
	w, d := newVoting(t)
	a, b := proposing("k", w.micros()), proposing("k", 1)
	w.on(d).grant(a).wait(b).do("DEL", "hasp.grant:{lock:k}")
	a.UpTo = a.Fence
	w.on(d).release(a).has(b)
	b.Fence = w.micros()
	w.grant(d, b)
}

// A vote is not renewed after the key's largest fence was evicted: nobody knows whether it
// still is the one that was granted.
func TestRenewalOfAVoteWithoutItsGrant(t *testing.T) {
	w, d := newVoting(t)
	a := proposing("k", w.micros())
	w.on(d).grant(a).renew(a).do("DEL", "hasp.grant:{lock:k}")
	w.renewsNothing(d, a)
}

// The leases beside a shared lock that are those of another sharing count for nothing:
// nobody knows who shares the key.
func TestLeasesOfAnotherSharing(t *testing.T) {
	for _, kind := range []string{"reader", "semaphore", "node"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			d, a, b := w.driver(nil), reader("k"), reader("k")
			switch kind {
			case "semaphore":
				a.Limit, b.Limit = 3, 3
			case "node":
				d = w.node()
				w.admit(d)
				a.Fence, b.Fence = w.micros(), w.micros()
			}
			w.on(d).grant(a).do("HSET", "hasp.held:{lock:k}", "!", w.micros())
			if info := w.inspect(d, "k"); !info.Held || info.Leases != 1 || len(info.Holders) != 1 || info.Holders[0].Holder.Owner != "" {
				t.Errorf("Inspect says %+v", info)
			}
			w.renewsNothing(d, a)
			for _, r := range []contend.Owner{a, b, ask("k")} {
				if res := w.refuse(d, r); res.Holder.Owner != "" {
					t.Errorf("refused by %+v", res.Holder)
				}
			}
			a.Settled = true
			w.releasesNothing(d, a)
			if info := w.inspect(d, "k"); !info.Held {
				t.Error("the key is free")
			}
		})
	}
}

// A lock that a person made permanent keeps its leases: the Try that a
// conversion overtook does not join the queue.
func TestLateTryAtAPermanentLock(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	w.grant(d, a)
	late := a
	w.do("PERSIST", "lock:k")
	a = w.convert(d, a)
	w.on(d).do("ZADD", "hasp.shares:{lock:k}", 1, value(a.Claim())).join(late)
	if n := w.inspect(d, "k").Waiters; n != 0 {
		t.Errorf("%d wait", n)
	}
	w.release(d, a)
	failIf(t, w.inspect(d, "k").Held, "the key was handed to who released it")
}

// A foreign client took the lock of those who shared the key: their leases are over, and
// its lock stays.
func TestForeignLockInPlaceOfASharedOne(t *testing.T) {
	for _, px := range []time.Duration{0, time.Minute} {
		w, d := newPlain(t)
		a := reader("k")
		w.on(d).grant(a, reader("k"))
		w.admin.Set(w.ctx, "lock:k", "somebody", px)
		if res := w.refuse(d, ask("k")); !res.Holder.Foreign {
			t.Errorf("refused by %+v", res.Holder)
		}
		if n := w.admin.ZCard(w.ctx, "hasp.shares:{lock:k}").Val(); n != 0 {
			t.Errorf("%d leases beside a lock that is not shared, with an expiry of %v", n, px)
		}
		if got := w.admin.Get(w.ctx, "lock:k").Val(); got != "somebody" {
			t.Errorf("the lock is %q", got)
		}
	}
}

// A shared lock that outlasts its leases is free.
func TestSharedLockOutlastsItsLeases(t *testing.T) {
	w, d := newPlain(t)
	for range 2 {
		a := reader("k")
		w.on(d).grant(a).do("ZADD", "hasp.shares:{lock:k}", 1, value(a.Claim()))
	}
	b := ask("k")
	w.grant(d, b)
	if info := w.inspect(d, "k"); info.Leases != 1 || w.holder(d, "k") != b.Owner {
		t.Errorf("held by %+v", info.Holders)
	}
}

// A lease that is shared is over when its expiry is past, and when half of it is gone.
func TestHalfOfASharedLease(t *testing.T) {
	for _, half := range [][]any{{"ZREM", "hasp.shares:{lock:k}"}, {"HDEL", "hasp.held:{lock:k}"}, {"ZADD", "hasp.shares:{lock:k}", 1}} {
		w, d := newPlain(t)
		a := reader("k")
		w.grant(d, reader("k"))
		fence := w.grant(d, a).Fence
		w.do(append(half, value(a.Claim()))...)
		if errs := w.renew(d, a); !errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("after %v Renew says %v", half, errs)
		}
		if again := w.grant(d, a).Fence; again <= fence {
			t.Errorf("after %v it is granted with the fence %d again after %d", half, again, fence)
		}
	}
}

// Without the expiries of all, nobody shares the key with those that nobody knows.
func TestExpiriesOfAllAreGone(t *testing.T) {
	w, d := newPlain(t)
	w.on(d).grant(reader("k")).do("DEL", "hasp.shares:{lock:k}").refuse(reader("k"), ask("k"))
}

// A holder whose grant record is gone cannot let others in: nobody knows its fence.
func TestConvertWithoutItsGrant(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	w.on(d).grant(a).do("DEL", "hasp.grant:{lock:k}")
	a.Mode, a.Convert = driver.Shared, true
	w.refuse(d, a)
}

// What stands beside a shared lock outlasts it: what a repeated Try prolongs, and a grant
// that had gone.
func TestWhatStandsBesideASharedLockOutlastsIt(t *testing.T) {
	w, d := newPlain(t)
	short := func(r contend.Owner) contend.Owner {
		r.TTL = 10 * time.Second
		return r
	}
	a, b := sharer("k", 2), sharer("k", 2)
	w.on(d).grant(short(a), a)
	lasts := func(when string, keys ...string) {
		t.Helper()
		lock := w.admin.PTTL(w.ctx, "lock:k").Val()
		for _, key := range keys {
			if left := w.admin.PTTL(w.ctx, "hasp."+key+":{lock:k}").Val(); left < lock || lock < 20*time.Second {
				t.Errorf("%s %s goes after %v, the lock after %v", when, key, left, lock)
			}
		}
	}
	lasts("after a repeated Try", "shares", "held", "room", "grant")
	w.on(d).do("DEL", "hasp.grant:{lock:k}").grant(short(b))
	lasts("after a Try without the grant", "shares", "held", "room", "grant")
}

// A reader takes a key whose lock was deleted by hand, and one whose grant was evicted; and
// it is given as many fences as it asks for.
func TestReaderOfWhatIsLeft(t *testing.T) {
	w, d := newPlain(t)
	w.grant(d, reader("k"))
	for _, gone := range []string{"lock:k", d.names("k").grant} {
		w.do("DEL", gone)
		if res := w.grant(d, reader("k")); res.Fences != 1 {
			t.Errorf("granted with %+v", res)
		}
	}
	for _, key := range []string{"k", "free"} {
		r := reader(key)
		r.Fences = 3
		if res := w.grant(d, r); res.Fences != 3 {
			t.Errorf("granted with %+v", res)
		}
	}
}

// What was beside a shared lock that is gone goes with the next holder.
func TestNothingStaysOfALostSharing(t *testing.T) {
	w, d := newPlain(t)
	for range 2 {
		w.grant(d, sharer("k", 3))
	}
	w.do("DEL", "lock:k")
	a := ask("k")
	a.Settled = true
	failIf(t, !w.grant(d, a).Abandoned, "nobody is told")
	w.release(d, a)
	if keys := w.ofKey(); len(keys) != 0 {
		t.Errorf("left are %q", keys)
	}
}

// A handoff beside a sharer is looked after when its claim time is over, not when the lease
// of the other ends.
func TestHandoffBesideASharerIsLookedAfter(t *testing.T) {
	w := newWorld(t)
	d, other := hasty(w.driver(nil)), w.driver(nil)
	a, b, c := sharer("k", 2), sharer("k", 2), sharer("k", 2)
	c.TTL = time.Second // and so is its claim time
	w.on(d).grant(a, b).wait(c).on(other).wait(ask("k"))
	sub, claim := w.news(other), time.Duration(w.claimTime(d, c))*time.Millisecond
	w.release(d, a)
	if m, ok := other.parseHint(w.came(sub)); !ok || m.after <= 0 || m.after > claim+time.Second {
		t.Errorf("a hint %v, %+v, and the claim time is %v", ok, m, claim)
	}
}

// Who asks again for a shorter time still has what it was granted before.
func TestAskingAgainForLess(t *testing.T) {
	w, d := newPlain(t)
	for _, a := range []contend.Owner{ask("k"), reader("r"), sharer("s", 3)} {
		w.grant(d, a)
		a.TTL = time.Second
		if res := w.grant(d, a); res.TTL < 20*time.Second {
			t.Errorf("%s: granted for %v", a.Key, res.TTL)
		}
	}
}
