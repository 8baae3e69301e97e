// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// calls counts the commands that the server carried out, within scripts, too.
func (w *world) calls() (n int64) {
	w.Helper()
	for _, line := range strings.Split(w.admin.Info(w.ctx, "commandstats").Val(), "\r\n") {
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			var one int64
			for _, c := range rest {
				if c < '0' || c > '9' {
					break
				}
				one = 10*one + int64(c-'0')
			}
			n += one
		}
	}
	return n
}

// A configuration that cannot work is reported without I/O, and by each method.
func TestConfiguration(t *testing.T) {
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer away.Close()
	for name, d := range map[string]*Driver{
		"no client":     New(nil, nil),
		"a ring":        New(redis.NewRing(&redis.RingOptions{}), nil),
		"no such kind":  New(away, &Options{Kind: 4}),
		"hasp's prefix": New(away, &Options{Prefix: "hasp.x"}),
		"a watchdog":    New(away, &Options{Kind: Fair, LockWatchdogTimeout: time.Minute}),
		"a short one":   New(away, &Options{Kind: ReadWrite, LockWatchdogTimeout: time.Millisecond}),
		"a negative":    New(away, &Options{Kind: ReadWrite, LockWatchdogTimeout: -time.Minute}),
	} {
		if err := d.Check(); err == nil || d.Classify(err) != driver.ClassImpossible {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := contend.Try(t.Context(), d, ask("k")); d.Classify(err) != driver.ClassImpossible {
			t.Errorf("%s: Try says %v", name, err)
		}
		_ = d.Close()
	}
	for kind := range Kind(len(kinds)) {
		d := New(away, &Options{Kind: kind})
		if most := d.Traits().MaxTTL; (most != 0) != (kind == ReadWrite) { // only there the watchdog touches what is another's
			t.Errorf("%v: the longest TTL is %v", kind, most)
		}
		if got, err := ParseKind(kind.String()); got != kind || err != nil {
			t.Errorf("%v is %v, %v", kind, got, err)
		}
		r := shared(ask("k"))
		if kind == ReadWrite {
			r.Limit = 3
		}
		if _, err := contend.Try(t.Context(), d, r); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%v: what it has not: %v", kind, err)
		}
		if _, err := contend.Try(t.Context(), d, ask("hasp.x")); d.Classify(err) != driver.ClassImpossible {
			t.Errorf("%v: a sidecar's name: %v", kind, err)
		}
		_ = d.Close()
	}
	if _, err := ParseKind("spin"); err == nil {
		t.Error("there is a kind spin")
	}
}

// In a cluster a name whose braces Redisson would tear apart is refused before any I/O; others have all their keys in one slot.
func TestBraces(t *testing.T) {
	t.Parallel()
	c := testserver.NewRedisCluster(t, 3, testserver.RedisGroup{Timeout: calm})
	for kind := range Kind(len(kinds)) {
		rdb := clusterClient(c.Addrs())
		d := New(rdb, &Options{Kind: kind})
		for _, key := range []string{"a{b", "{}a", "a}b", "a{}b", "{", "}"} {
			if _, err := contend.Try(t.Context(), d, ask(key)); d.Classify(err) != driver.ClassImpossible || !strings.Contains(err.Error(), "two hash slots") {
				t.Errorf("%v: %q: %v", kind, key, err)
			}
		}
		for _, key := range []string{"plain", "a{b}c", "{tag}", "a{b}{c}", "\x00\xff"} {
			r, next := ask(key), ask(key)
			if res, err := contend.Try(t.Context(), d, r); err != nil || !res.Granted {
				t.Fatalf("%v: %q: %+v, %v", kind, key, res, err)
			}
			hints, err := contend.Watch(t.Context(), d, next)
			stopIf(t, err != nil || hints == nil, "%v: %q: Watch: %v, %v", kind, key, hints, err)
			if res, err := contend.Try(t.Context(), d, queued(next)); err != nil || res.Granted {
				t.Fatalf("%v: %q: %+v, %v", kind, key, res, err)
			}
			if err := contend.Release(t.Context(), d, r); err != nil {
				t.Errorf("%v: %q: %v", kind, key, err)
			}
			<-hints
			if err := contend.Release(t.Context(), d, next); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("%v: %q: %v", kind, key, err)
			}
		}
		_ = d.Close()
		_ = rdb.Close()
	}
}

