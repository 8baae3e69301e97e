// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// Promise 1 holds for whatever prolongs a lease: its deadline counts from before
// the request, however slow the reply is.
func TestProlongedLeaseCountsFromBeforeTheRequest(t *testing.T) {
	const slow = 3 * time.Second
	for name, prolong := range map[string]func(t *testing.T, l *hasp.Lease) error{
		"renewal":   func(*testing.T, *hasp.Lease) error { time.Sleep(ttl / 2); return nil },
		"Extend":    func(t *testing.T, l *hasp.Lease) error { return l.Extend(t.Context(), ttl) },
		"Downgrade": func(t *testing.T, l *hasp.Lease) error { return l.Downgrade(t.Context()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			lease := lock(t, newClient(t, d, nil), "k", nil)
			time.Sleep(time.Second)
			var began time.Time // of the request
			var calls int
			d.change(func() {
				d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
					began, calls = time.Now(), calls+1
					next(ctx, rs, func(i int, r driver.Renewal) { time.Sleep(slow); done(i, r) })
				}
				d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
					began, calls = time.Now(), calls+1
					res, err := next(ctx, r)
					time.Sleep(slow)
					return res, err
				}
			})
			if err := prolong(t, lease); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got := lease.Deadline().Sub(began); calls != 1 || got != usable {
				t.Errorf("after %d slow replies to a %s the deadline is %v after the request began, want %v", calls, name, got, usable)
			}
		})
	}
}

// Err says that a lease is lost from Lead before its deadline on, as its contexts
// do, also when it is the first to look.
func TestErrHeedsTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		var offset atomic.Int64
		hasp.SetClock(c, func() clock.Instant {
			now := bubble()
			now.Wall += time.Duration(offset.Load())
			return now
		})
		const lead = 10 * time.Second
		lease := lock(t, c, "k", &hasp.LockOptions{Lead: lead})
		offset.Store(int64(usable - lead - 1))
		if err := lease.Err(); err != nil {
			t.Errorf("before the lead: %v", err)
		}
		offset.Add(1) // the contexts are over, though the deadline is not: nobody else saw it yet
		wantIs(t, lease.Err(), hasp.ErrLost)
	})
}

// MaxHold counts from when the caller has the lease: a round trip that is longer
// takes nothing of it, and nothing is asked twice for its sake.
func TestMaxHoldShorterThanARoundTrip(t *testing.T) {
	for _, o := range []*hasp.LockOptions{
		{MaxHold: time.Second},
		{MaxHold: time.Second, Cohort: time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				time.Sleep(time.Second)
				res, err := next(ctx, r)
				time.Sleep(time.Second)
				return res, err
			}
			c := newClient(t, d, nil)
			lasts := func(lease *hasp.Lease) {
				t.Helper()
				start := time.Now()
				<-lease.Done()
				if took := time.Since(start); took != time.Second || !strings.Contains(lease.Err().Error(), "MaxHold") {
					t.Errorf("with a MaxHold of 1s it is over after %v: %v", took, lease.Err())
				}
			}
			lease := lock(t, c, "k", o)
			if n := d.tries.Load(); n != 1 {
				t.Errorf("a free key took %d questions", n)
			}
			lasts(lease)
			wantIs(t, lease.Release(), hasp.ErrLost)
			blocker := lock(t, newClient(t, d.Driver, nil), "k", nil)
			got := queueUp(t, c, 1, o)
			time.Sleep(10 * time.Second)
			tries := d.tries.Load()
			lease, _ = handedOver(t, blocker, got)
			if n := d.tries.Load() - tries; n != 1 {
				t.Errorf("after its hint a waiter asked %d times", n)
			}
			lasts(lease)
		})
	}
}

// An Extend that is under way when its turn ends is for that turn alone: the
// next one asks the store, and dies within the TTL of its options.
func TestExtendRacesWithReleaseInACohort(t *testing.T) {
	for _, late := range []bool{false, true} { // it comes to the store while the lease stands, or later
		synctest.Test(t, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			c := newClient(t, d, nil)
			first := lock(t, c, "k", inCohort)
			got := queueUp(t, c, 2, inCohort)
			release(t, first)
			lease := <-got
			asked, answer := make(chan struct{}), make(chan struct{})
			d.change(func() {
				d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
					if rs[0].TTL != time.Hour {
						next(ctx, rs, done)
						return
					}
					close(asked)
					if !late {
						next(ctx, rs, func(int, driver.Renewal) {})
					}
					<-answer
					next(ctx, rs, done)
				}
			})
			extended := make(chan error, 1)
			go func() { extended <- lease.Extend(t.Context(), time.Hour) }()
			<-asked
			synctest.Wait()
			release(t, lease)
			next := <-got
			close(answer)
			if err := <-extended; err == nil {
				t.Error("Extend of a lease that was released said nothing")
			}
			info, err := c.Inspect(t.Context(), "k")
			if err != nil || info.Holder.Owner != next.Owner() || info.Left > ttl {
				t.Errorf("after the Extend (late: %v) the next turn's key is kept for %v, %v", late, info.Left, err)
			}
			release(t, next)
		})
	}
}
