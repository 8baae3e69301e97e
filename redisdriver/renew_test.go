// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// A renewal writes, so that replicas that confirm it confirm the leases; where there is
// nothing to prolong, it writes a lock as it is, once. So does one as Exclusive that a Try which converted has overtaken.
func TestRenewalWritesSomething(t *testing.T) {
	const x, s = driver.Exclusive, driver.Shared
	for _, modes := range [][2]driver.Mode{{x, x}, {s, s}, {s, x}} { // of the lease, and of its renewal
		t.Run(fmt.Sprint(modes), func(t *testing.T) {
			w, d := newPlain(t)
			a, b, other := ask("a"), ask("b"), ask("other")
			for _, r := range []*contend.Owner{&a, &b, &other} {
				r.Mode, r.TTL = modes[0], time.Minute
			}
			const lower, upper = 30 * time.Second, time.Hour // than the TTL
			w.on(d).grant(a, b)
			a.Mode, b.Mode, other.Mode = modes[1], modes[1], modes[1]
			for _, c := range []struct {
				name         string
				of           []contend.Owner
				leftA, leftB time.Duration
				sets         int
			}{
				{"nothing to prolong", []contend.Owner{a}, upper, upper, 1},
				{"nothing of two", []contend.Owner{a, b}, upper, upper, 1},
				{"nothing behind one that is not held", []contend.Owner{other, a}, upper, upper, 1},
				{"prolonged", []contend.Owner{a}, lower, upper, 0},
				{"the first is", []contend.Owner{a, b}, lower, upper, 0},
				{"the second is", []contend.Owner{a, b}, upper, lower, 0},
				{"not held", []contend.Owner{other}, upper, upper, 0},
			} {
				w.do("PEXPIRE", "lock:a", c.leftA.Milliseconds())
				w.do("PEXPIRE", "lock:b", c.leftB.Milliseconds())
				before := map[string]string{}
				for _, key := range []string{"a", "b"} {
					before[key] = w.admin.Get(w.ctx, "lock:"+key).Val()
				}
				w.do("CONFIG", "RESETSTAT")
				errs := w.renew(d, c.of...)
				got := w.calls()["set"]
				failIf(t, got != c.sets, "%s: %d locks were written as they are, want %d", c.name, got, c.sets)
				for i, r := range c.of {
					want := map[bool]error{true: driver.ErrNotHeld}[r.Key == other.Key]
					failIf(t, !errors.Is(errs[i], want), "%s: Renew of %s says %v, want %v", c.name, r.Key, errs[i], want)
				}
				for key, was := range before {
					got, left := w.admin.Get(w.ctx, "lock:"+key).Val(), w.admin.PTTL(w.ctx, "lock:"+key).Val()
					failIf(t, got != was || left <= 0, "%s: the lock of %s became %q, and lasts for %v", c.name, key, got, left)
				}
				failIf(t, len(w.admin.Keys(w.ctx, "lock:*").Val()) != 2, "%s: there is %q", c.name, w.keys())
			}
		})
	}
}

// A renewal has the grant last for longer, and those after it go without it: while it was answered, of that fence, and leaves
// half of what is to spare.
func TestGrantsLast(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	a.TTL = 30 * time.Second
	a.Fence = w.grant(d, a).Fence
	earlier, long := a, a
	earlier.Fence--
	long.TTL = spare + time.Second
	for i, c := range []struct {
		r                 contend.Owner
		passed, prolonged time.Duration // since the latest that prolonged the grant; by how much more than the lease
	}{
		{a, 0, keep + spare}, {a, 0, 0}, {a, spare/2 - time.Minute/2, 0}, {a, 28 * time.Second, keep + spare}, {a, 0, 0},
		{earlier, 0, keep + spare}, {a, 0, keep + spare}, {a, 0, 0}, {long, 0, keep}, {long, 0, keep}, {a, 0, keep + spare}, {a, 0, 0},
	} {
		of := d.leases.all[a.Claim().ID()]
		of.lasts -= c.passed
		d.leases.all[a.Claim().ID()] = of
		w.do("PEXPIRE", "hasp.grant:{lock:k}", keep.Milliseconds())
		begun := time.Now()
		w.renewed(d, c.r)
		left := w.admin.PTTL(w.ctx, "hasp.grant:{lock:k}").Val()
		failIf(t, c.prolonged == 0 && left > keep || c.prolonged > 0 && !lasts(left, c.r.TTL+c.prolonged, begun), "renewal %d: the grant lasts for %v", i, left)
	}
	w.do("DEL", "lock:k")
	w.renewsNothing(d, a)
}

