// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// noWatch is a driver whose Watch fails while it is set, at once or when its context ends; it counts the Watches.
type noWatch struct {
	*hooked
	set, hangs atomic.Bool
	watches    atomic.Int64
}

func newNoWatch(d driver.Driver) *noWatch {
	x := &noWatch{hooked: &hooked{Driver: d}}
	x.set.Store(true)
	x.watch = func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan driver.Hint, error) {
		x.watches.Add(1)
		switch {
		case !x.set.Load():
			return next(ctx, r)
		case x.hangs.Load():
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, errDown
	}
	return x
}

// handedOff releases a lease, and returns how long the next grant takes.
func handedOff(t *testing.T, lease *hasp.Lease, got <-chan *hasp.Lease) (*hasp.Lease, time.Duration) {
	t.Helper()
	release(t, lease)
	start := time.Now()
	select {
	case next := <-got:
		return next, time.Since(start)
	case <-time.After(time.Hour):
		t.Fatal("nobody had the key within an hour")
		return nil, 0
	}
}

// Where a store answers every Try and carries no subscription, waiters queue and poll, for as long as it takes; each failure is reported.
func TestLockWithoutASubscription(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newNoWatch(newStore())
			d.hangs.Store(hangs)
			var troubles atomic.Int64
			c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
				if e.Kind == event.Trouble {
					troubles.Add(1)
					if err, ok := e.Err.(*hasp.Error); !ok || err.Op != "lock" || err.Key != "k" { //nolint:errorlint // the outermost
						t.Errorf("told of %#v", e.Err)
					}
				}
			}})
			blocker := lock(t, newClient(t, d.Driver, nil), "k", nil)
			got := queueUp(t, c, 1, nil)
			time.Sleep(2 * time.Second)
			if info, err := c.Operator().Inspect(t.Context(), "k"); err != nil || info.Waiters != 1 {
				t.Errorf("the hang is %v: after 2s %d wait in the queue, %v", hangs, info.Waiters, err)
			}
			time.Sleep(10 * time.Minute)
			if tries, watches := d.tries.Load(), d.watches.Load(); tries > 600 || watches < 30 || watches > 150 || troubles.Load() < watches-1 {
				t.Errorf("the hang is %v: in 10m it tried %d times, watched %d times, and told %d times", hangs, tries, watches, troubles.Load())
			}
			lease, took := handedOff(t, blocker, got)
			if took > 10*time.Second/3+time.Second { // a third of the patience, after the claim time
				t.Errorf("the hang is %v: the key was free for %v", hangs, took)
			}
			release(t, lease)
			mustBeFree(t, d.Driver, "k")
		})
	}
}

// A subscription that works again is used again: the hint comes at once.
func TestSubscriptionComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newNoWatch(newStore())
		blocker := lock(t, newClient(t, d.Driver, nil), "k", nil)
		got := queueUp(t, newClient(t, d, nil), 1, nil)
		time.Sleep(time.Minute)
		d.set.Store(false)
		time.Sleep(20 * time.Second)
		_, took := handedOff(t, blocker, got)
		failIf(t, took > 0, "the key was free for %v", took)
	})
}

// The time of a cohort's leader ends while the store confirms the subscription, in every possible way: the next one still gets the hints.
func TestCohortLosesItsLeaderInWatch(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d, c := newHooked(t)
			blocker := lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{TTL: time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			watching, confirm := make(chan struct{}, 2), make(chan struct{})
			d.watch = func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan driver.Hint, error) {
				var hints <-chan driver.Hint
				var err error
				if !after {
					hints, err = next(ctx, r)
				}
				watching <- struct{}{}
				<-confirm
				if after {
					hints, err = next(ctx, r)
				}
				return hints, err
			}
			failed := begin(ctx, c.Mutex("k", inCohort).Lock)
			<-watching
			got := queueUp(t, c, 1, inCohort)
			cancel()
			synctest.Wait()
			close(confirm)
			wantIs(t, (<-failed).err, context.Canceled, hasp.ErrHeld)
			synctest.Wait()
			tries := d.tries.Load()
			time.Sleep(time.Minute)
			more := d.tries.Load() - tries
			failIf(t, more > 0, "it tried %d times in a minute, though nothing happened", more)
			lease, took := handedOff(t, blocker, got)
			failIf(t, took > 0, "the key was free for %v", took)
			release(t, lease)
			mustBeFree(t, d.Driver, "k")
		})
	}
}

