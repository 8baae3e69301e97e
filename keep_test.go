// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// kept is the option alone, for less than a renewal.
var kept = &hasp.LockOptions{Keep: 5 * time.Second}

// useOnce locks "k" and releases it, and returns the fence.
func useOnce(t *testing.T, c *hasp.Client, o *hasp.LockOptions) uint64 {
	t.Helper()
	lease := lock(t, c, "k", o)
	release(t, lease)
	return lease.Fence()
}

// comes waits for a lease.
func comes(t *testing.T, c chan outcome[*hasp.Lease]) *hasp.Lease {
	t.Helper()
	got := <-c
	if got.err != nil {
		t.Fatal(got.err)
	}
	return got.v
}

// isKept says whether the store still has "k", when nothing moves any more.
func isKept(t *testing.T, d driver.Driver) bool {
	t.Helper()
	synctest.Wait()
	return must(d.Inspect(t.Context(), "k")).Held
}

// A key that is kept is granted again without the store, as the same owner, each time with a
// larger fence, and goes back once nobody has wanted it for the time.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		var fence uint64
		owner := ""
		for i := range 10 {
			lease := lock(t, c, "k", kept)
			if lease.Fence() <= fence || i > 0 && lease.Owner() != owner || lease.Abandoned() {
				t.Errorf("grant %d: fence %d after %d, owner %s after %s", i, lease.Fence(), fence, lease.Owner(), owner)
			}
			info := must(d.Inspect(t.Context(), "k"))
			failIf(t, info.Holder.Owner != lease.Owner() || info.Fence < lease.Fence(), "the store knows %+v", info)
			fence, owner = lease.Fence(), lease.Owner()
			release(t, lease)
			wantIs(t, lease.Err(), hasp.ErrNotHeld)
			time.Sleep(4 * time.Second) // renewed meanwhile
		}
		if d.tries.Load() != 1 || d.releases.Load() != 0 || d.renews.Load() < 3 {
			t.Errorf("%d tries, %d releases, %d renewals", d.tries.Load(), d.releases.Load(), d.renews.Load())
		}
		time.Sleep(999 * time.Millisecond)
		failIf(t, !isKept(t, d), "given back too early")
		renews := d.renews.Load()
		time.Sleep(time.Millisecond)
		synctest.Wait()
		mustBeFree(t, d, "k")
		failIf(t, d.renews.Load() != renews, "what goes back is renewed")
		if next := lock(t, newClient(t, d, nil), "k", nil); next.Fence() <= fence || next.Abandoned() {
			t.Errorf("the next one has the fence %d after %d, abandoned %v", next.Fence(), fence, next.Abandoned())
		}
	})
}

// A lease of a key that was kept counts from the store's latest answer, as the one before it did.
func TestKeptLeaseCountsFromTheStoresAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		first := lock(t, c, "k", kept)
		release(t, first)
		time.Sleep(4 * time.Second) // not renewed yet
		again := lock(t, c, "k", kept)
		got, want := again.Deadline(), first.Deadline()
		failIf(t, !got.Equal(want), "the deadline is %v after that of the lease before", got.Sub(want))
	})
}

// The time counts from the last Release, however long the key was held before.
func TestKeepCountsFromTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		for range 3 {
			lease := lock(t, c, "k", kept)
			time.Sleep(time.Hour)
			release(t, lease)
			time.Sleep(4900 * time.Millisecond)
			stopIf(t, !isKept(t, store), "given back too early")
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		mustBeFree(t, store, "k")
	})
}

// Callers of the keeper's client have their turns without the store, in order, until it is told.
func TestKeepGoesOnLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		first := lock(t, c, "k", kept)
		var n atomic.Int64
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				l := lock(t, c, "k", kept)
				got := n.Add(1)
				failIf(t, got != int64(i+1), "caller %d has turn %d", i, got)
				time.Sleep(time.Second)
				release(t, l)
			})
			synctest.Wait()
		}
		release(t, first)
		all.Wait()
		failIf(t, d.tries.Load() != 1, "the store was asked %d times", d.tries.Load())
	})
}

