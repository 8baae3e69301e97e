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
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/process"
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
		l := held.Holder.Describe()
		stopIf(t, l.Reason != "nightly" || l.PID == 0, "the holder is %+v", l)
		by := "this process (" // which holds it twice, or forgot to release it
		if process.Self() == "" {
			by = ""
		}
		if s := err.Error(); !strings.HasPrefix(s, `hasp: try lock "orders/42": held by `+by) || !strings.HasSuffix(s, "; unless it is renewed, its lease ends in 30s") {
			t.Fatalf("the text is %s", s)
		}
		need(t, lease.Release())
		next, err := c.Mutex("orders/42", nil).TryLock(t.Context())
		if err != nil || next.Fence() <= lease.Fence() {
			t.Fatalf("%v, fence %d after %d", err, next.Fence(), lease.Fence())
		}
	})
}

// Promise 4: a waiter that gives up leaves no place and hands on what it was given; failure case 18: both errors are found.
func TestCancelledWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		lease := lock(t, c, "k", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded, hasp.ErrHeld)
		stopIf(t, time.Since(start) != time.Second, "gave up after %v", time.Since(start))
		synctest.Wait()
		info, _ := store.Inspect(t.Context(), "k")
		stopIf(t, info.Waiters != 0, "%d places left", info.Waiters)
		dead, cancel2 := context.WithCancelCause(t.Context())
		why := errors.New("changed my mind")
		cancel2(why)
		_, err = c.Mutex("k", nil).Lock(dead)
		wantIs(t, err, context.Canceled, why)
		need(t, lease.Release())
		mustBeFree(t, store, "k")
	})
}

// Failure case 11: the context ends while the request is under way and the store carries it out; gone within moments of the link's return.
func TestCancelWhileTheRequestIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
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
		info, _ := store.Inspect(t.Context(), "k")
		stopIf(t, !info.Held, "the case is void: the store did not grant")
		time.Sleep(time.Until(back) + 2*time.Second)
		mustBeFree(t, store, "k")
	})
}

// Failure case 13: a lost reply to an acquire repairs itself; to a release it is not "not held".
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
		stopIf(t, d.tries.Load() != 2, "%d tries", d.tries.Load())
		need(t, lease.Release())
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
		stopIf(t, d.tries.Load() != 1, "%d tries", d.tries.Load())
	})
}

// Failure case 3: the reply to an acquire arrives later than the TTL.
func TestLateGrantIsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
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
		left := time.Until(lease.Deadline())
		stopIf(t, left < 900*time.Millisecond, "Lock returned a lease with %v left after a late grant", left)
	})
}

// A grant that comes at its deadline is no lease, and a grant just before it is; TryLock asks once in any case.
func TestGrantAtItsDeadline(t *testing.T) {
	const short = time.Second
	left := short - short/100 - 2*time.Millisecond
	for _, c := range []struct {
		takes time.Duration
		lease bool
	}{{left - 1, true}, {left, false}} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				res, err := next(ctx, r)
				time.Sleep(c.takes)
				return res, err
			}
			_, err := newClient(t, d, nil).Mutex("k", &hasp.LockOptions{TTL: short}).TryLock(t.Context())
			if (err == nil) != c.lease || d.tries.Load() != 1 {
				t.Errorf("after %v: %v, asked %d times", c.takes, err, d.tries.Load())
			}
		})
	}
}

// On a store that is always slow a waiter asks once more for a lease with more time, and then takes what it has.
func TestSlowStoreIsAskedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		blocker := lock(t, newClient(t, d.Driver, nil), "k", nil)
		got := queueUp(t, newClient(t, d, nil), 1, &hasp.LockOptions{TTL: time.Second, NoRenew: true})
		d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if res.Granted {
				time.Sleep(800 * time.Millisecond)
			}
			return res, err
		})
		tries := d.tries.Load()
		lease, _ := handedOff(t, blocker, got)
		failIf(t, d.tries.Load()-tries != 2, "asked %d times", d.tries.Load()-tries)
		left := time.Until(lease.Deadline())
		failIf(t, left <= 0 || left > 200*time.Millisecond, "%v are left", left)
	})
}

// What a grant that came too late said of the previous holder stays true.
func TestLateGrantKeepsItsMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if res.Abandoned = d.tries.Load() == 1; res.Abandoned {
				time.Sleep(2 * time.Second)
			}
			return res, err
		}
		lease := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{TTL: time.Second})
		failIf(t, !lease.Abandoned(), "the next holder is not Abandoned")
	})
}

// A request that was never sent left nothing to clean up; one of unknown outcome may have, also when a later one was refused.
func TestCleaningUpAfterErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		wait   bool
		cleans bool
	}{
		{"not sent", driver.NotSent(errDown), false, false},
		{"unknown", errDown, false, true},
		{"not sent, then refused", driver.NotSent(errDown), true, false},
		{"unknown, then refused", errDown, true, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			lock(t, newClient(t, d.Driver, nil), "k", nil)
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				if d.tries.Load() == 1 {
					return driver.Result{}, c.err
				}
				return next(ctx, r)
			}
			d.watch = func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan driver.Hint, error) {
				<-ctx.Done() // so that it does not join the queue
				return nil, ctx.Err()
			}
			m := newClient(t, d, nil).Mutex("k", nil)
			if ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond); c.wait {
				_, err := m.Lock(ctx)
				wantIs(t, err, context.DeadlineExceeded)
				cancel()
			} else {
				_, err := m.TryLock(ctx)
				wantIs(t, err, errDown)
				cancel()
			}
			synctest.Wait()
			failIf(t, (d.releases.Load() > 0) != c.cleans, "%s: it sent %d releases", c.name, d.releases.Load())
		})
	}
}

