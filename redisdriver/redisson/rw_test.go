// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// What a read-write lock holds is what Redisson would have written.
func TestReadWriteLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(ReadWrite)
	a, b := ask("k"), shared(ask("k"))
	has := func(want map[string]string) {
		t.Helper()
		got := w.admin.HGetAll(w.ctx, "k").Val()
		failIf(t, len(got) != len(want), "the hash is %v, want %v", got, want)
		for k, v := range want {
			failIf(t, got[k] != v, "the hash is %v, want %v", got, want)
		}
	}
	w.grant(d, a)
	has(map[string]string{"mode": "write", fieldOf(a.Owner) + ":write": "1"})
	w.refuse(d, b, 0)
	w.release(d, a)
	has(nil)
	w.grant(d, b)
	has(map[string]string{"mode": "read", fieldOf(b.Owner): "1"})
	if ttl := w.admin.PTTL(w.ctx, "{k}:"+fieldOf(b.Owner)+":rwlock_timeout:1").Val(); ttl <= 0 || ttl > b.TTL {
		t.Errorf("its hold lasts for %v", ttl)
	}
	w.release(d, b)
	has(nil)
	if keys := w.admin.Keys(w.ctx, "*rwlock*").Val(); len(keys) != 0 {
		t.Errorf("left: %q", keys)
	}
}

// The lock lasts as long as the longest hold of those who are left, Java's nested ones among them.
func TestReadersWhoAreLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.readWrite(time.Hour)
	long, short := shared(ask("k")), shared(ask("k"))
	long.TTL, short.TTL = time.Hour, time.Minute
	w.grant(d, long)
	w.grant(d, short)
	w.do("HSET", "k", thread(1), 2)
	w.do("SET", "{k}:"+thread(1)+":rwlock_timeout:1", 1, "PX", 1000)
	w.do("SET", "{k}:"+thread(1)+":rwlock_timeout:2", 1, "PX", 600_000)
	w.release(d, long)
	if ttl := w.admin.PTTL(w.ctx, "k").Val(); ttl < 9*time.Minute || ttl > 10*time.Minute {
		t.Errorf("it lasts for %v", ttl)
	}
	info := w.inspect(d, "k")
	if info.Leases != 2 || info.Holder.Owner != short.Owner && info.Holders[1].Holder.Owner != short.Owner {
		t.Errorf("who has it: %+v", info)
	}
	w.release(d, short)
	failIf(t, w.admin.HGet(w.ctx, "k", "mode").Val() != "read", "it is free, and a thread of Java's reads")
	w.refuse(d, ask("k"), 0)
}

// A reader whose own hold has ended has no lease, although the lock lasts for others; it may have another.
func TestReaderWhoseHoldHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(ReadWrite)
	a, b := shared(ask("k")), shared(ask("k"))
	w.grant(d, a)
	w.grant(d, b)
	w.do("DEL", "{k}:"+fieldOf(a.Owner)+":rwlock_timeout:1")
	if r := w.renew(d, a); !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("its renewal: %+v", r)
	}
	if info := w.inspect(d, "k"); info.Leases != 1 || info.Holder.Owner != b.Owner {
		t.Errorf("who has it: %+v", info)
	}
	w.grant(d, a)
	w.do("DEL", "{k}:"+fieldOf(a.Owner)+":rwlock_timeout:1")
	if err := contend.Release(w.ctx, d, a); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("its release: %v", err)
	}
	w.release(d, b)
	w.grant(d, ask("k"))
}

// A Convert that is repeated promises what the hold of the reader lasts, however long the lock does for others.
func TestConvertIsRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.readWrite(time.Hour)
	a, other := ask("k"), shared(ask("k"))
	other.TTL = time.Hour
	w.grant(d, a)
	a = shared(a)
	a.Convert = true
	w.grant(d, a)
	w.grant(d, other)
	res := w.grant(d, a)
	if ttl := w.admin.PTTL(w.ctx, "{k}:"+fieldOf(a.Owner)+":rwlock_timeout:1").Val(); res.TTL > a.TTL || ttl < res.TTL-10*time.Second {
		t.Errorf("it promises %v, and the hold lasts for %v", res.TTL, ttl)
	}
}