// When the fences are used up, the store is asked for more: for more of them each time.
func TestKeepUsesUpItsFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rows []int
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			rows = append(rows, r.Fences)
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		var fence uint64
		for range 5000 {
			if f := useOnce(t, c, kept); f <= fence {
				t.Fatalf("fence %d after %d", f, fence)
			} else {
				fence = f
			}
		}
		if want := "[16 30 58 114 226 450 898 1024 1024 1024 1024]"; fmt.Sprint(rows) != want || d.releases.Load() != int64(len(rows)-1) {
			t.Errorf("asked for %v fences, want %s", rows, want)
		}
	})
}

// An engine that mints one fence at a time keeps nothing.
func TestKeepWithoutARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			r.Fences = 1
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		var fence uint64
		for range 3 {
			f := useOnce(t, c, kept)
			failIf(t, f <= fence, "fence %d after %d", f, fence)
			fence = f
			mustBeFree(t, d, "k")
		}
	})
}

// TryLock takes what its client keeps, is refused elsewhere while somebody has it, and its own lease is kept.
func TestKeepAndTryLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c, elsewhere := newClient(t, d, nil), newClient(t, d.Driver, nil)
		m := c.Mutex("k", kept)
		for range 3 {
			release(t, must(m.TryLock(t.Context())))
		}
		failIf(t, d.tries.Load() != 1, "the store was asked %d times", d.tries.Load())
		lease := must(m.TryLock(t.Context()))
		_, err := elsewhere.Mutex("k", nil).TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		_, err = m.TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		release(t, lease)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		release(t, must(elsewhere.Mutex("k", nil).TryLock(t.Context())))

		// One that asks while the key is on its way back waits for that.
		useOnce(t, c, kept)
		d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			time.Sleep(time.Second)
			return next(ctx, r)
		})
		time.Sleep(5*time.Second + 500*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = m.TryLock(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		release(t, must(m.TryLock(t.Context())))

		// A TryLock that is refused leaves the lead to who came meanwhile.
		time.Sleep(10 * time.Second)
		other := lock(t, elsewhere, "k", nil)
		d.change(func() {
			d.release = nil
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				time.Sleep(time.Second)
				return next(ctx, r)
			}
		})
		try := begin(t.Context(), m.TryLock)
		synctest.Wait()
		waits := begin(t.Context(), m.Lock)
		wantIs(t, (<-try).err, hasp.ErrHeld)
		release(t, other)
		release(t, comes(t, waits))

		// One whose answer was lost leaves what it may have to who came meanwhile.
		time.Sleep(10 * time.Second)
		d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			d.onTry(nil)
			time.Sleep(time.Second)
			return driver.Result{}, errDown
		})
		releases := d.releases.Load()
		try = begin(t.Context(), m.TryLock)
		synctest.Wait()
		waits = begin(t.Context(), m.Lock)
		wantIs(t, (<-try).err, errDown)
		if lease := comes(t, waits); lease.Err() != nil || d.releases.Load() != releases {
			t.Errorf("%v, %d releases", lease.Err(), d.releases.Load()-releases)
		}
	})
}

// What a client keeps is in nobody's way within that client: it goes back first.
func TestKeepAndOtherLocksOfTheClient(t *testing.T) {
	for name, try := range map[string]func(c *hasp.Client) hasp.Locker{
		"other options": func(c *hasp.Client) hasp.Locker { return c.Mutex("k", nil) },
		"another time":  func(c *hasp.Client) hasp.Locker { return c.Mutex("k", &hasp.LockOptions{Keep: time.Hour}) },
		"reader":        func(c *hasp.Client) hasp.Locker { return c.RWMutex("k", nil).RLocker() },
		"writer":        func(c *hasp.Client) hasp.Locker { return c.RWMutex("k", nil) },
		"semaphore":     func(c *hasp.Client) hasp.Locker { return c.Semaphore("k", 2, nil) },
		"election":      func(c *hasp.Client) hasp.Locker { return c.Election("k", nil) },
	} {
		bubbled(t, name, func(t *testing.T) {
			d, c := newHooked(t)
			for _, ask := range []func(context.Context) (*hasp.Lease, error){try(c).Lock, try(c).TryLock} {
				fence := useOnce(t, c, kept)
				start, tries := time.Now(), d.tries.Load()
				lease := must(ask(t.Context()))
				if lease.Fence() <= fence || time.Since(start) > 0 || d.tries.Load() != tries+1 {
					t.Errorf("fence %d after %d, %v later, by %d Tries", lease.Fence(), fence, time.Since(start), d.tries.Load()-tries)
				}
				release(t, lease)
			}
			all := must(hasp.Locks{c.Mutex("j", kept), try(c)}.Lock(t.Context()))
			check(t, all.Release())
		})
	}
}

