// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// died lets a waiter's life in the fair queue of k end.
func (w *world) died(d *Driver, r contend.Owner) {
	w.Helper()
	w.do("HSET", d.names("k").waiters(), fieldOf(r.Owner), fmt.Sprintf("%d 1 10000 %s", time.Now().UnixMilli()-1, r.Label))
}

// Nobody asks again and again: not for a lock that never expires, and not behind a place of which nothing is known.
func TestFairPauses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	w.do("HSET", "k", thread(1), 1)
	a, b := queued(ask("k")), queued(ask("k"))
	w.watch(d, a)
	w.watch(d, b)
	if res := w.refuse(d, a, 0); res.RetryIn < 500*time.Millisecond {
		t.Errorf("of a lock that never expires the first asks again in %v", res.RetryIn)
	}
	if r := w.renew(d, a); r.RetryIn < 500*time.Millisecond {
		t.Errorf("of a lock that never expires the first asks again in %v", r.RetryIn)
	}
	w.do("RPUSH", d.names("k").queue, thread(2)) // without a score
	if res := w.refuse(d, b, 2); res.RetryIn < 500*time.Millisecond {
		t.Errorf("behind an unknown place it asks again in %v", res.RetryIn)
	}
}

// Both halves of a queue end together: Java cannot do with one of them.
func TestFairQueueEndsAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	w.do("HSET", "k", thread(1), 1)
	w.java(2, time.Second)
	w.java(3, time.Hour)
	w.do("ZADD", d.names("k").timeouts, 1, thread(2)) // it is dead
	stopIf(t, w.admin.PTTL(w.ctx, d.names("k").queue).Val() != -1, "Java's queue expires")
	w.refuse(d, ask("k"), 1)
	queue, timeouts := w.admin.PExpireTime(w.ctx, d.names("k").queue).Val(), w.admin.PExpireTime(w.ctx, d.names("k").timeouts).Val()
	failIf(t, queue <= 0 || queue != timeouts, "the queue ends at %v, its scores at %v", queue, timeouts)
}

// A waiter of hasp's that dies as the first holds Java up for its patience, even if threads before it went without subtracting.
func TestFairFirstHasItsPatience(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	w.do("HSET", "k", thread(9), 1)
	a := queued(ask("k"))
	for n := range 3 {
		w.java(n, 300*time.Second)
	}
	w.refuse(d, a, 3)
	for n := range 3 {
		w.do("ZADD", d.names("k").timeouts, 1, thread(n))
	}
	w.renew(d, a)
	if ms := int64(w.admin.ZScore(w.ctx, d.names("k").timeouts, fieldOf(a.Owner)).Val()) - time.Now().UnixMilli(); ms > a.Patience.Milliseconds()+1000 {
		t.Errorf("Java waits for it for %d ms", ms)
	}
}

// A place of which the record is gone is no hindrance: it goes with its owner's grant, and with its release.
func TestFairPlaceWithoutARecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	a, b, c := ask("k"), queued(ask("k")), queued(ask("k"))
	w.grant(d, a)
	w.refuse(d, b, 0)
	w.refuse(d, c, 1)
	w.do("DEL", d.names("k").waiters())
	w.release(d, a)
	w.release(d, c)
	b.Queue = false
	w.grant(d, b)
	w.release(d, b)
	if left := w.queue(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	w.grant(d, ask("k"))
}

// A waiter that was dead when Java took it out has lost its place.
func TestFairDeadWaiterComesLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	w.do("HSET", "k", thread(9), 1)
	a := queued(ask("k"))
	w.refuse(d, a, 0)
	w.java(1, 300*time.Second)
	w.died(d, a)
	w.do("LREM", d.names("k").queue, 1, fieldOf(a.Owner))
	w.do("ZREM", d.names("k").timeouts, fieldOf(a.Owner))
	w.refuse(d, a, 1)
	if got, want := w.queue(), []string{thread(1), fieldOf(a.Owner)}; !slices.Equal(got, want) {
		t.Errorf("the queue is %q, want %q", got, want)
	}
	b := queued(ask("k"))
	w.refuse(d, b, 2)
	w.died(d, b)
	w.do("LREM", d.names("k").queue, 1, fieldOf(b.Owner))
	w.do("ZREM", d.names("k").timeouts, fieldOf(b.Owner))
	if r := w.renew(d, b); !errors.Is(r.Err, driver.ErrNotHeld) {
		t.Errorf("its sign of life: %+v", r)
	}
}

// What is known of dead waiters does not pile up where Java took them out.
func TestFairRecordsGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	w.do("HSET", "k", thread(9), 1)
	const many = 1000
	for range many {
		w.died(d, ask("k"))
	}
	for range 200 {
		w.refuse(d, ask("k"), 0)
	}
	if n := w.admin.HLen(w.ctx, d.names("k").waiters()).Val(); n > many/5 {
		t.Errorf("%d are remembered", n)
	}
}

// A long queue costs List no more than it takes to look at its beginning, and Inspect one command for many places.
func TestLongQueueIsCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	w.grant(d, ask("k"))
	const many, dead = 5000, 10
	var fields, lives []any
	for i := range many {
		field, until := fieldOf(ask("k").Owner), "99999999999999"
		if i < dead {
			until = "1"
		}
		fields, lives = append(fields, field), append(lives, field, until+" 1 10000 label")
	}
	w.do(append([]any{"RPUSH", d.names("k").queue}, fields...)...)
	w.do(append([]any{"HSET", d.names("k").waiters()}, lives...)...)
	for what, waiters := range map[string]func() int{
		"Inspect": func() int { return w.inspect(d, "k").Waiters },
		"List": func() (n int) {
			for info, err := range d.List(w.ctx, "k") {
				w.succeeds(err)
				n = info.Waiters
			}
			return n
		},
	} {
		w.do("CONFIG", "RESETSTAT")
		if n := waiters(); n != many-dead {
			t.Errorf("%s counts %d who wait, want %d", what, n, many-dead)
		}
		if n := w.calls(); n > 50 {
			t.Errorf("%s took %d commands", what, n)
		}
	}
}
