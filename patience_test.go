// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/admission"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/memdriver"
)

// away are the two ways in which a store may be away.
var away = map[string]func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error){
	"refused": func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
		return driver.Result{}, errDown
	},
	"silent": hangTry,
}

// eachAway runs f with a driver whose store is away, from the first call on, and again with one that holds "k" and goes away while another
// waits for it. back ends that.
func eachAway(t *testing.T, o *hasp.Options, f func(t *testing.T, c *hasp.Client, back func())) {
	for name, try := range away {
		for _, known := range []bool{false, true} {
			bubbled(t, fmt.Sprintf("%s, known before: %t", name, known), func(t *testing.T) {
				d := &hooked{Driver: newStore(), classify: func(error) driver.Class { return driver.ClassUnreachable }}
				c := newClient(t, d, o)
				if known {
					lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{NoRenew: true})
					_, err := c.Mutex("k", nil).TryLock(t.Context())
					wantIs(t, err, hasp.ErrHeld)
				}
				d.onTry(try)
				f(t, c, func() { d.onTry(nil) })
			})
		}
	}
}

// Promise 8: a wait for an unreachable store lasts as long as it takes, and an observer is informed.
func TestStoreAwayIsWaitedFor(t *testing.T) {
	var told atomic.Int64
	o := &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
		if e.Kind == event.Trouble {
			told.Store(int64(e.Waited))
		}
	}}
	eachAway(t, o, func(t *testing.T, c *hasp.Client, back func()) {
		const outage = 20 * time.Minute
		start := time.Now()
		time.AfterFunc(outage, back)
		lease := lock(t, c, "k", nil)
		if took := time.Since(start); took < outage || took > outage+10*time.Second {
			t.Errorf("Lock took %v beside an outage of %v", took, outage)
		}
		last := time.Duration(told.Load())
		failIf(t, last < outage-10*time.Second, "nothing was told of the outage after %v", last)
		release(t, lease)
	})
}

// Promise 8: a wait that ends while the store is away says so.
func TestContextEndsWhileTheStoreIsAway(t *testing.T) {
	eachAway(t, nil, func(t *testing.T, c *hasp.Client, _ func()) {
		for _, wait := range []time.Duration{time.Second, time.Minute} {
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			start := time.Now()
			_, err := c.Mutex("k", nil).Lock(ctx)
			wantIs(t, err, context.DeadlineExceeded)
			failIf(t, time.Since(start) != wait, "a Lock for %v took %v", wait, time.Since(start))
			var e *hasp.Error
			var w *hasp.WaitError
			if !errors.As(err, &e) || e.Class != driver.ClassUnreachable || !errors.As(err, &w) || errors.Is(err, hasp.ErrHeld) {
				t.Errorf("after %v the error is %v", wait, err)
			}
		}
	})
}

// A connection whose deadline is that of the context may see it first: what kept the caller waiting is what it was before, not that error.
func TestConnectionEndsJustBeforeTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		lock(t, newClient(t, store, nil), "k", nil)
		d := &hooked{Driver: store, classify: func(error) driver.Class { return driver.ClassUnreachable }}
		const shortly = 100 * time.Millisecond
		late, end := context.WithTimeout(t.Context(), time.Minute+time.Millisecond)
		defer end()
		ctx := early{late}
		by, _ := ctx.Deadline()
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			if time.Until(by) <= shortly {
				time.Sleep(time.Until(by))
				return driver.Result{}, errDown
			}
			return next(ctx, r)
		}
		d.renew = func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			for i := range rs {
				done(i, driver.Renewal{RetryIn: max(time.Until(by)-shortly, 1)})
			}
		}
		_, err := newClient(t, d, nil).Mutex("k", nil).Lock(ctx)
		if wantIs(t, err, hasp.ErrHeld); errors.Is(err, errDown) {
			t.Error(err)
		}
	})
}

// early is a context whose deadline is a little before it ends.
type early struct{ context.Context }

func (c early) Deadline() (time.Time, bool) {
	by, ok := c.Context.Deadline()
	return by.Add(-time.Millisecond), ok
}

// MaxSilence bounds the wait for a store that is away.
func TestMaxSilence(t *testing.T) {
	const most = 20 * time.Second
	eachAway(t, &hasp.Options{MaxSilence: most}, func(t *testing.T, c *hasp.Client, _ func()) {
		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(t.Context())
		var e *hasp.Error
		stopIf(t, !errors.As(err, &e) || e.Class != driver.ClassUnreachable, "the error is %v", err)
		took := time.Since(start)
		failIf(t, took < most*8/10 || took > most, "%v after %v, want about %v", err, took, most)
		failIf(t, errors.As(err, new(*hasp.WaitError)), "nobody ended the wait, yet: %v", err)
	})
}