// A writer that becomes a reader wakes those who wait to read.
func TestDowngradeWakesReaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(ReadWrite)
	a, b, c := ask("k"), shared(ask("k")), shared(ask("k"))
	w.grant(d, a)
	one, two := w.watch(d, b), w.watch(d, c)
	a = shared(a)
	a.Convert = true
	w.grant(d, a)
	w.hint(one)
	w.hint(two)
	w.grant(d, b)
	w.grant(d, c)
}

// What is no lock of this kind is held by a stranger, and stays as it is.
func TestOtherLayouts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, hash := range map[string][]any{
		"a lock":         {thread(1), 1},
		"something else": {"name", "x"},
		"many fields":    {},
		"a large count":  {"mode", "read", thread(1), "1000000000000000"},
	} {
		w.do("DEL", "k")
		if len(hash) == 0 {
			for i := range 1500 {
				hash = append(hash, i, 1)
			}
		}
		w.do(append([]any{"HSET", "k"}, hash...)...)
		before := w.admin.HGetAll(w.ctx, "k").Val()
		for _, kind := range []Kind{ReadWrite, Lock, Fair, Fenced} {
			d := w.driver(kind)
			w.refuse(d, ask("k"), 0)
			info := w.inspect(d, "k")
			failIf(t, !info.Held || !info.Holder.Foreign, "%s, as %v: %+v", name, kind, info)
			if r := ask("k"); !errors.Is(contend.Release(w.ctx, d, r), driver.ErrNotHeld) {
				t.Errorf("%s, as %v: released", name, kind)
			}
		}
		if after := w.admin.HGetAll(w.ctx, "k").Val(); len(after) != len(before) {
			t.Errorf("%s became %v", name, after)
		}
	}
}

// A hold of a reader that ends while another is released leaves no lock behind that nobody has.
func TestLastHoldEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.readWrite(time.Hour)
	for range 100 {
		a := shared(ask("k"))
		a.TTL = time.Hour
		w.grant(d, a)
		w.do("HSET", "k", thread(1), 1)
		w.do("SET", "{k}:"+thread(1)+":rwlock_timeout:1", 1, "PX", 1)
		w.release(d, a)
		if ttl := w.admin.PTTL(w.ctx, "k").Val(); ttl > time.Second {
			t.Fatalf("it lasts for %v", ttl)
		}
		w.do("DEL", "k")
	}
}

// What a stranger counted is looked at up to a bound: nobody else may wait for that.
func TestManyHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(ReadWrite)
	a := shared(ask("k"))
	w.grant(d, a)
	hash := []any{"HSET", "k"}
	for n := range 990 {
		hash = append(hash, thread(n), 1_000_000)
	}
	w.do(hash...)
	for what, act := range map[string]func(){
		"Inspect": func() { w.inspect(d, "k") }, "a release": func() { w.release(d, a) },
	} {
		w.do("CONFIG", "RESETSTAT")
		if act(); w.calls() > 10_000 {
			t.Errorf("%s took %d commands", what, w.calls())
		}
	}
	w.refuse(d, ask("k"), 0)
}

// A request with another label is another owner's.
func TestReaderWithAnotherLabel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(ReadWrite)
	a := shared(ask("k"))
	w.grant(d, a)
	other := a
	other.Label = "another"
	w.refuse(d, other, 0)
	if r := w.renew(d, a); r.Err != nil {
		t.Error(r.Err)
	}
}

// readWrite is a driver for programs in Java with this lockWatchdogTimeout.
func (w *world) readWrite(watchdog time.Duration) *Driver {
	d := New(w.client(""), &Options{Kind: ReadWrite, LockWatchdogTimeout: watchdog})
	w.Cleanup(func() { _ = d.Close() })
	return d
}

