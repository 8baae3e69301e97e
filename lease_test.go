// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

const usable = ttl - ttl/100 - 2*time.Millisecond // of a lease, from before the request

// Promise 1: validity is counted from before the request.
func TestDeadlineCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			time.Sleep(2 * time.Second) // the reply is slow
			return res, err
		}
		start := time.Now()
		lease := lock(t, newClient(t, d, nil), "k", nil)
		if got, want := lease.Deadline(), start.Add(usable); !got.Equal(want) {
			t.Fatalf("the deadline is %v after the request began, want %v", got.Sub(start), usable)
		}
	})
}

// Failure case 3: the reply to an acquire arrives later than the TTL.
func TestLateGrantIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &hooked{Driver: store}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			time.Sleep(2 * time.Second)
			return res, err
		}
		c := newClient(t, d, nil)
		if _, err := c.Mutex("k", &hasp.LockOptions{TTL: time.Second}).TryLock(t.Context()); err == nil {
			t.Fatal("a lease whose deadline has passed was returned")
		}
		synctest.Wait()
		mustBeFree(t, store, "k")

		var slow atomic.Bool
		slow.Store(true)
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if slow.CompareAndSwap(true, false) {
				time.Sleep(990 * time.Millisecond)
			}
			return res, err
		}
		lease := lock(t, c, "k", &hasp.LockOptions{TTL: time.Second})
		if left := time.Until(lease.Deadline()); left < 900*time.Millisecond {
			t.Fatalf("Lock returned a lease with %v left after a late grant", left)
		}
	})
}

// Promise 2, failure case 1: loss is declared by the clock while every call
// to the store hangs, and before anybody else can have the key.
func TestLossNeedsNoNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), renew: hangRenew}
		lost := make(chan hasp.Event, 1)
		c := newClient(t, d, &hasp.Options{Observe: func(e hasp.Event) {
			if e.Kind == hasp.EventLost {
				lost <- e
			}
		}})
		start := time.Now()
		const lead = 3 * time.Second
		lease := lock(t, c, "k", &hasp.LockOptions{Lead: lead})
		ctx := lease.Context(t.Context())
		<-ctx.Done()
		if got := time.Since(start); got != usable-lead {
			t.Fatalf("the context ended after %v, want %v", got, usable-lead)
		}
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		wantIs(t, lease.Err(), hasp.ErrLost)
		<-lease.Done()
		if e := <-lost; !errors.Is(e.Err, hasp.ErrLost) || e.Held != usable-lead {
			t.Fatalf("the event is %+v", e)
		}
		d.change(func() { d.renew = nil })
		wantIs(t, lease.Release(), hasp.ErrLost)
		mustBeFree(t, d, "k")
	})
}

// Promise 1 and 2: a machine that slept, or whose wall clock jumped, is seen
// within one tick, and by Err at once.
func TestLossIsSeenByTheClockThatShowsMost(t *testing.T) {
	for name, jump := range map[string]clock.Instant{
		"the machine slept":               {Boot: time.Minute, Wall: time.Minute},
		"the wall clock stepped forward":  {Wall: time.Minute},
		"the wall clock stepped backward": {Wall: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t, newStore(), nil)
				var jumped atomic.Bool
				hasp.SetClock(c, func() clock.Instant {
					now := clock.System()
					if jumped.Load() {
						now.Wall += jump.Wall
						now.Boot += jump.Boot
					}
					return now
				})
				lease := lock(t, c, "k", nil)
				ctx := lease.Context(t.Context())
				time.Sleep(time.Second)
				jumped.Store(true)
				if jump.Wall < 0 {
					time.Sleep(time.Minute)
					if err := lease.Err(); err != nil {
						t.Fatalf("a step back ended the lease: %v", err)
					}
					return
				}
				woke := time.Now()
				<-ctx.Done()
				if took := time.Since(woke); took > 250*time.Millisecond {
					t.Fatalf("the context ended %v later", took)
				}
				wantIs(t, lease.Err(), hasp.ErrLost)
			})
		})
	}
}

// Promise 2: lease.Err asks the clock: code that just woke up learns the truth
// even before the renewer ran.
func TestErrAsksTheClock(t *testing.T) {
	c := newClient(t, newStore(), nil)
	var offset atomic.Int64
	hasp.SetClock(c, func() clock.Instant {
		now := clock.System()
		now.Boot += time.Duration(offset.Load())
		return now
	})
	lease := lock(t, c, "k", nil)
	offset.Store(int64(time.Minute))
	wantIs(t, lease.Err(), hasp.ErrLost)
}

