// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// giveUps are the ways to give up.
var giveUps = map[string]func(ctx context.Context, c *hasp.Client) error{
	"Lock":  func(ctx context.Context, c *hasp.Client) error { _, err := c.Mutex("k", nil).Lock(ctx); return err },
	"RLock": func(ctx context.Context, c *hasp.Client) error { _, err := c.RWMutex("k", nil).RLock(ctx); return err },
	"cohort": func(ctx context.Context, c *hasp.Client) error {
		_, err := c.Mutex("k", inCohort).Lock(ctx)
		return err
	},
	"Locks": func(ctx context.Context, c *hasp.Client) error { _, err := mutexes(c, "a", "k").Lock(ctx); return err },
}

// Promise 5: a Lock that gave up has left the queue, and has nothing else in the
// store, when it returns; the answer of a store that is well takes a while.
func TestGaveUpHasLeft(t *testing.T) {
	for name, giveUp := range giveUps {
		bubbled(t, name, func(t *testing.T) {
			store, d := hookedMem()
			const trip = 200 * time.Millisecond
			d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
				time.Sleep(trip)
				return next(ctx, r)
			}
			in := lock(t, newClient(t, store, nil), "k", nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			wantIs(t, giveUp(ctx, newClient(t, d, nil)), context.DeadlineExceeded, hasp.ErrHeld)
			took := time.Since(start)
			info, err := store.Inspect(t.Context(), "k")
			failIf(t, err != nil || info.Waiters > 0, "%d wait in the queue for k, %v", info.Waiters, err)
			mustBeFree(t, store, "a")
			failIf(t, took > time.Second+2*trip, "it returned after %v", took)
			release(t, in)
			mustBeFree(t, store, "k")
		})
	}
}

// A store that does not answer delays no caller that gave up for longer than a moment, and no more once that is known.
func TestGivingUpOnASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		var silent atomic.Bool
		silent.Store(true)
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if silent.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, r)
		}
		in := lock(t, newClient(t, store, nil), "k", nil)
		c := newClient(t, d, nil)
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := c.Mutex("k", nil).Lock(ctx)
			cancel()
			wantIs(t, err, context.DeadlineExceeded)
			want := time.Second
			if i == 0 {
				want += hasp.Moment
			}
			failIf(t, time.Since(start) != want, "Lock %d for a second took %v, want %v", i, time.Since(start), want)
		}
		silent.Store(false)
		time.Sleep(4 * time.Second) // a release without an answer, and a pause
		if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Waiters > 0 {
			t.Errorf("%d wait in the queue, %v", info.Waiters, err)
		}
		release(t, in)
		mustBeFree(t, store, "k")
	})
}

// What many calls may have left in a store that went away is one set: one request is under way at a time, no goroutine waits for each, and
// all is released once the store answers.
func TestCleanupsAreProbedOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		var away atomic.Bool
		away.Store(true)
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if away.Load() {
				return driver.Result{}, errDown // granted, but the answer is lost
			}
			return res, err
		}
		var under, most atomic.Int64
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			n := under.Add(1)
			defer under.Add(-1)
			if away.Load() {
				most.Store(max(most.Load(), n))
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		const n = 1000
		_, err := c.Mutex("first", nil).TryLock(t.Context())
		wantIs(t, err, errDown)
		before := runtime.NumGoroutine()
		for i := range n {
			_, err := c.Mutex(fmt.Sprint(i), nil).TryLock(t.Context())
			wantIs(t, err, errDown)
		}
		more := runtime.NumGoroutine() - before
		failIf(t, more > 10, "%d goroutines for %d failed calls", more, n)
		time.Sleep(10 * time.Second)
		failIf(t, most.Load() > 1, "%d releases were under way at once at a silent store", most.Load())
		away.Store(false)
		time.Sleep(5 * time.Second)
		for i := range n {
			mustBeFree(t, store, fmt.Sprint(i))
		}
		mustBeFree(t, store, "first")
		start := time.Now()
		if err := c.Close(); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
	})
}

// A release that fails on its own keeps back no other.
func TestOneCleanupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			return driver.Result{}, errDown
		}
		start := time.Now()
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if r.Key == "lost" || time.Since(start) < time.Second {
				return errDown
			}
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		_, err := c.Mutex("lost", &hasp.LockOptions{TTL: time.Hour}).TryLock(t.Context())
		wantIs(t, err, errDown)
		for i := range 100 {
			_, err := c.Mutex(fmt.Sprint(i), &hasp.LockOptions{TTL: time.Hour}).TryLock(t.Context())
			wantIs(t, err, errDown)
		}
		time.Sleep(time.Minute)
		for i := range 100 {
			mustBeFree(t, store, fmt.Sprint(i))
		}
	})
}

