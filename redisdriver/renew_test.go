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
				if got := w.calls()["set"]; got != c.sets {
					t.Errorf("%s: %d locks were written as they are, want %d", c.name, got, c.sets)
				}
				for i, r := range c.of {
					if want := map[bool]error{true: driver.ErrNotHeld}[r.Key == other.Key]; !errors.Is(errs[i], want) {
						t.Errorf("%s: Renew of %s says %v, want %v", c.name, r.Key, errs[i], want)
					}
				}
				for key, was := range before {
					if got := w.admin.Get(w.ctx, "lock:"+key).Val(); got != was {
						t.Errorf("%s: the lock of %s became %q", c.name, key, got)
					}
					if left := w.admin.PTTL(w.ctx, "lock:"+key).Val(); left <= 0 {
						t.Errorf("%s: the lock of %s lasts for %v", c.name, key, left)
					}
				}
				if len(w.admin.Keys(w.ctx, "lock:*").Val()) != 2 {
					t.Errorf("%s: there is %q", c.name, w.keys())
				}
			}
		})
	}
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
			if errs := w.renew(d, r); errs[0] != nil {
				t.Errorf("Renew of %+v says %v", r, errs[0])
			}
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
	if !ok || x == 0 || x > last || of <= last || y <= of {
		t.Errorf("granted are %d, %d and %d, after %d", x, of, y, last)
	}
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
		if sets := w.calls()["set"]; sets != c.sets {
			t.Errorf("%s: it was written %d times as it is, want %d", c.name, sets, c.sets)
		}
		if c.stands == 0 {
			continue
		}
		if left := w.admin.PTTL(w.ctx, "k").Val(); left <= c.left && c.sets == 0 || left <= 0 {
			t.Errorf("%s: it lasts for %v", c.name, left)
		}
		if has := w.admin.Get(w.ctx, "k").Val(); has != c.has {
			t.Errorf("%s: it became %q", c.name, has)
		}
	}
}