// A server that is full grants nothing more, and takes every release, of which it remembers what it must.
func TestFullServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for kind := range Kind(len(kinds)) {
		d := w.driver(kind)
		held, reader, waits, never := ask("k"), shared(ask("r")), queued(ask("k")), ask("k")
		if kind != ReadWrite {
			reader.Mode = driver.Exclusive
		}
		w.grant(d, held)
		w.grant(d, reader)
		w.refuse(d, waits, 0)
		w.do("CONFIG", "SET", "maxmemory", 1)
		if _, err := contend.Try(w.ctx, d, ask("new")); d.Classify(err) != driver.ClassFull {
			t.Errorf("%v: a full server granted: %v", kind, err)
		}
		if kind == Fair {
			if r := w.renew(d, waits); r.Err != nil {
				t.Errorf("%v: a waiter's sign of life: %v", kind, r.Err)
			}
		}
		if r := w.renew(d, held); r.Err != nil {
			t.Errorf("%v: a renewal: %v", kind, r.Err)
		}
		w.release(d, reader)
		if err := contend.Release(w.ctx, d, never); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%v: a release of nothing: %v", kind, err)
		}
		if err := contend.Release(w.ctx, d, waits); err != nil && (kind == Fair || !errors.Is(err, driver.ErrNotHeld)) {
			t.Errorf("%v: a waiter leaves: %v", kind, err)
		}
		w.release(d, held)
		w.do("CONFIG", "SET", "maxmemory", 0)
		for _, r := range []contend.Owner{never, held} {
			if res := w.try(d, r); res.Why != driver.WhyReleased {
				t.Errorf("%v: an owner that was released: %+v", kind, res)
			}
		}
		w.do("FLUSHALL")
	}
}

// Without the right to publish, and without that to subscribe, locks work; whoever waits asks.
func TestDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all", "-publish")
	w.do("ACL", "SETUSER", "deaf", "on", "nopass", "~*", "resetchannels", "&hasp.inbox:*", "+@all")
	for kind := range Kind(len(kinds)) {
		mute, deaf := w.over(w.client("mute"), kind), w.over(w.client("deaf"), kind)
		a, b := ask("k"), queued(ask("k"))
		w.grant(mute, a)
		if hints, err := contend.Watch(w.ctx, deaf, b); hints != nil || err != nil {
			t.Errorf("%v: Watch of one that may not subscribe: %v, %v", kind, hints, err)
		}
		if res := w.refuse(deaf, b, 0); res.RetryIn <= 0 || res.RetryIn > pollMax {
			t.Errorf("%v: it asks again in %v", kind, res.RetryIn)
		}
		w.release(mute, a)
		w.grant(deaf, b)
		w.release(deaf, b)
	}
}

// Of those who wait here for one lock, a message wakes the one that has waited for longest; if it leaves instead of asking,
// it wakes the next.
func TestMessageWakesOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Lock)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.grant(d, a)
	ctx, leave := context.WithCancel(w.ctx)
	first, err := contend.Watch(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	second := w.watch(d, c)
	if res := w.refuse(d, b, 0); res.RetryIn > pollMax {
		t.Errorf("the first asks again in %v", res.RetryIn)
	}
	if res := w.refuse(d, c, 0); res.RetryIn <= pollMax {
		t.Errorf("the second asks again in %v", res.RetryIn)
	}
	w.release(d, a)
	w.hint(first)
	w.none(d, second)
	leave()
	w.hint(second)
	w.grant(d, c)
}

// What somebody wrote over a sidecar or a counter is an error that stays, and ends nobody else's lease.
func TestDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for kind := range Kind(len(kinds)) {
		d := w.driver(kind)
		a, b := ask("a"), ask("b")
		w.grant(d, a)
		w.grant(d, b)
		w.do("SET", d.names("a").about(), "x")
		var errs [2]error
		contend.Renew(w.ctx, d, []contend.Owner{a, b}, func(i int, r driver.Renewal) { errs[i] = r.Err })
		failIf(t, d.Classify(errs[0]) != driver.ClassImpossible || errs[1] != nil, "%v: renewals: %v", kind, errs)
		if _, err := contend.Try(w.ctx, d, ask("a")); d.Classify(err) != driver.ClassImpossible {
			t.Errorf("%v: a Try: %v", kind, err)
		}
		w.do("FLUSHALL")
	}
	d := w.driver(Fenced)
	for _, damage := range [][]any{{"SET", d.names("k").token, "x"}, {"SET", d.names("k").token, "9223372036854775807"}, {"HSET", d.names("k").token, "x", 1}} {
		w.do("DEL", d.names("k").token)
		w.do(damage...)
		if _, err := contend.Try(w.ctx, d, ask("k")); d.Classify(err) != driver.ClassImpossible {
			t.Errorf("after %v: %v", damage, err)
		}
		if info := w.inspect(d, "k"); info.Held {
			t.Errorf("after %v it is held: %+v", damage, info)
		}
	}
}

