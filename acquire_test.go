// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"strings"
	"sync"
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

// Promise 4: the grants come in the order of arrival.
func TestLockIsFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		lease := lock(t, c, "k", nil)
		var mu sync.Mutex
		var order []int
		var fences []uint64
		var wg sync.WaitGroup
		const n = 100
		for i := range n {
			wg.Go(func() {
				l, err := c.Mutex("k", nil).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order, fences = append(order, i), append(fences, l.Fence())
				mu.Unlock()
				time.Sleep(time.Minute) // longer than TTL and patience: signs of life matter
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait() // i stands in line
		}
		time.Sleep(time.Minute)
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		last := lease.Fence()
		for i := range n {
			if order[i] != i || fences[i] <= last {
				t.Fatalf("grant %d went to waiter %d with fence %d after %d", i, order[i], fences[i], last)
			}
			last = fences[i]
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

// Failure case 15: released between the first try and the subscription.
func TestReleaseBetweenTryAndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		lease := lock(t, c, "k", nil)
		d.watch = func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan struct{}, error) {
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
			return next(ctx, r)
		}
		start := time.Now()
		lock(t, c, "k", nil)
		if took := time.Since(start); took != 0 {
			t.Fatalf("waited %v for a free key", took)
		}
	})
}

// Promise 4: a lost hint costs a bounded delay.
func TestLostHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.watch = func(context.Context, driver.Claim, watchFunc) (<-chan struct{}, error) {
			return make(chan struct{}), nil // nothing ever arrives
		}
		c := newClient(t, d, nil)
		lease := lock(t, c, "k", nil)
		got := make(chan *hasp.Lease)
		go func() {
			l, err := c.Mutex("k", nil).Lock(t.Context())
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		<-got
		if took := time.Since(start); took > 10*time.Second/3+time.Second {
			t.Fatalf("a lost hint cost %v", took)
		}
	})
}

// Failure case 14: the holder is gone without a word.
func TestHolderVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		gone := driver.Claim{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), Label: "{}"}
		if res, err := store.Try(t.Context(), driver.TryRequest{Claim: gone, TTL: ttl}); err != nil || !res.Granted {
			t.Fatal(res, err)
		}
		start := time.Now()
		lock(t, newClient(t, store, nil), "k", nil)
		if took := time.Since(start); took < ttl || took > ttl+50*time.Millisecond {
			t.Fatalf("the key of a holder that vanished came after %v, want %v", took, ttl)
		}
	})
}

// Promise 7, failure case 17: what will not go away by itself ends Lock at once.
func TestTroubleThatEndsLock(t *testing.T) {
	for _, class := range []hasp.Class{hasp.ClassDenied, hasp.ClassMisconfigured, hasp.ClassFull, hasp.ClassReadOnly} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore(), classify: func(error) driver.Class { return class }}
			d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
				return driver.Result{}, errDown
			}
			start := time.Now()
			_, err := newClient(t, d, nil).Mutex("k", nil).Lock(t.Context())
			wantIs(t, err, errDown)
			var e *hasp.Error
			if !errors.As(err, &e) || e.Class != class || time.Since(start) > 0 || d.tries.Load() != 1 {
				t.Fatalf("%v after %v and %d tries", err, time.Since(start), d.tries.Load())
			}
		})
	}
}

// Lock outlives a store that is away for a moment, and says so.
func TestShortOutageWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if d.tries.Load() <= 3 {
				return driver.Result{}, errDown
			}
			return next(ctx, r)
		}
		trouble := make(chan hasp.Event, 10)
		c := newClient(t, d, &hasp.Options{Observe: func(e hasp.Event) {
			if e.Kind == hasp.EventTrouble {
				trouble <- e
			}
		}})
		lock(t, c, "k", nil)
		if len(trouble) != 3 {
			t.Fatalf("told of %d troubles, want 3", len(trouble))
		}
		wantIs(t, (<-trouble).Err, errDown)
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

// Failure case 4 and 29: bad input never reaches the store.
func TestBadInput(t *testing.T) {
	d := &hooked{Driver: newStore()}
	c := newClient(t, d, nil)
	for name, m := range map[string]*hasp.Mutex{
		"empty key":         c.Mutex("", nil),
		"513 bytes":         c.Mutex(strings.Repeat("k", 513), nil),
		"negative TTL":      c.Mutex("k", &hasp.LockOptions{TTL: -1}),
		"TTL too small":     c.Mutex("k", &hasp.LockOptions{TTL: d.Traits().MinTTL - 1}),
		"negative lead":     c.Mutex("k", &hasp.LockOptions{Lead: -1}),
		"lead over the TTL": c.Mutex("k", &hasp.LockOptions{Lead: ttl}),
		"negative MaxHold":  c.Mutex("k", &hasp.LockOptions{MaxHold: -1}),
	} {
		if _, err := m.Lock(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "hasp: lock ") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := m.TryLock(t.Context()); err == nil {
			t.Errorf("%s: TryLock took it", name)
		}
	}
	if n := d.tries.Load(); n != 0 {
		t.Errorf("%d requests reached the store", n)
	}
	for _, key := range []string{"a\x00b", "a\nb", "{", "}", "{}", "a{b}c", "\xff\xfe", strings.Repeat("k", 512)} {
		lease := lock(t, c, key, nil)
		if err := lease.Release(); err != nil {
			t.Errorf("%q: %v", key, err)
		}
		mustBeFree(t, d, key)
	}
}

// Failure case 25: one options value serves any number of locks.
func TestOptionsAreShared(t *testing.T) {
	c := newClient(t, newStore(), nil)
	o := &hasp.LockOptions{Reason: "shared"}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			lease, err := c.Mutex("k", o).Lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if *o != (hasp.LockOptions{Reason: "shared"}) {
		t.Errorf("the options were changed: %+v", *o)
	}
}
