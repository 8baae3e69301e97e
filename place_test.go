// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

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
				release(t, l)
			})
			synctest.Wait() // i waits in the queue
		}
		time.Sleep(time.Minute)
		need(t, lease.Release())
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

// Failure case 14: the holder vanished.
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

// hinted returns a hooked store where "k" is held for an hour, and the hints of its waiters.
func hinted(t *testing.T) (d *hooked, holder *hasp.Lease, hints chan driver.Hint) {
	t.Helper()
	d, hints = &hooked{Driver: newStore()}, make(chan driver.Hint, 1)
	d.watch = func(context.Context, driver.Claim, watchFunc) (<-chan driver.Hint, error) { return hints, nil }
	return d, lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{TTL: time.Hour, NoRenew: true}), hints
}

// Stale news override the pause after an error.
func TestStaleNewsOverridesBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, hints := hinted(t)
		c := newClient(t, d, nil)
		go func() { _, _ = c.Mutex("k", nil).Lock(t.Context()) }()
		time.Sleep(time.Minute)
		d.onTry(hangTry)
		hints <- driver.Hint{}
		time.Sleep(4900 * time.Millisecond)
		d.onTry(nil)
		before := d.tries.Load()
		time.Sleep(time.Minute)
		failIf(t, d.tries.Load() == before, "a failed Try was not tried again within a minute")
	})
}

// What the store says of a place while a Try is under way does not put off the moment that the Try's answer names.
func TestOldNewsDoesNotPutOffATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, hints := hinted(t)
		var patience time.Duration
		var queued []time.Time
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if !r.Queue {
				return next(ctx, r)
			}
			patience = r.Patience
			queued = append(queued, time.Now())
			if len(queued) != 2 {
				return next(ctx, r)
			}
			time.Sleep(2 * time.Second) // meanwhile there is a sign of life
			return driver.Result{Why: driver.WhyHeld, RetryIn: time.Second}, nil
		}
		go func() { _, _ = newClient(t, d, nil).Mutex("k", nil).Lock(t.Context()) }()
		synctest.Wait()
		time.Sleep(patience/3 - time.Second)
		before := d.renews.Load()
		hints <- driver.Hint{}
		time.Sleep(time.Minute)
		failIf(t, d.renews.Load() == before, "there was no sign of life")
		if len(queued) < 3 || queued[2].Sub(queued[1]) != 3*time.Second {
			t.Errorf("asked at %v, want the third 3s after the second", queued)
		}
	})
}

// A sign of life that fails does not end the pause after a Try that failed.
func TestFailedSignOfLifeIsNoReasonToTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, hints := hinted(t)
		var away atomic.Bool
		var failed time.Time
		pauses := 0
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if !away.Load() {
				return next(ctx, r)
			}
			if !failed.IsZero() {
				if pauses++; time.Since(failed) == 0 {
					t.Error("there was no pause after a Try without an answer")
				}
			}
			<-ctx.Done()
			failed = time.Now()
			return driver.Result{}, ctx.Err()
		}
		d.renew = failRenew(errDown)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := begin(ctx, newClient(t, d, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		away.Store(true)
		hints <- driver.Hint{}
		failIf(t, (<-got).err == nil, "granted")
		failIf(t, pauses < 5, "%d pauses in a minute", pauses)
	})
}

// Without hints every sign of life brings the next Try forward, but none that was asked
// for before the last Try was answered: a slow store would be asked twice each time.
func TestSlowSignOfLifeIsNoReasonToPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		lock(t, newClient(t, store, nil), "k", &hasp.LockOptions{TTL: time.Hour, NoRenew: true})
		var last time.Time
		d := &hooked{Driver: store}
		d.watch = func(context.Context, driver.Claim, watchFunc) (<-chan driver.Hint, error) { return nil, errDown }
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if r.Queue {
				now := time.Now()
				failIf(t, !last.IsZero() && now.Sub(last) < r.Patience/4, "asked again after %v", now.Sub(last))
				last = time.Now()
			}
			return next(ctx, r)
		}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			time.Sleep(time.Second) // a Try is answered meanwhile
			for i := range rs {
				done(i, driver.Renewal{RetryIn: time.Hour})
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := newClient(t, d, nil).Mutex("k", nil).Lock(ctx)
		failIf(t, err == nil, "granted")
		if d.tries.Load() < 10 || d.renews.Load() < 5 {
			t.Errorf("%d Tries and %d signs of life in a minute", d.tries.Load(), d.renews.Load())
		}
	})
}

// What the store says of a place while a Try is under way brings the next Try forward: the store may have answered the Try first.
func TestNewsWhileATryIsUnderWayBringsTheNextForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, hints := hinted(t)
		var patience time.Duration
		var queued []time.Time
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if r.Queue {
				patience = r.Patience
				if queued = append(queued, time.Now()); len(queued) == 2 {
					time.Sleep(2 * time.Second) // the answer is slow; meanwhile there is a sign of life
				}
			}
			return res, err
		}
		d.renew = func(_ context.Context, _ []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			var r driver.Renewal
			if d.renews.Load() == 1 {
				r.RetryIn = 5 * time.Second
			}
			done(0, r)
		}
		go func() { _, _ = newClient(t, d, nil).Mutex("k", nil).Lock(t.Context()) }()
		synctest.Wait()
		time.Sleep(patience/3 - time.Second)
		hints <- driver.Hint{}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(queued) < 3 || queued[2].Sub(queued[1]) < 5*time.Second || queued[2].Sub(queued[1]) > 7*time.Second {
			t.Errorf("asked at %v, want the third 5 to 7 s after the second", queued)
		}
	})
}

// That the place is gone, as the key was handed over, is news although a Try was answered while the store was asked. The hint is lost here.
func TestNewsOfAHandoffBesideATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, holder, hints := hinted(t)
		var patience time.Duration
		var queued atomic.Int64
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if r.Queue {
				patience = r.Patience
				if queued.Add(1) == 2 {
					time.Sleep(300 * time.Millisecond) // the answer is slow
				}
			}
			return res, err
		}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			if rs[0].Queue && queued.Load() == 2 {
				time.Sleep(200 * time.Millisecond) // the request is slow
				release(t, holder)
			}
			next(ctx, rs, done)
		}
		got := begin(t.Context(), newClient(t, d, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		time.Sleep(patience/3 - 130*time.Millisecond)
		hints <- driver.Hint{} // a spurious one: there is a sign of life during its Try
		began := time.Now()
		if r := <-got; r.err != nil {
			t.Fatal(r.err)
		}
		failIf(t, time.Since(began) != 300*time.Millisecond, "granted after %v, want 300ms", time.Since(began))
	})
}

// A place that is gone ends the pause after a Try that failed: the next one joins anew.
func TestGonePlaceEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, hints := hinted(t)
		later := make(chan time.Duration, 1)
		var away atomic.Bool
		var gone atomic.Pointer[time.Time]
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if !away.Load() {
				return next(ctx, r)
			}
			if at := gone.Swap(nil); at != nil {
				select {
				case later <- time.Since(*at):
				default:
				}
			}
			return driver.Result{}, errDown
		}
		d.renew = func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			if now := time.Now(); away.Load() {
				gone.Store(&now)
			}
			for i := range rs {
				done(i, driver.Renewal{Err: driver.ErrNotHeld})
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := begin(ctx, newClient(t, d, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		away.Store(true)
		hints <- driver.Hint{}
		took := <-later
		failIf(t, took != 0, "it asked %v after its place was gone", took)
		cancel()
		<-got
	})
}
