// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/stall"
)

// poll is how often the first in the queue checks a foreign holder, and late is
// what a busy machine may add.
const (
	poll = 100 * time.Millisecond
	late = 900 * time.Millisecond
)

// Rule: a foreign release gives no hint, so our first in the queue asks every
// 100 ms; the others wait for it, in order.
func TestWaitersFollowTheirRelease(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ours, theirs := b.key("k")
		unlock := b.obtain(theirs, time.Minute)
		var waits [2]<-chan waited
		var seen [2]chan event.Event
		for i := range waits {
			seen[i] = make(chan event.Event, 256)
			waits[i] = lockAsync(t.Context(), b.locks(seen[i]).Mutex(ours, nil))
			if e := await(t, "refusal in the queue", seen[i]); !e.Holder.Foreign || e.Ahead != i {
				t.Fatalf("waiter %d got %+v", i, e)
			}
		}
		for range 5 {
			await(t, "look at the foreign holder", seen[0])
		}
		if n := len(seen[1]); n > 1 {
			t.Errorf("the second in the queue looked %d times while the first looked 5 times", n)
		}
		b.frees(unlock, true)
		freed, lost := time.Now(), stall.Watch(t)
		first := lease(t, waits[0])
		if took := time.Since(freed); took > poll+late+lost() {
			t.Errorf("the first in the queue had the key %v after the release, want %v", took, poll)
		}
		if err := first.Release(); err != nil {
			t.Error(err)
		}
		second := lease(t, waits[1])
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
		if err := second.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: a foreign holder that died is waited out to its expiry, and no longer.
func TestWaiterFollowsTheirExpiry(t *testing.T) {
	const ttl = 5 * time.Second // for the peer's own request, too, on a busy machine
	each(t, func(t *testing.T, b *bench) {
		t.Parallel()
		ours, theirs := b.key("k")
		locks := b.locks(nil)
		start, lost := time.Now(), stall.Watch(t)
		b.obtain(theirs, ttl)
		granted := time.Now()
		l := lease(t, lockAsync(t.Context(), locks.Mutex(ours, nil)))
		// Redis counts whole milliseconds.
		if took := time.Since(start); took < ttl-time.Millisecond {
			t.Errorf("we had the key %v after the peer got it for %v", took, ttl)
		}
		if took := time.Since(granted); took > ttl+poll+late+lost() {
			t.Errorf("we had the key %v after the peer got it for %v", took, ttl)
		}
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}
