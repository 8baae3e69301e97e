// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// gone waits until a lock has expired.
func (w *world) gone(lock string) {
	w.Helper()
	w.until("the lock expires", func() bool { return w.do("EXISTS", lock) == int64(0) })
}

// A place that was handed the key and did not claim it is released although another
// client, which knows no queue, took the lock meanwhile.
func TestReleaseOfAHandoffThatAnotherTook(t *testing.T) {
	for _, other := range []string{"a lock", "another type"} {
		w, d := newPlain(t)
		a, b := ask("k"), ask("k")
		w.on(d).grant(a).wait(b).release(a)
		lock := d.names("k").lock
		w.do("DEL", lock) // as the claim time does
		if other == "a lock" {
			w.do("SET", lock, "redsync", "NX", "PX", 60000)
		} else {
			w.do("LPUSH", lock, "x")
		}
		w.on(d).release(b).do("DEL", lock)
		if info := w.inspect(d, "k"); info.Held || info.Waiters > 0 {
			t.Errorf("%s: after Release there is %+v", other, info)
		}
		if res := w.grant(d, ask("k")); res.Abandoned {
			t.Errorf("%s: a place that was released left the key abandoned", other)
		}
		if info := w.inspect(d, "k"); info.Waiters > 0 {
			t.Errorf("%s: the place came back: %+v", other, info)
		}
	}
}

// On a full server a Release of what has expired finds nothing, and hands the key on.
func TestReleaseOfAnExpiredLeaseOnAFullServer(t *testing.T) {
	w := newWorld(t, "--maxmemory-policy", "noeviction")
	d := w.driver(nil)
	a, b := ask("k"), ask("k")
	w.grant(d, a)
	hints := w.wait(d, b)
	w.do("PEXPIRE", d.names("k").lock, 1)
	w.gone(d.names("k").lock)
	w.do("CONFIG", "SET", "maxmemory", 1)
	w.releasesNothing(d, a)
	w.on(d).hint(hints).claim(b)
}

// A grant that is none goes with the lease.
func TestReleaseTakesABadGrantAway(t *testing.T) {
	w, d := newPlain(t)
	for _, settled := range []bool{false, true} {
		a := ask("k")
		a.Settled = settled
		w.on(d).grant(a).do("SET", d.names("k").grant, "garbage").release(a).release(w.granted(d, "k"))
	}
}

func (w *world) granted(d *Driver, key string) contend.Owner {
	w.Helper()
	r := ask(key)
	w.grant(d, r)
	return r
}

// A holder that released its lease has finished, although the next could not be served.
func TestReleaseBesideABadQueue(t *testing.T) {
	w, d := newPlain(t)
	a := w.granted(d, "k")
	queue := d.names("k").queue
	w.do("SET", queue, "no queue")
	_ = contend.Release(w.ctx, d, a)
	w.do("DEL", queue)
	if res := w.grant(d, ask("k")); res.Abandoned {
		t.Error("the holder released its lease, and the key counts as abandoned")
	}
}

// What an expired lease of a semaphore left is remembered when the next cannot get a fence.
func TestAbandonedBesideABadMark(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	a.Mode, a.Limit, a.TTL = driver.Shared, 2, 50*time.Millisecond
	w.grant(d, a)
	w.gone(d.names("k").lock)
	w.do("SET", markKey, "abc")
	w.refuses(d, ask("k"), markKey)
	w.do("DEL", markKey)
	if res := w.grant(d, ask("k")); !res.Abandoned {
		t.Error("nobody released the semaphore, and the key does not count as abandoned")
	}
}
