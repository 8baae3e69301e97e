// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
)

// Rule: what a foreign client holds is refused to us, shown as foreign with
// its time left, and never changed: not by a Try, a wait, a Break or a
// cancelled Lock.
func TestWeRespectThem(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ours, theirs := b.key("k")
		seen := make(chan event.Event, 64)
		locks := b.locks(seen)
		unlock := b.obtain(theirs, time.Minute)
		value := b.value(theirs)

		_, err := locks.Mutex(ours, nil).TryLock(t.Context())
		held := (*hasp.HeldError)(nil)
		if !errors.As(err, &held) || !held.Holder.Foreign || held.Left <= 0 || held.Left > time.Minute {
			t.Errorf("TryLock: %v (%+v), want held by a foreign client, with the time left", err, held)
		}
		info, err := locks.Operator().Inspect(t.Context(), ours)
		if err != nil || !info.Held || !info.Holder.Foreign || info.Holder.Owner != "" ||
			!strings.Contains(info.Holder.Label, value) || info.Left <= 0 || info.Left > time.Minute {
			t.Errorf("Inspect: %+v, %v; want a foreign holder with the value %q", info, err, value)
		}
		for _, owner := range []string{"", value} {
			if err := locks.Operator().Break(t.Context(), ours, owner); !errors.Is(err, hasp.ErrNotHeld) {
				t.Errorf("Break of owner %q: %v, want that we hold nothing to break", owner, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		wait := lockAsync(ctx, locks.Mutex(ours, nil))
		for range 2 { // on joining the queue, and on a look at the foreign holder
			await(t, "refusal", seen)
		}
		cancel()
		if w := await(t, "end of the wait", wait); !errors.Is(w.err, context.Canceled) || !errors.Is(w.err, hasp.ErrHeld) {
			t.Errorf("a cancelled wait: %v", w.err)
		}
		if got := b.value(theirs); got != value {
			t.Errorf("the peer's value %q became %q", value, got)
		}
		if left := b.rdb.PTTL(t.Context(), theirs).Val(); left <= 0 || left > time.Minute {
			t.Errorf("the peer's TTL of a minute became %v", left)
		}
		b.frees(unlock, true)
		l, err := locks.Mutex(ours, nil).Lock(t.Context())
		must(t, err)
		if err := l.Release(); err != nil {
			t.Error(err)
		}
	})
}

// Rule: a foreign client is refused from our first grant to our last release,
// whichever of our clients holds the key, and also at the moment of a handoff.
func TestTheyRespectUs(t *testing.T) {
	const handoffs = 50
	each(t, func(t *testing.T, b *bench) {
		ours, theirs := b.key("k")
		seen := make(chan event.Event, 64)
		a, c := b.locks(nil), b.locks(seen)
		held, err := a.Mutex(ours, nil).Lock(t.Context())
		must(t, err)
		stop, ended := make(chan struct{}), make(chan int)
		go func() { ended <- b.intrude(theirs, stop) }()
		for range handoffs {
			next := lockAsync(t.Context(), c.Mutex(ours, nil))
			await(t, "refusal in the queue", seen)
			must(t, held.Release())
			held = lease(t, next)
		}
		close(stop)
		tries := await(t, "end of the peer", ended)
		t.Logf("%d attempts of %s during %d handoffs", tries, b.peer.name, handoffs)
		if err := held.Err(); err != nil {
			t.Error(err)
		}
		if err := held.Release(); err != nil {
			t.Error(err)
		}
		b.frees(b.obtain(theirs, time.Minute), true)
	})
}

// Rule: a key that is shared refuses a foreign client from the first grant to
// the last release, also when a writer lets readers in beside it, and what a
// foreign client holds is not shared.
func TestTheyRespectSharers(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		ours, theirs := b.key("k")
		seen := make(chan event.Event, 64)
		locks, others := b.locks(nil), b.locks(seen)
		m, slots := locks.RWMutex(ours, nil), locks.Semaphore(ours, 5, nil)
		unlock := b.obtain(theirs, time.Minute)
		value := b.value(theirs)
		for _, try := range []func(context.Context) (*hasp.Lease, error){m.TryRLock, slots.TryLock} {
			if _, err := try(t.Context()); !errors.Is(err, hasp.ErrHeld) {
				t.Errorf("beside a foreign client: %v, want that it holds the key", err)
			}
		}
		if got := b.value(theirs); got != value {
			t.Errorf("the peer's value %q became %q", value, got)
		}
		b.frees(unlock, true)

		var held []*hasp.Lease
		hold := func(l *hasp.Lease, err error) {
			must(t, err)
			held = append(held, l)
		}
		hold(m.Lock(t.Context()))
		stop, ended := make(chan struct{}), make(chan int)
		go func() { ended <- b.intrude(theirs, stop) }()
		for range 5 {
			must(t, held[len(held)-1].Downgrade(t.Context()))
			hold(m.RLock(t.Context()))
			hold(slots.Lock(t.Context()))
			for _, l := range held {
				if err := l.Err(); err != nil {
					t.Error(err)
				}
			}
			next := make(chan waited, 1)
			go func() {
				l, err := others.RWMutex(ours, nil).Lock(t.Context())
				next <- waited{l, err}
			}()
			await(t, "refusal in the queue", seen)
			for _, l := range held {
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
			held = []*hasp.Lease{lease(t, next)}
		}
		close(stop)
		await(t, "end of the peer", ended)
		if err := held[0].Release(); err != nil {
			t.Error(err)
		}
		b.frees(b.obtain(theirs, time.Minute), true)
	})
}