// A waiter in the queue learns who is in the way; TryLock does not wait. Either tells
// that it got no lease, once, with the error it returns.
func TestWaitingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		holder := lock(t, newClient(t, store, nil), "k", nil)
		var events []event.Event
		c := newClient(t, store, &hasp.Options{Observe: func(_ context.Context, e *event.Event) { events = append(events, *e) }})
		_, err := c.Mutex("k", nil).TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		if len(events) != 1 || events[0].Kind != event.Failed || !errors.Is(events[0].Err, err) || !events[0].Sent.Equal(time.Now()) {
			t.Errorf("of a TryLock: %+v", events)
		}
		events = nil
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.Mutex("k", nil).Lock(ctx)
		wantIs(t, err, hasp.ErrHeld)
		if len(events) != 2 || events[0].Kind != event.Waiting || events[0].Holder.Owner != holder.Owner() || events[0].Left <= 0 {
			t.Fatalf("of a Lock: %+v", events)
		}
		if e := events[1]; e.Kind != event.Failed || !errors.Is(e.Err, err) || e.Waited != time.Second || e.Owner != events[0].Owner {
			t.Errorf("of a Lock that gave up: %+v", e)
		}
	})
}

// Why a wait that ends during a call had lasted: the holder, unless the store was silent for longer than an answer may take.
func TestWhatKeptAWait(t *testing.T) {
	for _, c := range []struct {
		name   string
		held   bool // somebody is known to have the key
		call   time.Duration
		silent bool
	}{
		{"held, and a call that has just begun", true, hasp.Moment - 1, false},
		{"held, and a call without an answer", true, hasp.Moment, true},
		{"nothing is known", false, time.Millisecond, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			hints := make(chan driver.Hint, 1)
			d.watch = func(context.Context, driver.Claim, watchFunc) (<-chan driver.Hint, error) { return hints, nil }
			if c.held {
				lock(t, newClient(t, d.Driver, nil), "k", nil)
			} else {
				d.try = hangTry
			}
			client := newClient(t, d, nil)
			ctx, cancel := context.WithCancel(t.Context())
			got := begin(ctx, client.Mutex("k", nil).Lock)
			synctest.Wait()
			if c.held {
				d.onTry(hangTry)
				hints <- driver.Hint{}
			}
			time.Sleep(c.call)
			cancel()
			err := (<-got).err
			wantIs(t, err, context.Canceled)
			var e *hasp.Error
			if errors.Is(err, hasp.ErrHeld) == c.silent || !errors.As(err, &e) || (e.Class == driver.ClassUnreachable) != c.silent {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}

// A store whose answers take long is not silent for as long, and a process that ran too late heard no silence.
func TestWaitThatEndsOnABusyMachine(t *testing.T) {
	for name, c := range map[string]struct{ answer, left, late time.Duration }{
		"slow answers":         {answer: hasp.Moment, left: 2*hasp.Moment - 1},
		"the process is late":  {left: hasp.Moment - 1, late: time.Second},
		"slow answers, silent": {answer: hasp.Moment, left: 2 * hasp.Moment},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			hints := make(chan driver.Hint, 1)
			d.watch = func(context.Context, driver.Claim, watchFunc) (<-chan driver.Hint, error) { return hints, nil }
			lock(t, newClient(t, d.Driver, nil), "k", nil)
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				time.Sleep(c.answer)
				return next(ctx, r)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			time.AfterFunc(2*time.Second-c.left, func() {
				d.onTry(func(ctx context.Context, _ driver.TryRequest, _ tryFunc) (driver.Result, error) {
					<-ctx.Done()
					time.Sleep(c.late)
					return driver.Result{}, ctx.Err()
				})
				hints <- driver.Hint{}
			})
			_, err := newClient(t, d, nil).Mutex("k", nil).Lock(ctx)
			wantIs(t, err, context.DeadlineExceeded)
			held := !strings.HasSuffix(name, "silent")
			failIf(t, errors.Is(err, hasp.ErrHeld) != held, "%s: %v", name, err)
		})
	}
}

// A refusal is a refusal, also when the context has ended meanwhile.
func TestTryLockRefusedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		lock(t, newClient(t, d.Driver, nil), "k", nil)
		ctx, cancel := context.WithCancel(t.Context())
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			defer cancel()
			return next(ctx, r)
		}
		_, err := newClient(t, d, nil).Mutex("k", nil).TryLock(ctx)
		if wantIs(t, err, hasp.ErrHeld); errors.Is(err, context.Canceled) || errors.As(err, new(*hasp.WaitError)) {
			t.Error(err)
		}
	})
}

// What the store grants while Close ends the wait is released.
func TestGrantDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			<-ctx.Done()
			time.Sleep(time.Millisecond) // after Close has counted the leases, not just before
			return res, err
		}
		c := newClient(t, d, nil)
		got := begin(t.Context(), c.Mutex("k", nil).Lock)
		synctest.Wait()
		check(t, c.Close())
		wantIs(t, (<-got).err, hasp.ErrClosed)
		mustBeFree(t, d.Driver, "k")
	})
}
