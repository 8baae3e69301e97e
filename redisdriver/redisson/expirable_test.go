// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/redis/go-redis/v9"
)

const forever = 922337203685477

// java puts a permit where Redisson's acquire does, without asking whether one is free.
func (w *world) javaPermit(id byte, ends float64) (permit string) {
	w.Helper()
	raw := strings.Repeat(string([]byte{id}), 16)
	w.succeeds(w.admin.DecrBy(w.ctx, "k", 1).Err())
	w.succeeds(w.admin.ZAdd(w.ctx, "{k}:timeout", redis.Z{Score: ends, Member: raw}).Err())
	return hex.EncodeToString([]byte(raw))
}

func (w *world) now() float64 {
	w.Helper()
	at, err := w.admin.Time(w.ctx).Result()
	w.succeeds(err)
	return float64(at.UnixMilli())
}

// Permits are Redisson's: 16 bytes in a sorted set, by the end of their leases.
func TestExpirableLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.synchronizers(w.client("")).PermitExpirableSemaphore("k")
	next, number := w.messages(scK), must[int](t)
	if !must[bool](t)(m.TrySetPermits(w.ctx, 3)) || must[bool](t)(m.TrySetPermits(w.ctx, 4)) || next() != "3" {
		t.Error("TrySetPermits")
	}
	w.do("PEXPIRE", "k", 3_600_000)
	begun := w.now()
	endless, err := m.Acquire(w.ctx, 0)
	w.succeeds(err)
	leased, err := m.TryAcquire(w.ctx, time.Hour)
	w.succeeds(err)
	for id, least := range map[string]float64{endless: forever, leased: begun + 3_600_000} {
		raw, err := hex.DecodeString(id)
		if err != nil || len(raw) != 16 || id != strings.ToLower(id) {
			t.Errorf("%q is no permit of Redisson's: %v", id, err)
		}
		if got := w.admin.ZScore(w.ctx, "{k}:timeout", string(raw)).Val(); got < least || got > max(least, w.now()+3_600_000) {
			t.Errorf("%s ends at %f, want %f", id, got, least)
		}
	}
	if left := w.admin.PTTL(w.ctx, "{k}:timeout").Val(); left <= 0 || left > time.Hour {
		t.Errorf("the permits last for %v, and the semaphore for an hour", left)
	}
	java := w.javaPermit(7, begun+3_600_000)
	if a, b := number(m.Available(w.ctx)), number(m.Acquired(w.ctx)); a != 0 || b != 3 {
		t.Errorf("%d are free, %d acquired", a, b)
	}
	if id, err := m.TryAcquire(w.ctx, 0); id != "" || err != nil {
		t.Errorf("of none %q, %v", id, err)
	}
	w.succeeds(m.Release(w.ctx, java)) // of Java's: who has the id has the permit
	w.succeeds(m.Release(w.ctx, strings.ToUpper(leased)))
	if a, b := next(), next(); a != "1" || b != "2" {
		t.Errorf("the messages are %s, %s", a, b)
	}
	for _, id := range []string{java, "ff", "", strings.Repeat("g", 32)} {
		if err := m.Release(w.ctx, id); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("a release of %q: %v", id, err)
		}
	}
	if n := number(m.Available(w.ctx)); n != 2 {
		t.Errorf("%d are free", n)
	}
	if got := everything(t, w.admin); len(got) != 2 {
		t.Errorf("there are %q", got)
	}
}

// Several permits are acquired and released all together, or not at all.
func TestExpirableMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.synchronizers(w.client("")).PermitExpirableSemaphore("k")
	free := func() int { return must[int](t)(m.Available(w.ctx)) }
	w.succeeds(m.AddPermits(w.ctx, 3))
	if ids, err := m.TryAcquireMany(w.ctx, 4, 0); ids != nil || err != nil {
		t.Fatalf("four of three: %v, %v", ids, err)
	}
	ids, err := m.AcquireMany(w.ctx, 2, time.Hour)
	if w.succeeds(err); len(ids) != 2 || free() != 1 {
		t.Fatalf("%v, and %d are free", ids, free())
	}
	if err := m.Release(w.ctx, ids[0], strings.Repeat("0", 32)); !errors.Is(err, driver.ErrNotHeld) || free() != 1 {
		t.Errorf("with one that is not acquired: %v, and %d are free", err, free())
	}
	w.succeeds(m.Release(w.ctx, ids[0], ids[0])) // counts once
	if free() != 2 {
		t.Errorf("%d are free", free())
	}
	w.succeeds(m.SetPermits(w.ctx, 10))
	if free() != 9 {
		t.Errorf("of 10, one of which is acquired, %d are free", free())
	}
	w.succeeds(m.SetPermits(w.ctx, 0))
	if free() != -1 {
		t.Errorf("of none, one of which is acquired, %d are free", free())
	}
	w.succeeds(m.Release(w.ctx))
	for _, n := range []int{0, 1001} {
		if _, err := m.AcquireMany(w.ctx, n, 0); err == nil {
			t.Errorf("%d at once", n)
		}
	}
	if _, err := m.Acquire(w.ctx, -1); err == nil {
		t.Error("a negative lease")
	}
}

