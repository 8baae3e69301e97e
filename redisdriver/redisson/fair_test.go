// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/contend"
)

// Threads of Java's and owners of hasp's are granted a fair lock in the order in which they came.
func TestFairInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	a, b, c := ask("k"), queued(ask("k")), queued(ask("k"))
	w.grant(d, a)
	stopIf(t, w.java(1, 300*time.Second), "a thread was granted a lock that is held")
	w.refuse(d, b, 1)
	stopIf(t, w.java(2, time.Second), "a thread was granted a lock that is held")
	w.refuse(d, c, 3)
	if got, want := w.queue(), []string{thread(1), fieldOf(b.Owner), thread(2), fieldOf(c.Owner)}; !slices.Equal(got, want) {
		t.Fatalf("the queue is %q, want %q", got, want)
	}
	w.release(d, a)
	w.refuse(d, b, 1)
	stopIf(t, w.java(2, time.Second) || !w.java(1, 300*time.Second), "the first thread was not granted the lock")
	if info := w.inspect(d, "k"); !info.Holder.Foreign || info.Holder.Label != thread(1) || info.Waiters != 3 {
		t.Fatalf("who has it: %+v", info)
	}
	w.do("DEL", "k")
	stopIf(t, w.java(2, time.Second), "a thread was granted the lock before a waiter of hasp's that came earlier")
	w.grant(d, b)
	w.release(d, b)
	stopIf(t, !w.java(2, time.Second), "the second thread was not granted the lock")
	w.do("DEL", "k")
	w.grant(d, c)
	if len(w.queue()) != 0 || w.admin.Exists(w.ctx, "redisson_lock_timeout:{k}").Val() != 0 {
		t.Errorf("left: %q", w.queue())
	}
}

// A waiter that shows that it is alive is not taken for dead by Java, whatever the threads before it subtract.
func TestFairWaiterOutlivesSubtractions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	a, b := ask("k"), queued(ask("k"))
	w.grant(d, a)
	for n := range 3 {
		w.java(n, 300*time.Second)
	}
	w.refuse(d, b, 3)
	w.java(9, 300*time.Second)
	w.do("ZINCRBY", "redisson_lock_timeout:{k}", -600_000, fieldOf(b.Owner)) // as if it had waited for long, while the holder renewed
	if r := w.renew(d, b); r.Err != nil {
		t.Fatal(r.Err)
	}
	w.release(d, a)
	for n := range 3 {
		if !w.java(n, 300*time.Second) {
			t.Fatalf("thread %d was not granted the lock: %q", n, w.queue())
		}
		w.do("DEL", "k")
	}
	stopIf(t, w.java(9, 300*time.Second), "a thread behind a live waiter of hasp's was granted the lock")
	w.grant(d, b)
}

// Waiters that Java took out although they live come back to where they were.
func TestFairWaiterComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	a, b, c := ask("k"), queued(ask("k")), queued(ask("k"))
	w.grant(d, a)
	w.refuse(d, b, 0)
	w.refuse(d, c, 1)
	w.java(1, 300*time.Second)
	w.do("ZADD", "redisson_lock_timeout:{k}", 1, fieldOf(b.Owner), 2, fieldOf(c.Owner))
	w.java(2, 300*time.Second) // which takes them out
	if n := len(w.queue()); n != 2 {
		t.Fatalf("%d are in the queue", n)
	}
	if r := w.renew(d, c); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := w.renew(d, b); r.Err != nil {
		t.Fatal(r.Err)
	}
	if got, want := w.queue(), []string{fieldOf(b.Owner), fieldOf(c.Owner), thread(1), thread(2)}; !slices.Equal(got, want) {
		t.Errorf("the queue is %q, want %q", got, want)
	}
}

// Dead waiters of hasp's go from the middle of the queue, and those behind them no longer wait for them.
func TestFairDeadWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	a, dead, live := ask("k"), queued(ask("k")), queued(ask("k"))
	dead.Patience = 3 * time.Second
	w.grant(d, a)
	w.java(1, 300*time.Second)
	w.refuse(d, dead, 1)
	w.java(2, 300*time.Second)
	before := w.admin.ZScore(w.ctx, "redisson_lock_timeout:{k}", thread(2)).Val()
	life := fmt.Sprintf("%d 1 3000 %s", time.Now().UnixMilli()-1, dead.Label)
	w.do("HSET", d.names("k").waiters(), fieldOf(dead.Owner), life)
	w.refuse(d, live, 2)
	if got, want := w.queue(), []string{thread(1), thread(2), fieldOf(live.Owner)}; !slices.Equal(got, want) {
		t.Errorf("the queue is %q, want %q", got, want)
	}
	if after := w.admin.ZScore(w.ctx, "redisson_lock_timeout:{k}", thread(2)).Val(); before-after != 3000 {
		t.Errorf("the one behind it waits for %v ms less, want 3000", before-after)
	}
	if r := w.renew(d, dead); r.Err == nil {
		t.Error("a place that is gone was prolonged")
	}
}

// A thousand dead waiters cost the server no more than it takes to look at each once.
func TestFairManyDeadWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.driver(Fair)
	a, b := ask("k"), queued(ask("k"))
	w.grant(d, a)
	const many = 1000
	pipe := w.admin.Pipeline()
	for range many {
		field := fieldOf(ask("k").Owner)
		pipe.RPush(w.ctx, d.names("k").queue, field)
		pipe.ZAdd(w.ctx, d.names("k").timeouts, z(float64(time.Now().Add(time.Hour).UnixMilli()), field))
		pipe.HSet(w.ctx, d.names("k").waiters(), field, fmt.Sprintf("%d 1 10000 {}", time.Now().UnixMilli()-1))
	}
	if _, err := pipe.Exec(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.do("CONFIG", "RESETSTAT")
	w.refuse(d, b, 0)
	if n := w.calls(); n > 6*many {
		t.Errorf("%d commands for %d places", n, many)
	}
	if n := w.admin.HLen(w.ctx, d.names("k").waiters()).Val(); n > 2 {
		t.Errorf("%d are remembered", n)
	}
}

// The first in the queue is told when it becomes the first, whatever became of the one before it, and when the lock is free.
func TestFairFirstIsTold(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(w *world, d *Driver, first contend.Owner){
		"it gives up": func(w *world, d *Driver, first contend.Owner) { w.release(d, first) },
		"it dies": func(w *world, d *Driver, first contend.Owner) {
			life := fmt.Sprintf("%d 1 10000 %s", time.Now().UnixMilli()-1, first.Label)
			w.do("HSET", d.names("k").waiters(), fieldOf(first.Owner), life)
			w.refuse(d, ask("k"), 1)
		},
		"Java takes it for dead": func(w *world, d *Driver, first contend.Owner) {
			w.do("HDEL", d.names("k").waiters(), fieldOf(first.Owner))
			w.do("ZADD", d.names("k").timeouts, 1, fieldOf(first.Owner))
			w.refuse(d, ask("k"), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.driver(Fair)
			a, b, c := ask("k"), queued(ask("k")), queued(ask("k"))
			w.grant(d, a)
			w.refuse(d, b, 0)
			hints := w.watch(d, c)
			w.refuse(d, c, 1)
			goes(w, d, b)
			w.hint(hints)
			w.refuse(d, c, 0)
			w.none(d, hints)
			w.do("DEL", "k") // it ends
			w.refuse(d, ask("k"), 1)
			w.hint(hints)
			w.grant(d, c)
		})
	}
}
