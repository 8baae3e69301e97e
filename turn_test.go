// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A lost lease is not passed to the next turn, which asks the store at once.
func TestCohortLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 3, inCohort)
		release(t, first)
		lost := <-got
		store.Lose("k")
		<-lost.Done()
		next := <-got // before Release
		if next.Owner() == lost.Owner() || next.Fence() <= lost.Fence() {
			t.Errorf("after the loss: owner %s, fence %d", next.Owner(), next.Fence())
		}
		wantIs(t, lost.Release(), hasp.ErrLost)
		release(t, next)
		release(t, <-got)
	})
}

// A lease whose renewal is in trouble goes back to the store.
func TestCohortDoesNotPassTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 2, inCohort)
		release(t, first)
		lease := <-got
		d.change(func() {
			d.renew = func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
				for i := range rs {
					done(i, driver.Renewal{Err: errDown})
				}
			}
		})
		time.Sleep(12 * time.Second)
		tries := d.tries.Load()
		release(t, lease)
		<-got
		failIf(t, d.tries.Load() == tries, "a lease that could not be renewed was passed on")
	})
}

// Close ends those who wait for their turn, and nothing stays.
func TestCohortIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		lease := lock(t, c, "k", inCohort)
		errs := make(chan error)
		for range 3 {
			go func() {
				_, err := c.Mutex("k", inCohort).Lock(context.Background())
				errs <- err
			}()
		}
		synctest.Wait()
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		for range 3 {
			wantIs(t, <-errs, hasp.ErrClosed)
		}
		check(t, <-closed)
		wantIs(t, lease.Err(), hasp.ErrClosed)
		mustBeFree(t, store, "k")
	})
}

// An Extend of one turn does not apply to the next.
func TestCohortDoesNotPassExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 2, inCohort)
		release(t, first)
		lease := <-got
		need(t, lease.Extend(t.Context(), time.Hour))
		release(t, lease)
		follower := <-got
		if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Left > ttl {
			t.Errorf("the store keeps the next turn for %v, %v", info.Left, err)
		}
		release(t, follower)
	})
}

// MaxHold bounds a turn, and does not end the cohort.
func TestCohortWithMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		o := &hasp.LockOptions{Cohort: time.Minute, MaxHold: 10 * time.Second}
		first := lock(t, c, "k", o)
		got := queueUp(t, c, 5, o)
		release(t, first)
		for range 5 {
			lease := <-got
			time.Sleep(5 * time.Second)
			if left := time.Until(lease.Deadline()); left > 5*time.Second {
				t.Errorf("%v of a MaxHold of 10 s are left after 5", left)
			}
			release(t, lease)
		}
		failIf(t, d.tries.Load() != 2, "the store was asked %d times", d.tries.Load())
	})
}

// MaxHold ends a later turn as it ends the first: no later.
func TestMaxHoldEndsATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		o := &hasp.LockOptions{Cohort: time.Minute, MaxHold: 2 * time.Second}
		first := lock(t, c, "k", o)
		got := queueUp(t, c, 2, o)
		release(t, first)
		release(t, <-got)
		lease := <-got
		start := time.Now()
		<-lease.Context(t.Context()).Done()
		failIf(t, time.Since(start) != 2*time.Second, "its context ended after %v", time.Since(start))
		wantIs(t, lease.Release(), hasp.ErrLost)
	})
}

// A turn that is part of a LockAll is used only once the other keys are held, too.
func TestMaxHoldOfATurnWithinLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		o := &hasp.LockOptions{Cohort: time.Minute, MaxHold: 40 * time.Second}
		b := must(newClient(t, store, nil).Mutex("kb", nil).Lock(t.Context()))
		first := lock(t, c, "k", o)
		second := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		all := begin(t.Context(), func(ctx context.Context) (*hasp.Leases, error) {
			return hasp.LockAll(ctx, c.Mutex("k", o), c.Mutex("kb", nil))
		})
		synctest.Wait()
		release(t, first)
		synctest.Wait()
		release(t, granted(t, "second", second)) // passes
		synctest.Wait()
		time.Sleep(45 * time.Second)
		release(t, b)
		synctest.Wait()
		s := <-all
		if s.err != nil {
			t.Error(s.err)
		} else {
			_ = s.v.Release()
		}
	})
}

// An Extend that is under way when its turn ends is for that turn alone: the
// next one asks the store, and dies within the TTL of its options.
func TestExtendRacesWithReleaseInACohort(t *testing.T) {
	for _, late := range []bool{false, true} { // it arrives at the store while the lease is valid, or later
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