// A node grants, and renews for, the longest TTL that it allows, and not for more.
func TestLongestTTLOfANode(t *testing.T) {
	w, d := newVoting(t)
	for _, propose := range []bool{false, true} {
		for _, r := range []contend.Owner{ask("a"), reader("b")} {
			r.Key += fmt.Sprint(propose)
			r.TTL = nodeMaxTTL
			if propose {
				r.Fence = w.micros()
			}
			w.on(d).grant(r, r) // again
			err := w.renew(d, r)[0]
			failIf(t, err != nil, "Renew of %+v says %v", r, err)
		}
	}
}

// In company, a fence is above its key's although those before it were minted below that.
func TestFencesInCompanyOfAKeyAhead(t *testing.T) {
	w, d := newPlain(t)
	const ahead = uint64(time.Hour / time.Microsecond)
	a := reader("ahead")
	w.on(d).grant(a).do("SET", markKey, w.micros()+ahead, "EX", 60)
	last := w.grant(d, reader("ahead")).Fence
	w.do("DEL", markKey) // as when it was evicted
	calls := w.together(d, tries(d, ask("x"), sharer("ahead", 5), ask("y"))...)
	x, _ := granted(calls[0])
	of, ok := granted(calls[1])
	y, _ := granted(calls[2])
	failIf(t, !ok || x == 0 || x > last || of <= last || y <= of, "granted are %d, %d and %d, after %d", x, of, y, last)
}

// While a slot moves, each Redis key of a lease is prolonged by itself: if it begins as it
// should, and with a write in any case.
func TestOneKeyIsProlonged(t *testing.T) {
	w, d := newPlain(t)
	const ttl = time.Minute
	for _, c := range []struct {
		name, has, begins string
		length            int
		left              time.Duration
		stands            int64
		sets              int
	}{
		{"the whole value", "owner label", "owner label", -1, time.Second, 1, 0},
		{"its beginning", "owner fence ms", "owner", 5, time.Second, 1, 0},
		{"nothing to prolong", "owner label", "owner label", -1, time.Hour, 1, 1},
		{"a longer value", "owner label", "owner", -1, time.Second, 0, 0},
		{"another owner", "other label", "owner", 5, time.Second, 0, 0},
		{"nothing", "", "owner", 5, time.Second, 0, 0},
		{"another type", "list", "owner", 5, time.Second, 0, 0},
	} {
		w.do("DEL", "k")
		switch c.has {
		case "":
		case "list":
			w.do("LPUSH", "k", "x")
		default:
			w.do("SET", "k", c.has)
		}
		w.do("PEXPIRE", "k", c.left.Milliseconds())
		w.do("CONFIG", "RESETSTAT")
		got, err := d.send.Do(w.ctx, bearing("k", c.begins, c.length, ttl.Milliseconds()))
		failIf(t, err != nil || got != c.stands, "%s: %v, %v, want %d", c.name, got, err, c.stands)
		sets := w.calls()["set"]
		failIf(t, sets != c.sets, "%s: it was written %d times as it is, want %d", c.name, sets, c.sets)
		if c.stands == 0 {
			continue
		}
		left, has := w.admin.PTTL(w.ctx, "k").Val(), w.admin.Get(w.ctx, "k").Val()
		failIf(t, left <= c.left && sets == 0 || left <= 0 || has != c.has, "%s: it became %q, and lasts for %v", c.name, has, left)
	}
}