// Redisson's watchdog sets the end of the lock to its own time, whatever the other readers have. So no lease of ours may be longer, or a
// writer would be let in under it once the program in Java dies.
func TestWatchdogOfAReader(t *testing.T) {
	t.Parallel()
	const watchdog = time.Minute
	w := newWorld(t)
	d := w.readWrite(watchdog)
	reader, writer := shared(ask("k")), ask("k")
	reader.TTL = watchdog + 1
	if res := w.try(d, reader); res.Why != voting.TTLTooLong || res.TTL != watchdog {
		t.Errorf("a TTL of %v: %+v", reader.TTL, res)
	}
	if keys := everything(t, w.admin); len(keys) != 0 {
		t.Errorf("it left %q", keys)
	}
	reader.TTL = watchdog
	w.grant(d, reader)
	long := reader
	long.TTL++
	if r := w.renew(d, long); d.Classify(r.Err) != driver.ClassImpossible {
		t.Errorf("a renewal for %v: %+v", long.TTL, r)
	}
	java := "{k}:" + thread(1) + ":rwlock_timeout:1"
	w.do("HSET", "k", thread(1), 1)
	w.do("SET", java, 1, "PX", watchdog.Milliseconds())
	for range 3 { // Redisson's ReadLockTask, and Java dies
		if r := w.renew(d, reader); r.Err != nil {
			t.Fatal(r.Err)
		}
		w.do("PEXPIRE", java, watchdog.Milliseconds())
		w.do("PEXPIRE", "k", watchdog.Milliseconds())
	}
	own := "{k}:" + fieldOf(reader.Owner) + ":rwlock_timeout:1"
	lock, hold := w.admin.PExpireTime(w.ctx, "k").Val(), w.admin.PExpireTime(w.ctx, own).Val()
	failIf(t, hold <= 0 || lock < hold, "the lock ends %v before the hold of a reader", hold-lock)
	w.refuse(d, writer, 0)
}

// A client refuses what is longer before it asks anybody.
func TestLeaseLongerThanTheWatchdogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, err := hasp.New(w.driver(ReadWrite), nil) // for Redisson's default
	w.succeeds(err)
	defer c.Close()
	if most := c.Traits().MaxTTL; most != DefaultLockWatchdogTimeout {
		t.Errorf("the longest TTL is %v", most)
	}
	for name, l := range map[string]func(*hasp.LockOptions) hasp.Locker{
		"a writer": func(o *hasp.LockOptions) hasp.Locker { return c.RWMutex("k", o) },
		"a reader": func(o *hasp.LockOptions) hasp.Locker { return c.RWMutex("k", o).RLocker() },
	} {
		for _, lock := range []func(context.Context) (*hasp.Lease, error){
			l(&hasp.LockOptions{TTL: time.Minute}).Lock, l(&hasp.LockOptions{TTL: time.Minute}).TryLock,
		} {
			if _, err := lock(w.ctx); err == nil {
				t.Fatalf("%s has a lease of a minute", name)
			}
		}
		if n := w.scripts(); n != 0 {
			t.Errorf("%s asked the server", name)
		}
	}
	lease, err := c.RWMutex("k", nil).RLock(w.ctx)
	w.succeeds(err)
	defer func() { _ = lease.Release() }()
	if err := lease.Extend(w.ctx, time.Minute); err == nil || lease.Err() != nil {
		t.Errorf("Extend to a minute: %v, and the lease: %v", err, lease.Err())
	}
	w.succeeds(lease.Extend(w.ctx, DefaultLockWatchdogTimeout))
}

// Where the hold of a reader cannot be written there is no lock, which would never end.
func TestHoldThatIsDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-set")
	d := w.over(w.client("u"), ReadWrite)
	if _, err := contend.Try(w.ctx, d, shared(ask("k"))); d.Classify(err) != driver.ClassDenied || w.admin.Exists(w.ctx, "k").Val() != 0 {
		t.Errorf("%v, and there are %q", err, everything(t, w.admin))
	}
	a := ask("k")
	w.grant(d, a)
	a = shared(a)
	a.Convert = true
	if _, err := contend.Try(w.ctx, d, a); d.Classify(err) != driver.ClassDenied || w.admin.HGet(w.ctx, "k", "mode").Val() != "write" {
		t.Errorf("%v, and the mode is %q", err, w.admin.HGet(w.ctx, "k", "mode").Val())
	}
}