func TestKeepOptions(t *testing.T) {
	c := newClient(t, newStore(), nil)
	for name, l := range map[string]hasp.Locker{
		"NoRenew":   c.Mutex("k", &hasp.LockOptions{Keep: 1, NoRenew: true}),
		"negative":  c.Mutex("k", &hasp.LockOptions{Keep: -1}),
		"RWMutex":   c.RWMutex("k", kept),
		"RLocker":   c.RWMutex("k", kept).RLocker(),
		"Semaphore": c.Semaphore("k", 2, kept),
		"Election":  c.Election("k", kept),
	} {
		if lease, err := l.Lock(t.Context()); err == nil {
			t.Errorf("%s: granted", name)
			release(t, lease)
		}
	}
}

// MaxHold, Lead, Extend and contexts are of one lease, not of what is kept.
func TestKeepPassesNothingOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		c := newClient(t, d, nil)
		o := &hasp.LockOptions{Keep: time.Minute, MaxHold: 10 * time.Second, Lead: time.Second, Reentrant: true}
		useOnce(t, c, o)
		time.Sleep(50 * time.Second)
		lease := lock(t, c, "k", o)
		left := time.Until(lease.Deadline())
		failIf(t, left != 10*time.Second, "%v are left of its MaxHold", left)
		ctx := lease.Context(t.Context())
		inner := must(c.Mutex("k", o).Lock(ctx))
		release(t, lease)
		failIf(t, d.tries.Load() != 1 || ctx.Err() == nil, "%d tries, %v", d.tries.Load(), ctx.Err())
		release(t, inner)
		failIf(t, !isKept(t, store), "not kept after a nested lease")
		lease = lock(t, c, "k", o)
		ctx = lease.Context(t.Context())
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != 9*time.Second { // Lead before
			t.Errorf("it ended after %v", took)
		}
		wantIs(t, lease.Release(), hasp.ErrLost)
		synctest.Wait()
		mustBeFree(t, store, "k")

		// A look that was planned for later does not put its end off.
		short := &hasp.LockOptions{Keep: time.Minute, MaxHold: 100 * time.Millisecond}
		useOnce(t, c, short)
		time.Sleep(time.Second)
		lease = lock(t, c, "k", short)
		start = time.Now()
		<-lease.Done()
		failIf(t, time.Since(start) != 100*time.Millisecond, "it ended after %v", time.Since(start))
		wantIs(t, lease.Release(), hasp.ErrLost)

		lease = lock(t, c, "k", o)
		check(t, lease.Extend(t.Context(), time.Hour))
		release(t, lease)
		mustBeFree(t, store, "k")

		lease = lock(t, c, "k", o)
		check(t, lease.Downgrade(t.Context()))
		release(t, lease)
		mustBeFree(t, store, "k")
	})
}

// A lease that nobody can reach is found out as any other, and not kept.
func TestKeepOfADroppedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		o := &hasp.LockOptions{Keep: time.Hour}
		c := newClient(t, store, nil)
		useOnce(t, c, o)
		time.Sleep(time.Minute) // kept, and renewed, without anybody who can reach it
		stopIf(t, !isKept(t, store), "a kept key was forgotten")
		lease := lock(t, c, "k", o)
		time.Sleep(time.Minute)
		if lease.Err() != nil {
			t.Error(lease.Err())
		}
		release(t, lease)
	})
}
