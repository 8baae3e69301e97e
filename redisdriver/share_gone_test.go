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
	w := newWorld(t)
	d := w.driver(nil)
	for range 1001 {
		w.grant(d, reader("k"))
	}
	s := sharer("k", 5000)
	s.TTL = time.Hour
	w.grant(d, s)
	w.do("DEL", "lock:k")
	writer := ask("k")
	w.until("all are over", func() bool {
		res := w.try(d, writer)
		if res.Granted && !res.Abandoned {
			t.Fatal("the mark is gone")
		}
		return res.Granted
	})
}

// A peer takes the key of an expired lease: its late release leaves the mark.
func TestMarkBesideAPeer(t *testing.T) {
	w := newWorld(t)
	d := w.driver(nil)
	a := sharer("k", 3)
	a.TTL = 50 * time.Millisecond
	w.grant(d, a)
	w.until("the lease is over", func() bool { return w.admin.Exists(w.ctx, "lock:k").Val() == 0 })
	w.do("SET", "lock:k", "peer")
	if err := contend.Release(w.ctx, seen(d), a); !errors.Is(err, driver.ErrNotHeld) {
		t.Fatal(err)
	}
	w.do("DEL", "lock:k")
	if !w.grant(d, ask("k")).Abandoned {
		t.Error("the mark is gone")
	}
}

// A vote can be withdrawn also after the key's largest fence was evicted.
func TestShareWithoutItsGrant(t *testing.T) {
	w := newWorld(t)
	d := w.node()
	w.admit(d)
	a := reader("k")
	a.Fence = w.micros()
	w.grant(d, a)
	w.do("DEL", "hasp.grant:{lock:k}")
	a.Settled, a.UpTo = true, a.Fence
	w.release(d, a)
	if w.inspect(d, "k").Held {
		t.Error("the lease stands")
	}
}

// A lock that a person made permanent keeps its leases: the Try that a
// conversion overtook does not join the queue.
func TestLateTryAtAPermanentLock(t *testing.T) {
	w := newWorld(t)
	d := w.driver(nil)
	a := ask("k")
	w.grant(d, a)
	late := a
	w.do("PERSIST", "lock:k")
	a = w.convert(d, a)
	w.do("ZADD", "hasp.shares:{lock:k}", 1, value(a.Claim()))
	w.refuse(d, queued(late))
	if n := w.inspect(d, "k").Waiters; n != 0 {
		t.Errorf("%d wait", n)
	}
	w.release(d, a)
	if w.inspect(d, "k").Held {
		t.Error("the key was handed to who released it")
	}
}