// intrude makes the peer try to lock the key until stop, and counts the tries.
func (b *bench) intrude(key string, stop <-chan struct{}) (tries int) {
	for {
		u, err := b.peer.obtain(b.Context(), b.rdb, key, time.Minute)
		if err != nil || u != nil {
			b.Errorf("attempt %d of %s: got the key: %v, error: %v", tries+1, b.peer.name, u != nil, err)
			return tries
		}
		tries++
		select {
		case <-stop:
			return tries
		default:
		}
	}
}

// Rule: an unlock that comes too late frees nothing of the successor's, theirs
// or ours.
func TestLateUnlocksFreeNothing(t *testing.T) {
	each(t, func(t *testing.T, b *bench) {
		t.Parallel()
		locks := b.locks(nil)
		ours, theirs := b.key("theirs")
		late := b.obtain(theirs, 5*time.Second)
		lease := lease(t, lockAsync(t.Context(), locks.Mutex(ours, nil)))
		b.frees(late, false)
		if err := lease.Extend(t.Context(), time.Minute); err != nil {
			t.Errorf("our lease after the late unlock of %s: %v", b.peer.name, err)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}

		ours, theirs = b.key("ours")
		lease, err := locks.Mutex(ours, &hasp.LockOptions{TTL: time.Hour, NoRenew: true}).Lock(t.Context())
		must(t, err)
		must(t, b.rdb.PExpire(t.Context(), theirs, time.Millisecond).Err())
		unlock := b.obtainWhenFree(theirs)
		value := b.value(theirs)
		if err := lease.Release(); !errors.Is(err, hasp.ErrLost) {
			t.Errorf("our late Release: %v, want ErrLost", err)
		}
		if got := b.value(theirs); got != value {
			t.Errorf("our late Release changed the peer's %q to %q", value, got)
		}
		b.frees(unlock, true)
	})
}

// obtainWhenFree polls, which is all that the peers can do.
func (b *bench) obtainWhenFree(key string) unlock {
	b.Helper()
	for end := time.Now().Add(soon); time.Now().Before(end); {
		u, err := b.peer.obtain(b.Context(), b.rdb, key, time.Minute)
		must(b, err)
		if u != nil {
			return u
		}
	}
	b.Fatalf("%s did not get the key within %v", b.peer.name, soon)
	return nil
}