// A permit whose lease is over is free again, and its id means nothing any more.
func TestExpirableLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.synchronizers(w.client("")).PermitExpirableSemaphore("k")
	w.succeeds(m.SetPermits(w.ctx, 2))
	id, err := m.Acquire(w.ctx, time.Hour)
	w.succeeds(err)
	left := func() time.Duration { return must[time.Duration](t)(m.LeaseLeft(w.ctx, id)) }
	if l := left(); l <= 30*time.Minute || l > time.Hour {
		t.Errorf("it lasts for %v", l)
	}
	w.succeeds(m.UpdateLease(w.ctx, id, 0))
	if l := left(); l != 0 {
		t.Errorf("without end it lasts for %v", l)
	}
	w.succeeds(m.UpdateLease(w.ctx, id, 1<<63-1))
	if l := left(); l < 200*365*24*time.Hour {
		t.Errorf("the longest lasts for %v", l)
	}
	w.succeeds(m.UpdateLease(w.ctx, id, time.Nanosecond))
	java := w.javaPermit(1, w.now()-1)
	next := w.messages(scK)
	w.until("both have ended", func() bool { return must[int](t)(m.Acquired(w.ctx)) == 0 })
	if n := must[int](t)(m.Available(w.ctx)); n != 2 {
		t.Errorf("%d are free", n)
	}
	for n := ""; n != "2"; n = next() { // one may end after the other
	}
	for _, id := range []string{id, java} {
		if err := m.Release(w.ctx, id); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		if err := m.UpdateLease(w.ctx, id, 0); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("UpdateLease: %v", err)
		}
		if _, err := m.LeaseLeft(w.ctx, id); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("LeaseLeft: %v", err)
		}
	}
	if n := must[int](t)(m.Available(w.ctx)); n != 2 {
		t.Errorf("%d are free", n)
	}
}

// A waiter is woken by a release, by that of Java's too, and asks when the first lease ends, of which no message tells.
func TestExpirableWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	m := s.PermitExpirableSemaphore("k")
	w.succeeds(m.SetPermits(w.ctx, 1))
	first, err := m.Acquire(w.ctx, 0)
	w.succeeds(err)
	w.joined(s, scK)
	var second string
	done := begin(func() (err error) { second, err = m.Acquire(w.ctx, time.Hour); return err })
	w.asleep(s, scK, 1)
	w.succeeds(m.Release(w.ctx, first))
	w.ends(done, nil)
	done = begin(func() error { _, err := m.Acquire(w.ctx, time.Hour); return err })
	w.asleep(s, scK, 1)
	raw, _ := hex.DecodeString(second)
	w.do("ZREM", "{k}:timeout", raw) // Java releases
	w.do("INCRBY", "k", 1)
	w.do("PUBLISH", scK, "1")
	w.ends(done, nil)

	w.do("ZADD", "{k}:timeout", w.now()+300, "0123456789abcdef") // of Java's that ends
	done = begin(func() error { _, err := m.AcquireMany(w.ctx, 1, time.Hour); return err })
	w.ends(done, nil)
}

// Where this user may not write one half of a permit, the other stays as it is.
func TestExpirableIsWrittenAsAWhole(t *testing.T) {
	t.Parallel()
	for _, denied := range []string{"zadd", "incrby", "zrem", "zremrangebyscore", "pexpire", "persist"} {
		t.Run(denied, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.do("ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-"+denied)
			for _, expiry := range []bool{false, true} {
				w.do("FLUSHALL")
				w.do("SET", "k", 5)
				if expiry {
					w.do("PEXPIRE", "k", 3_600_000)
				}
				java, ended := w.javaPermit(1, forever), ""
				whole := func() {
					t.Helper()
					free, held := must[int](t)(w.admin.Get(w.ctx, "k").Int()), int(w.admin.ZCard(w.ctx, "{k}:timeout").Val())
					if free+held != 5 {
						t.Errorf("%d are free, %d held, of 5 (expiry: %v, ended: %v)", free, held, expiry, ended != "")
					}
				}
				m := w.synchronizers(w.client("u")).PermitExpirableSemaphore("k")
				for range 2 {
					for range 3 {
						_, _ = m.TryAcquireMany(w.ctx, 1, time.Hour)
						whole()
					}
					_ = m.Release(w.ctx, java)
					whole()
					ended = w.javaPermit(2, 1)
				}
			}
		})
	}
}
