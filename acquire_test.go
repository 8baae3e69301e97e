// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

func TestTryLockSaysWhoHoldsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		lease := lock(t, c, "orders/42", &hasp.LockOptions{Reason: "nightly"})
		_, err := c.Mutex("orders/42", nil).TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		var held *hasp.HeldError
		if !errors.As(err, &held) || held.Holder.Owner != lease.Owner() || held.Left != ttl {
			t.Fatalf("the refusal is %+v", held)
		}
		if l := held.Holder.Describe(); l.Reason != "nightly" || l.PID == 0 {
			t.Fatalf("the holder is %+v", l)
		}
		if s := err.Error(); !strings.HasPrefix(s, `hasp: try lock "orders/42": held by `) || !strings.Contains(s, "30s left") {
			t.Fatalf("the text is %s", s)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		next, err := c.Mutex("orders/42", nil).TryLock(t.Context())
		if err != nil || next.Fence() <= lease.Fence() {
			t.Fatalf("%v, fence %d after %d", err, next.Fence(), lease.Fence())
		}
	})
}

// Promise 4: a waiter that gives up leaves no place and hands on what it was
// given; failure case 18: both errors are found.
func TestCancelledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		lease := lock(t, c, "k", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded, hasp.ErrHeld)
		if took := time.Since(start); took != time.Second {
			t.Fatalf("gave up after %v", took)
		}
		synctest.Wait()
		if info, _ := store.Inspect(t.Context(), "k"); info.Waiters != 0 {
			t.Fatalf("%d places left", info.Waiters)
		}
		dead, cancel2 := context.WithCancelCause(t.Context())
		why := errors.New("changed my mind")
		cancel2(why)
		_, err = c.Mutex("k", nil).Lock(dead)
		wantIs(t, err, context.Canceled, why)
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		mustBeFree(t, store, "k")
	})
}

// Failure case 11: the context ends while the request is under way and the
// store carries it out; gone within moments of the link's return.
func TestCancelWhileTheRequestIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &hooked{Driver: store}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if _, err := next(ctx, r); err != nil {
				return driver.Result{}, err
			}
			<-ctx.Done() // granted, and the reply never comes
			return driver.Result{}, ctx.Err()
		}
		back := time.Now().Add(8 * time.Second)
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if time.Now().Before(back) {
				return errDown
			}
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("k", nil).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		if info, _ := store.Inspect(t.Context(), "k"); !info.Held {
			t.Fatal("the case is void: the store did not grant")
		}
		time.Sleep(time.Until(back) + 2*time.Second)
		mustBeFree(t, store, "k")
	})
}

// Failure case 13: a lost reply to an acquire repairs itself; to a release it
// is not "not held".
func TestLostReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if d.tries.Load() == 1 {
				return driver.Result{}, errDown
			}
			return res, err
		}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			err := next(ctx, r)
			if d.releases.Load() == 1 {
				return errDown
			}
			return err
		}
		c := newClient(t, d, nil)
		lease := lock(t, c, "k", nil)
		if n := d.tries.Load(); n != 2 {
			t.Fatalf("%d tries", n)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		mustBeFree(t, d, "k")
		if err := lease.Release(); err != nil || d.releases.Load() != 2 {
			t.Fatalf("the second Release: %v, %d sent", err, d.releases.Load())
		}
	})
}

// TryLock never tries again.
func TestTryLockAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		}
		_, err := newClient(t, d, nil).Mutex("k", nil).TryLock(t.Context())
		wantIs(t, err, errDown)
		if n := d.tries.Load(); n != 1 {
			t.Fatalf("%d tries", n)
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
