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
	"github.com/hasplock/hasp/driver/voting"
)

// A downgrade wakes the readers that wait, at once, and no writer; it keeps the fence, the contexts and the renewal.
func TestDowngradeWakesReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		c, other := newClient(t, d, nil), newClient(t, store, nil)
		w := must(c.RWMutex("k", nil).Lock(t.Context()))
		ctx, fence := w.Context(t.Context()), w.Fence()
		r1, r2 := begin(t.Context(), other.RWMutex("k", nil).RLock), begin(t.Context(), newClient(t, store, nil).RWMutex("k", nil).RLock)
		synctest.Wait()
		writer := begin(t.Context(), other.RWMutex("k", nil).Lock)
		synctest.Wait()
		start := time.Now()
		before := d.tries.Load()
		for range 2 { // the second has nothing to do
			need(t, w.Downgrade(t.Context()))
		}
		failIf(t, d.tries.Load()-before != 1, "the store was asked %d times", d.tries.Load()-before)
		synctest.Wait()
		a, b := granted(t, "a reader", r1), granted(t, "a reader", r2)
		waits(t, "the writer", writer)
		failIf(t, time.Since(start) != 0, "the readers waited for %v", time.Since(start))
		if w.Mode() != hasp.Shared || w.Fence() != fence || a.Fence() <= fence || b.Fence() <= fence {
			t.Errorf("%v with fence %d, was %d; the readers have %d and %d", w.Mode(), w.Fence(), fence, a.Fence(), b.Fence())
		}
		release(t, a)
		release(t, b)
		time.Sleep(10 * ttl)
		stopIf(t, w.Err() != nil || ctx.Err() != nil, "the lease: %v, its context: %v", w.Err(), context.Cause(ctx))
		waits(t, "the writer", writer)
		release(t, w)
		if next := (<-writer).v; next.Fence() <= b.Fence() {
			t.Errorf("the next writer has fence %d", next.Fence())
		} else {
			release(t, next)
		}
		mustBeFree(t, store, "k")
	})
}

// A downgrade whose request or answer was lost is requested again.
func TestDowngradeIsAskedAgain(t *testing.T) {
	for name, broken := range map[string]func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error){
		"the request was lost": func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		},
		"the answer was lost": func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			return driver.Result{}, errDown
		},
		"no answer": hangTry,
		"the node is held back": func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{Why: voting.NotVoting}, nil
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			store, d := hookedMem()
			c := newClient(t, d, nil)
			w := must(c.RWMutex("k", nil).Lock(t.Context()))
			reader := begin(t.Context(), newClient(t, store, nil).RWMutex("k", nil).RLock)
			synctest.Wait()
			var n atomic.Int64
			d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				if !r.Convert || r.Mode != driver.Shared || r.Fence != w.Fence() || r.Queue {
					t.Errorf("the request is %+v", r)
				}
				if n.Add(1) <= 2 {
					return broken(ctx, r, next)
				}
				return next(ctx, r)
			})
			need(t, w.Downgrade(t.Context()))
			failIf(t, n.Load() != 3, "asked %d times", n.Load())
			synctest.Wait()
			release(t, granted(t, "the reader", reader))
			release(t, w)
			mustBeFree(t, store, "k")
		})
	}
}

