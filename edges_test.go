// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// Close with more holds than workers on a hung store.
func TestCloseManyHoldsOnAHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.release = func(ctx context.Context, _ driver.ReleaseRequest, _ releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c, _ := hasp.New(d, nil)
		start := time.Now()
		var worst time.Duration
		var mu sync.Mutex
		for i := range 300 {
			l := lock(t, c, fmt.Sprint(i), &hasp.LockOptions{TTL: 10 * time.Second})
			ctx := l.Context(context.Background())
			context.AfterFunc(ctx, func() {
				mu.Lock()
				defer mu.Unlock()
				worst = max(worst, time.Since(start))
			})
		}
		_ = c.Close()
		synctest.Wait()
		t.Logf("Close took %v; the last context ended after %v (deadline was at 9.898s)", time.Since(start), worst)
		if time.Since(start) > 6*time.Second {
			t.Error("Close took longer than 5 s")
		}
		if worst > 9898*time.Millisecond {
			t.Error("a lease was believed held after its deadline")
		}
	})
}

// Close does not wait for a Release under way, and aborts it.
func TestCloseAbortsReleaseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		var closedDuring atomic.Bool
		var inRelease atomic.Int64
		d := &closing{hooked: &hooked{Driver: store}}
		d.onClose = func() {
			if inRelease.Load() > 0 {
				closedDuring.Store(true)
			}
		}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			inRelease.Add(1)
			defer inRelease.Add(-1)
			select { // a round trip of 100 ms
			case <-time.After(100 * time.Millisecond):
				return next(ctx, r)
			case <-ctx.Done():
				time.Sleep(time.Millisecond)
				return ctx.Err()
			}
		}
		c, _ := hasp.New(d, nil)
		l := lock(t, c, "k", nil)
		got := make(chan error, 1)
		go func() { got <- l.Release() }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-got; err != nil {
			t.Errorf("Release: %v", err)
		}
		if closedDuring.Load() {
			t.Error("driver.Close was called while a Release was under way")
		}
		mustBeFree(t, store, "k")
	})
}

type closing struct {
	*hooked
	onClose func()
}

func (d *closing) Close() error { d.onClose(); return nil }

// Release during Close: spurious ErrLost from Close.
func TestReleaseDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &hooked{Driver: store}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			time.Sleep(100 * time.Millisecond)
			return next(ctx, r)
		}
		c, _ := hasp.New(d, nil)
		var ls []*hasp.Lease
		for i := range 64 {
			ls = append(ls, lock(t, c, fmt.Sprint(i), nil))
		}
		got := make(chan error, 1)
		go func() { got <- c.Close() }()
		synctest.Wait()
		for _, l := range ls {
			go func() { _ = l.Release() }()
		}
		if err := <-got; err != nil {
			t.Errorf("Close: %.200v", err)
		}
		synctest.Wait()
	})
}

// Context registered after finish never ends.
func TestContextRacesWithLoss(t *testing.T) {
	store := newStore()
	c := newClient(t, store, nil)
	for i := range 3000 {
		l, err := c.Mutex("k", nil).TryLock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		store.Lose("k")
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Extend(context.Background(), time.Minute) })
		var ctxs [8]context.Context
		for i := range ctxs {
			ctxs[i] = l.Context(t.Context()) //nolint:fatcontext // none of them is another's parent
		}
		wg.Wait()
		if l.Err() != nil {
			for _, x := range ctxs {
				if x.Err() == nil {
					t.Fatalf("iteration %d: the lease is lost (%v) and its context lives", i, l.Err())
				}
			}
		}
		_ = l.Release()
	}
}

// One error after a long wait ends Lock.
func TestOneErrorAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		var fail atomic.Bool
		d := &hooked{Driver: store}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if fail.CompareAndSwap(true, false) {
				return driver.Result{}, errDown
			}
			return next(ctx, r)
		}
		holder := lock(t, newClient(t, store, nil), "k", nil)
		c := newClient(t, d, nil)
		got := make(chan error, 1)
		go func() {
			l, err := c.Mutex("k", nil).Lock(t.Context())
			if l != nil {
				defer l.Release()
			}
			got <- err
		}()
		time.Sleep(10 * time.Minute)
		fail.Store(true)
		_ = holder.Release()
		if err := <-got; err != nil {
			t.Errorf("one failed call ended the wait: %v", err)
		}
	})
}

// A large Lead: lost before the first renewal.
func TestLargeLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		l := lock(t, c, "k", &hasp.LockOptions{Lead: 20 * time.Second})
		time.Sleep(5 * time.Minute)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
	})
}