// A renewal on a server that takes no writes says so, as a Try does: go-redis looks for another then.
func TestRenewalOnAReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for kind := range Kind(len(kinds)) {
		d := w.driver(kind)
		a := ask("k")
		w.grant(d, a)
		w.do("REPLICAOF", "127.0.0.1", 1)
		if r := w.renew(d, a); d.Classify(r.Err) != driver.ClassReadOnly {
			t.Errorf("%v: %v", kind, r.Err)
		}
		w.do("REPLICAOF", "NO", "ONE")
		w.do("FLUSHALL")
	}
}

// Where the end of a lock cannot be written there is none.
func TestLockThatWouldNeverEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do("ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", "+@all", "-pexpire")
	for kind := range Kind(len(kinds)) {
		d := w.over(w.client("u"), kind)
		if _, err := contend.Try(w.ctx, d, ask("k")); d.Classify(err) != driver.ClassDenied {
			t.Errorf("%v: %v", kind, err)
		}
		failIf(t, w.admin.Exists(w.ctx, "k").Val() != 0, "%v: the lock stays", kind)
	}
}

// The standing grant of a fenced lock has its fence, also when what stands beside the lock is gone.
func TestFenceWithoutItsSidecar(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fenced)
	a := ask("k")
	want := w.grant(d, a).Fence
	w.do("DEL", d.names("k").about())
	if got := w.grant(d, a).Fence; got != want || got == 0 {
		t.Errorf("the fence %d became %d", want, got)
	}
}

// A hint goes on to the next waiter when the request that followed it was not sent.
func TestHintOfARequestThatWasNotSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Lock)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.grant(d, a)
	ctx, leave := context.WithCancel(w.ctx)
	first, err := contend.Watch(ctx, d, b)
	if err != nil {
		t.Fatal(err)
	}
	second := w.watch(d, c)
	w.refuse(d, b, 0)
	w.refuse(d, c, 0)
	w.release(d, a)
	w.hint(first)
	ended, end := context.WithCancel(w.ctx)
	end()
	if _, err := contend.Try(ended, d, b); !driver.IsNotSent(err) {
		t.Fatal(err)
	}
	leave()
	w.hint(second)
}

// A release ends the lease also where what stands beside the lock is another's, and says what that is.
func TestReleaseBesideAStranger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, kind := range []Kind{Lock, Fair, Fenced, ReadWrite} {
		d := w.driver(kind)
		n := d.names("k")
		beside := []string{n.about()}
		if kind == Fair {
			beside = append(beside, n.queue, n.timeouts, n.waiters())
		}
		for _, key := range beside {
			a, other := ask("k"), ask("k")
			modes := []contend.Owner{a}
			if kind == ReadWrite {
				modes = append(modes, shared(a))
			}
			for _, a := range modes {
				w.grant(d, a)
				w.do("DEL", key)
				w.do("SET", key, "x")
				var strange *wire.TypeError
				if err := contend.Release(w.ctx, d, other); w.admin.Exists(w.ctx, "k").Val() != 1 {
					t.Errorf("%v, %s: another's release took the lock: %v", kind, key, err)
				}
				if err := contend.Release(w.ctx, d, a); !errors.As(err, &strange) || strange.Key != key {
					t.Errorf("%v, %s: Release says %v", kind, key, err)
				}
				if left := w.admin.Exists(w.ctx, "k").Val(); left != 0 {
					t.Errorf("%v, %s: the lock is still there", kind, key)
				}
				w.do("FLUSHALL")
			}
		}
		w.do("SET", "k", "x") // what is no lock was lost
		if err := contend.Release(w.ctx, d, ask("k")); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%v: a string instead of the lock: %v", kind, err)
		}
		w.do("FLUSHALL")
	}
}