// When the store may not know of a downgrade, the lease is Shared all the same: renewals and the release say so, and nothing is written
// under it any more. Another Downgrade asks again.
func TestDowngradeOfUnknownOutcome(t *testing.T) {
	for name, try := range map[string]func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error){
		"the request was lost": hangTry,
		"the answer was lost": func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			<-ctx.Done()
			return driver.Result{}, ctx.Err()
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			store, d := hookedMem()
			c := newClient(t, d, nil)
			m := c.RWMutex("k", reentrant)
			w := must(m.Lock(t.Context()))
			var renews atomic.Pointer[driver.RenewRequest]
			var releases atomic.Pointer[driver.ReleaseRequest]
			d.change(func() {
				d.try = try
				d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
					renews.Store(&rs[0])
					next(ctx, rs, done)
				}
				d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
					releases.Store(&r)
					return next(ctx, r)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := w.Downgrade(ctx)
			wantIs(t, err, context.DeadlineExceeded)
			if errors.Is(err, hasp.ErrLost) || w.Err() != nil || w.Mode() != hasp.Shared {
				t.Fatalf("%v; the lease is %v, %v", err, w.Mode(), w.Err())
			}
			_, err = m.Lock(w.Context(t.Context()))
			wantIs(t, err, hasp.ErrHeld) // it writes no more
			time.Sleep(ttl)
			if r := renews.Load(); r == nil || r.Mode != driver.Shared {
				t.Errorf("a renewal says %+v", r)
			}
			d.onTry(nil)
			need(t, w.Downgrade(t.Context()))
			release(t, must(newClient(t, store, nil).RWMutex("k", nil).TryRLock(t.Context())))
			release(t, w)
			if r := releases.Load(); r == nil || r.Mode != driver.Shared || r.Settled || r.End == driver.EndUnfinished {
				t.Errorf("the release says %+v", r)
			}
			mustBeFree(t, store, "k")
		})
	}
}

// Without a deadline of the caller's, a downgrade that has no answer while
// renewals have ends after the TTL; one whose lease is lost, with that.
func TestDowngradeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		w := must(c.RWMutex("k", nil).Lock(t.Context()))
		d.onTry(func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		})
		start := time.Now()
		err := w.Downgrade(t.Context())
		wantIs(t, err, errDown)
		took := time.Since(start)
		failIf(t, took > ttl+2*time.Second || w.Err() != nil, "it ended after %v; the lease: %v", took, w.Err())
		release(t, w)

		d.onTry(nil)
		w = must(c.RWMutex("k", nil).Lock(t.Context()))
		d.change(func() { d.try, d.renew = hangTry, hangRenew })
		wantIs(t, w.Downgrade(t.Context()), hasp.ErrLost)
		wantIs(t, w.Err(), hasp.ErrLost)
	})
}

// A downgrade that the store refuses says that the lease is lost: its contexts end.
func TestDowngradeOfALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		w := must(c.RWMutex("k", nil).Lock(t.Context()))
		ctx := w.Context(t.Context())
		store.Lose("k")
		other := must(newClient(t, store, nil).Mutex("k", nil).TryLock(t.Context()))
		wantIs(t, w.Downgrade(t.Context()), hasp.ErrLost, hasp.ErrNotHeld)
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		wantIs(t, w.Downgrade(t.Context()), hasp.ErrLost)
		wantIs(t, w.Release(), hasp.ErrLost)
		release(t, other)
		wantIs(t, other.Downgrade(t.Context()), hasp.ErrNotHeld)
	})
}

// A refusal without a request to the store leaves the lease a writer's.
func TestDowngradeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		m := c.RWMutex("k", reentrant)
		w := must(m.Lock(t.Context()))
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		wantIs(t, w.Downgrade(dead), context.Canceled)

		inner := must(m.Lock(w.Context(t.Context())))
		wantIs(t, w.Downgrade(t.Context()), hasp.ErrHeld)
		wantIs(t, inner.Downgrade(t.Context()), hasp.ErrHeld)
		reader := must(m.RLock(w.Context(t.Context())))
		if err := reader.Downgrade(t.Context()); err != nil {
			t.Errorf("a nested read has nothing to do: %v", err)
		}
		exclusive := newClient(t, &without{Driver: d}, nil)
		alone := lock(t, exclusive, "alone", nil)
		wantIs(t, alone.Downgrade(t.Context()), hasp.ErrUnsupported)
		failIf(t, d.tries.Load() != 2, "asked %d times", d.tries.Load())
		for _, l := range []*hasp.Lease{w, inner, alone} {
			failIf(t, l.Mode() != hasp.Exclusive, "a refused downgrade made a reader")
		}
		release(t, inner)
		if err := w.Downgrade(t.Context()); err != nil || w.Mode() != hasp.Shared {
			t.Errorf("%v, %v", err, w.Mode())
		}
		release(t, w)
		release(t, reader)

		w = must(m.Lock(t.Context()))
		_ = c.Close()
		wantIs(t, w.Downgrade(t.Context()), hasp.ErrClosed)
	})
}