// Engine's word is far below the TTL asked for, one failed renewal.
func TestEnginesWordIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		const word = 10 * time.Second
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			r.TTL = word
			return next(ctx, r)
		}
		var n atomic.Int64
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			if n.Add(1) == 1 {
				done(0, driver.Renewal{Err: errDown})
				return
			}
			rs[0].TTL = word
			next(ctx, rs, done)
		}
		l := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{TTL: 10 * time.Minute})
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Errorf("after %d renewals: %v", n.Load(), err)
		}
	})
}

// Hung calls of long leases use up maxCalls.
func TestHungCallsStarveRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		for i := range 400 { // renewals spread over time
			lock(t, c, fmt.Sprint(i), &hasp.LockOptions{TTL: 10 * time.Minute})
			time.Sleep(250 * time.Millisecond)
		}
		time.Sleep(110 * time.Second)
		l := lock(t, c, "short", nil)
		d.change(func() { d.renew = hangRenew })
		time.Sleep(20 * time.Second)
		d.change(func() { d.renew = nil }) // the store is well again; 9 s are left
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
	})
}

// A suspend that leaves time: not renewed on waking.
func TestSuspendThatLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		var jump atomic.Int64
		hasp.SetClock(c, func() clock.Instant {
			now := clock.System()
			now.Boot += time.Duration(jump.Load())
			now.Wall += time.Duration(jump.Load())
			return now
		})
		l := lock(t, c, "k", nil)
		time.Sleep(5 * time.Second)
		jump.Store(int64(20 * time.Second)) // 4.7 s are left
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Error(err)
		}
	})
}

// A suspend between two questions of a wait: the silence of that time was not the
// store's, and it is asked once more before the wait is given up.
func TestSuspendBetweenTwoTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jump atomic.Int64
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if d.tries.Load() == 1 {
				time.AfterFunc(time.Millisecond, func() { jump.Store(int64(10 * time.Second)) }) // within the pause
				return driver.Result{}, errors.New("connection reset")
			}
			return next(ctx, r)
		}
		c := newClient(t, d, nil)
		hasp.SetClock(c, func() clock.Instant {
			now := clock.System()
			now.Boot += time.Duration(jump.Load())
			now.Wall += time.Duration(jump.Load())
			return now
		})
		if _, err := c.Mutex("k", nil).Lock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Extend reports success on a lost lease.
func TestExtendOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			next(ctx, rs, func(i int, r driver.Renewal) {
				time.Sleep(2 * time.Second)
				done(i, r)
			})
		}
		l := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{NoRenew: true})
		time.Sleep(29 * time.Second)
		if err := l.Extend(t.Context(), time.Minute); err == nil && l.Err() != nil {
			t.Errorf("Extend: nil, but the lease is over: %v", l.Err())
		}
	})
}

// Failing Extends postpone the renewal for ever.
func TestFailingExtendPostponesRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		l := lock(t, c, "k", nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range 60 {
			time.Sleep(time.Second)
			if err := l.Extend(gone, time.Minute); errors.Is(err, hasp.ErrLost) {
				t.Fatal(err)
			}
		}
	})
}

// A slow observer holds up the loss of other leases.
func TestSlowObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), renew: hangRenew}
		c := newClient(t, d, &hasp.Options{Observe: func(e hasp.Event) {
			if e.Kind == hasp.EventLost && e.Key == "a" {
				time.Sleep(time.Minute)
			}
		}})
		start := time.Now()
		lock(t, c, "a", nil)
		time.Sleep(time.Second)
		b := lock(t, c, "b", nil)
		<-b.Context(t.Context()).Done()
		if got := time.Since(start); got > 31*time.Second {
			t.Errorf("the context of b ended %v late", got-time.Second-usable)
		}
		time.Sleep(2 * time.Minute)
	})
}

// Events after EventReleased.
func TestEventAfterReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			next(ctx, rs, func(i int, r driver.Renewal) {
				time.Sleep(2 * time.Second)
				done(i, r)
			})
		}
		var mu sync.Mutex
		var kinds []string
		c := newClient(t, d, &hasp.Options{Observe: func(e hasp.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind.String())
		}})
		l := lock(t, c, "k", nil)
		time.Sleep(11 * time.Second)
		_ = l.Release()
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(kinds, " "); !strings.HasSuffix(got, "released") {
			t.Error(got)
		}
	})
}