// Promise 3: at TTL/3 the due leases go out together, and holding many costs
// no goroutine each.
func TestRenewalsGoOutTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		const n = 2000
		before := runtime.NumGoroutine()
		leases := make([]*hasp.Lease, n)
		for i := range leases {
			leases[i] = lock(t, c, "k"+strconv.Itoa(i), nil)
		}
		if got := runtime.NumGoroutine() - before; got > n/10 {
			t.Errorf("%d leases cost %d goroutines", n, got)
		}
		time.Sleep(3 * ttl)
		for _, l := range leases {
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.renews.Load(); got < 8 || got > 12 {
			t.Errorf("%d Renew calls for %d leases in 3 TTLs, want about 9", got, n)
		}
	})
}

// Failure case 23: one renewal that failed does not lose the lease, nor do two.
func TestFailedRenewalIsTriedAgain(t *testing.T) {
	for name, broken := range map[string]func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc){
		"error": func(_ context.Context, _ []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			done(0, driver.Renewal{Err: errDown})
		},
		"silence": hangRenew,
		"no report": func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc) {
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &hooked{Driver: newStore()}
				d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
					if d.renews.Load() <= 2 {
						broken(ctx, rs, done, next)
						return
					}
					next(ctx, rs, done)
				}
				lease := lock(t, newClient(t, d, nil), "k", nil)
				time.Sleep(10 * ttl)
				if err := lease.Err(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// Promise 3: each outcome counts by itself; a lease that is not reported does
// not decide about the others.
func TestRenewalsAreReportedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			for i, r := range rs {
				if r.Key == "alive" {
					next(ctx, rs[i:i+1], func(_ int, a driver.Renewal) { done(i, a) })
				}
			}
			<-ctx.Done() // the rest hangs
		}
		c := newClient(t, d, nil)
		dead, alive := lock(t, c, "dead", nil), lock(t, c, "alive", nil)
		time.Sleep(5 * ttl)
		wantIs(t, dead.Err(), hasp.ErrLost)
		if err := alive.Err(); err != nil {
			t.Fatal(err)
		}
	})
}

// A store that says that the key is another's ends the lease at once.
func TestStoreWordEndsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		lease := lock(t, c, "k", nil)
		store.Lose("k")
		start := time.Now()
		<-lease.Done()
		if took := time.Since(start); took > ttl/3 {
			t.Fatalf("told after %v, want at the next renewal", took)
		}
		wantIs(t, lease.Err(), hasp.ErrLost, hasp.ErrNotHeld)
	})
}

func TestNoRenewEndsAfterTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		start := time.Now()
		lease := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
		<-lease.Done()
		if took := time.Since(start); took != usable {
			t.Fatalf("over after %v, want %v", took, usable)
		}
	})
}

func TestMaxHoldBoundsARenewedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		start := time.Now()
		lease := lock(t, c, "k", &hasp.LockOptions{MaxHold: 10 * time.Minute, Lead: time.Second})
		<-lease.Done()
		if took := time.Since(start); took != 10*time.Minute-time.Second {
			t.Fatalf("over after %v", took)
		}
		wantIs(t, lease.Err(), hasp.ErrLost)
		if !strings.Contains(lease.Err().Error(), "MaxHold") {
			t.Errorf("the error does not say why: %v", lease.Err())
		}
	})
}

// MaxHold is about work, which begins when LockAll has all keys.
func TestMaxHoldDoesNotCountTheWaitForOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		other := lock(t, c, "b", nil)
		time.AfterFunc(time.Hour, func() { _ = other.Release() })
		o := &hasp.LockOptions{MaxHold: 10 * time.Minute}
		leases, err := hasp.LockAll(t.Context(), c.Mutex("a", o), c.Mutex("b", o))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-leases.Done()
		if took := time.Since(start); took != 10*time.Minute {
			t.Fatalf("over after %v", took)
		}
		if err := leases.Err(); !errors.Is(err, hasp.ErrLost) || !strings.Contains(err.Error(), "MaxHold") {
			t.Errorf("the error does not say why: %v", err)
		}
	})
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		lease := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
		time.Sleep(20 * time.Second)
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.Deadline()); left < 59*time.Minute || left > time.Hour-36*time.Second-2*time.Millisecond {
			t.Fatalf("%v left after an extension by an hour", left)
		}
		if err := lease.Extend(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.Deadline()); left < 50*time.Minute {
			t.Fatalf("a short extension shortened the lease to %v", left)
		}
		for _, bad := range []time.Duration{0, -time.Second} {
			if err := lease.Extend(t.Context(), bad); err == nil {
				t.Errorf("extended by %v", bad)
			}
		}
		store.Lose("k")
		wantIs(t, lease.Extend(t.Context(), time.Minute), hasp.ErrNotHeld)
		wantIs(t, lease.Err(), hasp.ErrLost)
		wantIs(t, lease.Extend(t.Context(), time.Minute), hasp.ErrLost)
	})
}