// A Close while a downgrade is under way ends it, and releases the lease.
func TestCloseDuringDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		w := must(c.RWMutex("k", nil).Lock(t.Context()))
		d.onTry(hangTry)
		down := begin(t.Context(), func(ctx context.Context) (struct{}, error) { return struct{}{}, w.Downgrade(ctx) })
		synctest.Wait()
		check(t, c.Close())
		wantIs(t, (<-down).err, hasp.ErrClosed)
		mustBeFree(t, d, "k")
	})
}

// A cohort does not take turns on a lease that was downgraded: the others ask the store.
func TestDowngradeLeavesTheCohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 3, inCohort)
		release(t, first)
		second := <-got // on a grant for three
		reader := begin(t.Context(), newClient(t, d.Driver, nil).RWMutex("k", nil).RLock)
		synctest.Wait() // in the queue before those who leave the cohort
		need(t, second.Downgrade(t.Context()))
		synctest.Wait()
		r := granted(t, "the reader", reader)
		release(t, second)
		select {
		case <-got:
			t.Fatal("a turn was given beside a reader")
		case <-time.After(time.Second):
		}
		release(t, r)
		for range 2 {
			l := <-got
			if l.Fence() <= r.Fence() || l.Mode() != hasp.Exclusive {
				t.Errorf("fence %d after %d, %v", l.Fence(), r.Fence(), l.Mode())
			}
			release(t, l)
		}
		mustBeFree(t, d, "k")
	})
}

// The error of a downgrade says what happened: no answer, an error, or that the
// caller's context ended; it is never the context of one request.
func TestWhyADowngradeFailed(t *testing.T) {
	down := func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
		return driver.Result{}, errDown
	}
	for _, c := range []struct {
		name  string
		try   func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error)
		class driver.Class
		limit time.Duration // of the caller's context
		asks  int64         // at most
		want  string
		not   error
	}{
		{"hangs", hangTry, driver.ClassUnreachable, time.Hour, 10, "did not answer within 5s", context.DeadlineExceeded},
		{"fails", down, driver.ClassUnreachable, time.Hour, 100, errDown.Error(), context.DeadlineExceeded},
		{"fails for good", down, driver.ClassImpossible, time.Hour, 1, errDown.Error(), context.DeadlineExceeded},
		{"hangs, and the caller's context ends", hangTry, driver.ClassUnreachable, 7 * time.Second, 2, context.DeadlineExceeded.Error(), nil},
		{"fails, and the caller's context ends", down, driver.ClassUnreachable, time.Second, 100, "gave up", nil},
	} {
		bubbled(t, c.name, func(t *testing.T) {
			d := &hooked{Driver: newStore(), classify: func(error) driver.Class { return c.class }}
			w := must(newClient(t, d, nil).RWMutex("k", nil).Lock(t.Context()))
			tries := d.tries.Load()
			d.onTry(c.try)
			ctx, cancel := context.WithTimeout(context.Background(), c.limit)
			defer cancel()
			err := w.Downgrade(ctx)
			if err == nil || !strings.Contains(err.Error(), c.want) || c.not != nil && errors.Is(err, c.not) {
				t.Errorf("the error is %v", err)
			}
			ended := c.not == nil
			if errors.As(err, new(*hasp.WaitError)) != ended || errors.Is(err, context.DeadlineExceeded) != ended {
				t.Errorf("the error is %v", err)
			}
			if ended && c.want != "gave up" && strings.Contains(err.Error(), "within 5s") {
				t.Errorf("the last request had 2s: %v", err)
			}
			failIf(t, d.tries.Load()-tries > c.asks, "it was asked %d times", d.tries.Load()-tries)
			failIf(t, w.Err() != nil || w.Mode() != hasp.Shared, "the lease: %v, %v", w.Mode(), w.Err())
		})
	}
}

// An answer that comes after its limit, and before the deadline, is an answer.
func TestSlowDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		w := must(newClient(t, d, nil).RWMutex("k", nil).Lock(t.Context()))
		tries := d.tries.Load()
		d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			time.Sleep(6 * time.Second)
			return res, err
		})
		if err := w.Downgrade(t.Context()); err != nil || d.tries.Load() != tries+1 {
			t.Errorf("%v, asked %d times", err, d.tries.Load()-tries)
		}
	})
}