// A key whose release is refused delays no other: what a TryLock may have left is gone when it returns.
func TestRefusedReleaseDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &hooked{Driver: store, classify: func(error) driver.Class { return driver.ClassDenied }}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if r.Key == "denied" {
				return errDown
			}
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		wantIs(t, lock(t, c, "denied", &hasp.LockOptions{TTL: time.Hour}).Release(), errDown)
		d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			return driver.Result{}, errDown
		})
		for range 10 {
			time.Sleep(time.Second)
			_, err := c.Mutex("k", nil).TryLock(t.Context())
			wantIs(t, err, errDown)
			mustBeFree(t, store, "k")
		}
	})
}

// A pending release ends when the owner would have expired, and the set has a bound.
func TestCleanupsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		}
		d.release = func(context.Context, driver.ReleaseRequest, releaseFunc) error { return errDown }
		c := newClient(t, d, nil)
		fail := func(n int, ttl time.Duration) {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					if _, err := c.Mutex("k", &hasp.LockOptions{TTL: ttl}).TryLock(t.Context()); !errors.Is(err, errDown) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		fail(100, time.Minute)
		fail(100, 2*time.Minute)
		if n := hasp.PendingReleases(c); n != 200 {
			t.Errorf("%d releases pending, want 200", n)
		}
		time.Sleep(time.Minute + 10*time.Second)
		if n := hasp.PendingReleases(c); n != 100 {
			t.Errorf("%d releases pending, want 100", n)
		}
		time.Sleep(time.Minute)
		if n := hasp.PendingReleases(c); n != 0 {
			t.Errorf("%d releases pending, want none", n)
		}
		before := d.releases.Load()
		time.Sleep(time.Minute)
		failIf(t, d.releases.Load() != before, "the store is still asked")
		fail(hasp.MaxCleanups+1000, time.Hour)
		if n := hasp.PendingReleases(c); n != hasp.MaxCleanups {
			t.Errorf("%d releases pending, want %d", n, hasp.MaxCleanups)
		}
	})
}

// A release stays pending for as long as the store may keep the key, which is longer than the TTL of the options after an Extend, also one
// that had no answer, and for a lease that another process took.
func TestCleanupLastsAsLongAsTheLease(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, c *hasp.Client, d *hooked) *hasp.Lease{
		"Extend": func(t *testing.T, c *hasp.Client, _ *hooked) *hasp.Lease {
			lease := lock(t, c, "k", nil)
			check(t, lease.Extend(t.Context(), time.Hour))
			return lease
		},
		"Extend without an answer": func(t *testing.T, c *hasp.Client, d *hooked) *hasp.Lease {
			lease := lock(t, c, "k", nil)
			d.onRenew(func(ctx context.Context, rs []driver.RenewRequest, _ func(int, driver.Renewal), next renewFunc) {
				next(ctx, rs, func(int, driver.Renewal) {})
			})
			failIf(t, lease.Extend(t.Context(), time.Hour) == nil, "it had an answer")
			d.onRenew(nil)
			if err := lease.Extend(t.Context(), ttl); err != nil { // which shortens nothing
				t.Error(err)
			}
			return lease
		},
		"Adopt": func(t *testing.T, c *hasp.Client, d *hooked) *hasp.Lease {
			before := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{TTL: time.Hour})
			return must(c.Operator().Adopt(t.Context(), "k", before.Owner(), nil))
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			lease := take(t, newClient(t, d, nil), d)
			d.onRelease(func(_ context.Context, r driver.ReleaseRequest, _ releaseFunc) error {
				failIf(t, r.TTL != time.Hour, "the release says that the TTL is %v", r.TTL)
				return errDown
			})
			failIf(t, lease.Release() == nil, "the release was not lost")
			time.Sleep(2 * ttl)
			d.onRelease(nil)
			time.Sleep(2 * ttl)
			mustBeFree(t, d.Driver, "k")
		})
	}
}

// A release that the store does not answer is sent for as long as a Try may be under way, however short the TTL: what comes
// later would have the key for nobody.
func TestCleanupOutlastsALateTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, begun := newStore(), time.Now()
		d := &hooked{Driver: store}
		late := make(chan struct{})
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			go func() {
				defer close(late)
				time.Sleep(8 * time.Second)
				_, _ = next(context.Background(), r)
			}()
			<-ctx.Done()
			return driver.Result{}, ctx.Err()
		}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if time.Since(begun) < 7*time.Second {
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, r)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := newClient(t, d, nil).Mutex("k", &hasp.LockOptions{TTL: time.Second}).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		<-late
		mustBeFree(t, store, "k")
	})
}