// Three contexts, never mixed; failure case 19.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		wait, cancelWait := context.WithCancel(t.Context())
		lease, err := c.Mutex("k", nil).Lock(wait)
		if err != nil {
			t.Fatal(err)
		}
		parent, cancelParent := context.WithCancelCause(t.Context())
		ours, other := lease.Context(parent), lease.Context(context.Background())
		cancelWait()
		time.Sleep(5 * ttl)
		if lease.Err() != nil || ours.Err() != nil {
			t.Fatal("the end of the wait's context ended the hold")
		}
		why := errors.New("shutting down")
		cancelParent(why)
		wantIs(t, context.Cause(ours), why)
		if other.Err() != nil {
			t.Fatal("one context's parent ended another")
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		if cause := context.Cause(other); cause != context.Canceled {
			t.Fatalf("the cause after Release is %v", cause)
		}
		if after := lease.Context(t.Context()); after.Err() == nil {
			t.Fatal("a released lease gave a live context")
		}
		wantIs(t, lease.Err(), hasp.ErrNotHeld)
		mustBeFree(t, store, "k")
	})
}

func TestReentrance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		outer := lock(t, c, "k", nil)
		ctx := outer.Context(t.Context())

		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(ctx)
		wantIs(t, err, hasp.ErrHeld)
		if time.Since(start) > 0 || !strings.Contains(err.Error(), "already held by this context") {
			t.Fatalf("without Reentrant: %v after %v", err, time.Since(start))
		}
		again := c.Mutex("k", &hasp.LockOptions{Reentrant: true})
		inner, err := again.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if inner.Fence() != outer.Fence() || d.tries.Load() != 1 {
			t.Fatalf("fence %d in %d, %d tries", inner.Fence(), outer.Fence(), d.tries.Load())
		}
		if err := outer.Release(); err != nil {
			t.Fatal(err)
		}
		if inner.Err() != nil || d.releases.Load() != 0 {
			t.Fatal("the first Release of two released")
		}
		innerCtx := inner.Context(t.Context())
		if ctx.Err() == nil || innerCtx.Err() != nil {
			t.Fatal("Release must end the contexts of its own lease, and no other's")
		}
		if err := inner.Release(); err != nil || d.releases.Load() != 1 {
			t.Fatalf("the last Release: %v, %d releases", err, d.releases.Load())
		}
		mustBeFree(t, d, "k")

		// Other keys and other clients are not the same lock.
		a := lock(t, c, "a", nil)
		if _, err := again.Lock(a.Context(t.Context())); err != nil {
			t.Fatal(err)
		}
		_, err = newClient(t, d, nil).Mutex("a", &hasp.LockOptions{Reentrant: true}).TryLock(a.Context(t.Context()))
		wantIs(t, err, hasp.ErrHeld)
	})
}

func TestReentranceIntoALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		lease := lock(t, c, "k", nil)
		ctx := context.WithoutCancel(lease.Context(t.Context()))
		store.Lose("k")
		<-lease.Done()
		_, err := c.Mutex("k", &hasp.LockOptions{Reentrant: true}).Lock(ctx)
		wantIs(t, err, hasp.ErrLost)
	})
}

// Promise 6: a long lease keeps nothing of contexts whose parents ended.
func TestContextsOfEndedParentsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := lock(t, newClient(t, newStore(), nil), "k", nil)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			lease.Context(ctx)
			cancel()
		}
		synctest.Wait()
		if n := hasp.Contexts(lease); n != 0 {
			t.Fatalf("%d contexts are kept", n)
		}
	})
}