// What ended the calls before says more than that the last one, which the end of the wait cut short, had no answer.
func TestTheLastErrorIsNotHidden(t *testing.T) {
	for name, ctxTime := range map[string]time.Duration{"MaxSilence": time.Hour, "the context": 13 * time.Second} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore(), classify: func(error) driver.Class { return driver.ClassUnreachable }}
			d.try = func(ctx context.Context, _ driver.TryRequest, _ tryFunc) (driver.Result, error) {
				select {
				case <-time.After(4 * time.Second): // a client that dials again and again, less than a call may take
					return driver.Result{}, errDown
				case <-ctx.Done():
					return driver.Result{}, ctx.Err()
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), ctxTime)
			defer cancel()
			_, err := newClient(t, d, &hasp.Options{MaxSilence: 22 * time.Second}).Mutex("k", nil).Lock(ctx)
			if wantIs(t, err, errDown); strings.Contains(err.Error(), "did not answer") {
				t.Error(err)
			}
		})
	}
}

// Promise 8: what no engine knows is no absence, and may stay for ever.
func TestUnknownErrorsEndLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		var class atomic.Int64
		d.classify = func(error) driver.Class { return driver.Class(class.Load()) }
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		}
		c := newClient(t, d, nil)
		const outage = 20 * time.Minute // before that
		class.Store(int64(driver.ClassUnreachable))
		time.AfterFunc(outage, func() { class.Store(int64(driver.ClassUnknown)) })
		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(t.Context())
		wantIs(t, err, errDown)
		if took := time.Since(start) - outage; took < ttl*8/10 || took > ttl+2*time.Second {
			t.Errorf("%v after %v of unknown errors, want about the TTL of %v", err, took, ttl)
		}
	})
}

// Promise 8: a store that is held back after a restart is waited for.
func TestHeldBackStoreIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.NewNode(memdriver.NodeOptions{MaxTTL: time.Minute})
		var told []time.Duration
		c := newClient(t, store, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.HeldBack {
				told = append(told, e.Left)
				if err, ok := e.Err.(*hasp.Error); !ok || err.Class != driver.ClassUnreachable { //nolint:errorlint // the outermost
					t.Errorf("told of %#v", e.Err)
				}
			}
		}})
		start := time.Now()
		release(t, lock(t, c, "k", nil))
		if took, wait := time.Since(start), admission.Wait(time.Minute); took < wait || took > wait+1500*time.Millisecond { // one pause
			t.Errorf("Lock took %v beside a wait of %v", took, wait)
		}
		failIf(t, len(told) == 0 || told[0] < time.Minute || told[len(told)-1] > 2*time.Second, "told of %v left", told)
	})
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

// A suspend between two questions of a wait: the silence of that time was not the
// store's, and it is asked again before the wait is given up.
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

// The error of a Lock whose context is another key's.
func TestErrorOfALockInALostContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		l := lock(t, c, "a", &hasp.LockOptions{NoRenew: true, TTL: time.Second})
		ctx := l.Context(t.Context())
		<-ctx.Done()
		_, err := c.Mutex("b", nil).Lock(ctx)
		var e *hasp.Error
		failIf(t, !errors.As(err, &e) || e.Key != "b" || e.Op != "lock", "%T %v: %+v", err, err, e)
	})
}

// A hung store looks like the caller's own deadline.
func TestHungStoreIsNotTheCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), try: hangTry}
		_, err := newClient(t, d, &hasp.Options{MaxSilence: time.Minute}).Mutex("k", nil).Lock(context.Background())
		failIf(t, errors.Is(err, context.DeadlineExceeded), "no deadline was given, yet: %v", err)
		var e *hasp.Error
		if errors.As(err, &e); e.Class != driver.ClassUnreachable {
			t.Errorf("class %v", e.Class)
		}
		_, err = newClient(t, d, nil).Mutex("k", nil).TryLock(context.Background())
		failIf(t, errors.Is(err, context.DeadlineExceeded), "TryLock: %v", err)
		failIf(t, !strings.Contains(err.Error(), "did not answer within 5s"), "TryLock: %v", err)
		var late interface{ Timeout() bool }
		failIf(t, !errors.As(err, &late) || !late.Timeout(), "TryLock: %v is no timeout", err)
		d.try = func(ctx context.Context, _ driver.TryRequest, _ tryFunc) (driver.Result, error) {
			<-ctx.Done()
			return driver.Result{}, driver.NotSent(errDown)
		}
		_, err = newClient(t, d, nil).Mutex("k", nil).TryLock(context.Background())
		failIf(t, !strings.Contains(err.Error(), "not asked within 5s: "+errDown.Error()), "a TryLock that was not sent: %v", err)
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
		trouble := make(chan event.Event, 10)
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Trouble {
				trouble <- *e
			}
		}})
		lock(t, c, "k", nil)
		stopIf(t, len(trouble) != 3, "told of %d troubles, want 3", len(trouble))
		told := (<-trouble).Err
		wantIs(t, told, errDown)
		if e, ok := told.(*hasp.Error); !ok || e.Op != "lock" || e.Key != "k" || e.Engine != "memory" { //nolint:errorlint // the outermost
			t.Errorf("told of %#v", told)
		}
	})
}