// Failure case 15: released between the first try and the subscription.
func TestReleaseBetweenTryAndWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		lease := lock(t, c, "k", nil)
		d.watch = func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan driver.Hint, error) {
			release(t, lease)
			return next(ctx, r)
		}
		start := time.Now()
		lock(t, c, "k", nil)
		stopIf(t, time.Since(start) != 0, "waited %v for a free key", time.Since(start))
	})
}

// Promise 4: a lost hint costs a bounded delay.
func TestLostHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.watch = func(context.Context, driver.Claim, watchFunc) (<-chan driver.Hint, error) {
			return make(chan driver.Hint), nil // nothing ever arrives
		}
		c := newClient(t, d, nil)
		lease := lock(t, c, "k", nil)
		got := make(chan *hasp.Lease)
		go func() {
			l, err := c.Mutex("k", nil).Lock(t.Context())
			check(t, err)
			got <- l
		}()
		synctest.Wait()
		need(t, lease.Release())
		start := time.Now()
		<-got
		stopIf(t, time.Since(start) > 10*time.Second/3+time.Second, "a lost hint cost %v", time.Since(start))
	})
}

// A waiter that no hint reaches asks at intervals, also while its signs of life say that the holder has long to go, or do not arrive.
func TestPolling(t *testing.T) {
	for _, hung := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newNoWatch(newStore())
			if hung {
				d.renew = hangRenew
			}
			lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{TTL: time.Hour, NoRenew: true})
			queueUp(t, newClient(t, d, nil), 1, nil)
			time.Sleep(time.Minute)
			n := d.tries.Load()
			failIf(t, n < 15 || n > 60, "without renewals: %v: asked %d times in a minute", hung, n)
		})
	}
}

// An unreachable store is not asked more often by waiters with a short TTL.
func TestShortTTLOnAnAwayStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newNoWatch(newStore())
		d.classify = func(error) driver.Class { return driver.ClassUnreachable }
		lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{TTL: time.Hour, NoRenew: true})
		queueUp(t, newClient(t, d, nil), 1, &hasp.LockOptions{TTL: 200 * time.Millisecond})
		time.Sleep(time.Second)
		d.change(func() {
			d.try = away["refused"]
			d.renew = func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
				for i := range rs {
					done(i, driver.Renewal{RetryIn: time.Hour})
				}
			}
		})
		before := d.tries.Load()
		time.Sleep(time.Minute)
		n := d.tries.Load() - before
		failIf(t, n < 30 || n > 150, "asked %d times in a minute", n)
	})
}

// A subscription that comes late is followed by a Try, so that the store knows of it, and one that fails again is not.
func TestLateSubscriptionIsFollowedByATry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newNoWatch(newStore())
		watch := d.watch
		d.watch = func(ctx context.Context, r driver.Claim, next watchFunc) (<-chan driver.Hint, error) {
			d.set.Store(d.watches.Load() < 2)
			return watch(ctx, r, next)
		}
		lock(t, newClient(t, d.Driver, nil), "k", &hasp.LockOptions{TTL: time.Hour, NoRenew: true})
		queueUp(t, newClient(t, d, nil), 1, nil)
		for _, c := range []struct{ watches, tries int64 }{{1, 2}, {2, 2}, {3, 3}} {
			for d.watches.Load() < c.watches {
				time.Sleep(10 * time.Millisecond)
			}
			synctest.Wait()
			n := d.tries.Load()
			failIf(t, n != c.tries, "after %d subscriptions it asked %d times, must be %d", c.watches, n, c.tries)
		}
	})
}