// A lost Release request is not sent again.
func TestLostReleaseRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &hooked{Driver: store}
		d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if d.releases.Load() == 1 { // the packet is lost
				<-ctx.Done()
				return ctx.Err()
			}
			return next(ctx, r)
		}
		l := lock(t, newClient(t, d, nil), "k", nil)
		if err := l.Release(); err != nil {
			t.Error(err)
		}
		mustBeFree(t, store, "k")
	})
}

// The error of a Lock whose context is another key's.
func TestErrorOfALockInALostContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		l := lock(t, c, "a", &hasp.LockOptions{NoRenew: true, TTL: time.Second})
		ctx := l.Context(t.Context())
		<-ctx.Done()
		_, err := c.Mutex("b", nil).Lock(ctx)
		var e *hasp.Error
		if !errors.As(err, &e) || e.Key != "b" || e.Op != "lock" {
			t.Errorf("%T %v: %+v", err, err, e)
		}
	})
}

// A hung store looks like the caller's own deadline.
func TestHungStoreIsNotTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), try: hangTry}
		_, err := newClient(t, d, &hasp.Options{MaxSilence: time.Minute}).Mutex("k", nil).Lock(context.Background())
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("no deadline was given, yet: %v", err)
		}
		var e *hasp.Error
		if errors.As(err, &e); e.Class != hasp.ClassUnreachable {
			t.Errorf("class %v", e.Class)
		}
		_, err = newClient(t, d, nil).Mutex("k", nil).TryLock(context.Background())
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v", err)
		}
	})
}

// Close in Lock: is it the caller's cancel?
func TestCloseIsNotTheCallersCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		lock(t, newClient(t, store, nil), "k", nil)
		c := newClient(t, store, nil)
		got := make(chan error, 1)
		go func() { _, err := c.Mutex("k", nil).Lock(context.Background()); got <- err }()
		synctest.Wait()
		_ = c.Close()
		if err := <-got; errors.Is(err, context.Canceled) {
			t.Errorf("nobody cancelled, yet: %v", err)
		}
	})
}

// Close frees the key while Do's function runs.
func TestCloseDuringDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		var running atomic.Bool
		go func() {
			_ = c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
				running.Store(true)
				<-ctx.Done()
				time.Sleep(time.Second) // winds up
				running.Store(false)
				return nil
			})
		}()
		synctest.Wait()
		go c.Close()
		lock(t, newClient(t, store, nil), "k", nil)
		if running.Load() {
			t.Error("another has the key while f runs")
		}
		time.Sleep(time.Minute)
	})
}

// Close with a hung Inspect.
func TestCloseDuringInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hungInspect{Driver: newStore()}
		c, _ := hasp.New(h, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = c.Inspect(ctx, "k") }()
		synctest.Wait()
		start := time.Now()
		_ = c.Close()
		if h.in.Load() > 0 {
			t.Errorf("driver.Close was called after %v with an Inspect under way", time.Since(start))
		}
	})
}

type hungInspect struct {
	driver.Driver
	in atomic.Int64
}

func (d *hungInspect) Inspect(ctx context.Context, _ string) (driver.Info, error) {
	d.in.Add(1)
	defer d.in.Add(-1)
	<-ctx.Done()
	return driver.Info{}, ctx.Err()
}

// A TTL so large that the clean-up's limit overflows.
func TestHugeTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &hooked{Driver: store}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			return driver.Result{}, errDown
		}
		c := newClient(t, d, nil)
		if _, err := c.Mutex("k", &hasp.LockOptions{TTL: math.MaxInt64}).TryLock(t.Context()); err == nil {
			t.Error("an error was swallowed")
		}
		synctest.Wait()
		mustBeFree(t, store, "k")
	})
}

// Stale news override the pause after an error.
func TestStaleNewsOverridesBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		lock(t, newClient(t, store, nil), "k", &hasp.LockOptions{TTL: time.Hour, NoRenew: true})
		d := &hooked{Driver: store}
		hints := make(chan struct{}, 1)
		d.watch = func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan struct{}, error) {
			return hints, nil
		}
		c := newClient(t, d, nil)
		go func() { _, _ = c.Mutex("k", nil).Lock(t.Context()) }()
		time.Sleep(time.Minute)
		d.change(func() { d.try = hangTry })
		hints <- struct{}{}
		time.Sleep(4900 * time.Millisecond)
		d.change(func() { d.try = nil })
		before := d.tries.Load()
		time.Sleep(time.Minute)
		if d.tries.Load() == before {
			t.Error("a failed Try was not tried again within a minute")
		}
	})
}
