// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

var inCohort = &hasp.LockOptions{Cohort: time.Minute}

// queueUp starts Locks one behind the other, each of which holds the key until
// it is signalled to release it, and returns what they got in the order of grants.
func queueUp(t *testing.T, c *hasp.Client, n int, o *hasp.LockOptions) (got chan *hasp.Lease) {
	t.Helper()
	got = make(chan *hasp.Lease)
	for range n {
		go func() {
			if lease, err := c.Mutex("k", o).Lock(t.Context()); err == nil {
				got <- lease
			}
		}()
		synctest.Wait()
	}
	return got
}

func release(t *testing.T, lease *hasp.Lease) {
	t.Helper()
	check(t, lease.Release())
}

// Waiters of one client take turns on one grant, first come first served, each with a larger fence and as the same owner, and the
// store is asked once more for all of them.
func TestCohortTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		var fences []int
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			fences = append(fences, r.Fences)
			return next(ctx, r)
		}
		asksToBeTold := false
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			asksToBeTold = asksToBeTold || slices.ContainsFunc(rs, func(r driver.RenewRequest) bool { return r.Wanted != nil })
			next(ctx, rs, done)
		}
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 5, inCohort)
		time.Sleep(time.Minute) // a wait for a turn takes nothing off the lease
		fence, owner := first.Fence(), ""
		release(t, first) // it asked only for itself: the next one asks the store for all
		for i := range 5 {
			lease := <-got
			if lease.Fence() <= fence || lease.Err() != nil {
				t.Errorf("turn %d has the fence %d after %d, and %v", i, lease.Fence(), fence, lease.Err())
			}
			left := time.Until(lease.Deadline())
			failIf(t, left < 29*time.Second, "turn %d has %v left", i, left)
			failIf(t, owner != "" && lease.Owner() != owner, "turn %d has an owner of its own", i)
			fence, owner = lease.Fence(), lease.Owner()
			if info, err := c.Operator().Inspect(t.Context(), "k"); err != nil || info.Holder.Owner != owner || info.Fence < fence {
				t.Errorf("in turn %d the store knows %+v, %v", i, info, err)
			}
			release(t, lease)
		}
		mustBeFree(t, d, "k")
		only, err := c.Mutex("k", inCohort).TryLock(t.Context()) // for itself alone
		need(t, err)
		release(t, only)
		fence = only.Fence()
		if !slices.Equal(fences, []int{1, 5, 0}) || d.releases.Load() != 3 {
			t.Errorf("%v fences asked for, %d released", fences, d.releases.Load())
		}
		// In this minute the first lease was renewed, and each place said that it waits. No turn asks to be told of others.
		synctest.Wait()
		failIf(t, asksToBeTold, "the store was asked to tell who waits")
		if next := lock(t, c, "k", nil); next.Fence() <= fence {
			t.Errorf("the fence %d after %d", next.Fence(), fence)
		}
	})
}

// A caller that came after the request to the store waits for the next grant, behind the
// waiters of other clients: one cohort passes them, not all.
func TestCohortLetsOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 3, inCohort)
		other := queueUp(t, elsewhere, 1, nil)
		release(t, first)
		release(t, <-other) // in the queue before the store was asked for the three
		for i := range 3 {
			lease := <-got
			if i == 0 {
				other = queueUp(t, elsewhere, 1, nil)
				go func() {
					late, err := c.Mutex("k", inCohort).Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					got <- late
				}()
				synctest.Wait()
			}
			release(t, lease)
		}
		select {
		case lease := <-other:
			release(t, lease)
		case <-got:
			t.Fatal("the cohort goes on although somebody waits elsewhere")
		}
		release(t, <-got)
	})
}

// A cohort ends with its time, however many wait; its lease is renewed meanwhile.
func TestCohortIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 10, inCohort)
		release(t, first)
		var other chan *hasp.Lease
		for turn := range 10 {
			select {
			case lease := <-got:
				if turn == 0 {
					other = queueUp(t, elsewhere, 1, nil)
				}
				time.Sleep(25 * time.Second)
				need(t, lease.Err())
				release(t, lease)
			case lease := <-other:
				if turn != 3 { // after 75 s of a minute
					t.Errorf("the other had its turn after %d", turn)
				}
				release(t, lease)
				for range 10 - turn {
					release(t, <-got)
				}
				return
			}
		}
		t.Error("the other never had its turn")
	})
}

func TestCohortNeedsRenewal(t *testing.T) {
	c := newClient(t, newStore(), nil)
	_, err := c.Mutex("k", &hasp.LockOptions{Cohort: 1, NoRenew: true}).Lock(t.Context())
	failIf(t, err == nil, "NoRenew and Cohort go together")
	_, err = c.Mutex("k", &hasp.LockOptions{Cohort: -1}).Lock(t.Context())
	failIf(t, err == nil, "a negative time is taken")
}

// A turn that is lost before its caller runs again is not what Lock returns.
func TestTurnThatIsLostOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		var waiting atomic.Int64
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Waiting && waiting.Add(1) == 2 {
				time.Sleep(2 * time.Minute) // as if the second caller's process stood still
			}
		}})
		o := &hasp.LockOptions{TTL: ttl, Cohort: time.Hour}
		holder := lock(t, newClient(t, store, nil), "k", nil)
		leader := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		second := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		release(t, holder)
		first := <-leader
		d.onRenew(hangRenew)
		release(t, first.v) // passes it on
		r := <-second
		if r.err != nil || r.v.Err() != nil {
			t.Fatal(r.err, r.v.Err())
		}
		d.onRenew(nil)
		release(t, r.v)
	})
}

// A lost lease is not passed to the next turn, which asks the store at once.
func TestCohortLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
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
		d, c := newHooked(t)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 2, inCohort)
		release(t, first)
		lease := <-got
		d.onRenew(failRenew(errDown))
		time.Sleep(12 * time.Second)
		tries := d.tries.Load()
		release(t, lease)
		<-got
		failIf(t, d.tries.Load() == tries, "a lease that could not be renewed was passed on")
	})
}

// Close ends the callers that wait for their turn, and nothing stays.
func TestCohortIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
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
		store, c := newMem(t)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 2, inCohort)
		release(t, first)
		lease := <-got
		need(t, lease.Extend(t.Context(), time.Hour))
		release(t, lease)
		follower := <-got
		info, err := store.Inspect(t.Context(), "k")
		failIf(t, err != nil || info.Left > ttl, "the store keeps the next turn for %v, %v", info.Left, err)
		release(t, follower)
	})
}

// MaxHold bounds a turn, and does not end the cohort.
func TestCohortWithMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		o := &hasp.LockOptions{Cohort: time.Minute, MaxHold: 10 * time.Second}
		first := lock(t, c, "k", o)
		got := queueUp(t, c, 5, o)
		release(t, first)
		for range 5 {
			lease := <-got
			time.Sleep(5 * time.Second)
			left := time.Until(lease.Deadline())
			failIf(t, left > 5*time.Second, "%v of a MaxHold of 10 s are left after 5", left)
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

// A turn that is part of a Locks is used only once the other keys are held, too.
func TestMaxHoldOfATurnWithinLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		o := &hasp.LockOptions{Cohort: time.Minute, MaxHold: 40 * time.Second}
		b := must(newClient(t, store, nil).Mutex("kb", nil).Lock(t.Context()))
		first := lock(t, c, "k", o)
		second := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		all := begin(t.Context(), func(ctx context.Context) (*hasp.Leases, error) {
			return hasp.Locks{c.Mutex("k", o), c.Mutex("kb", nil)}.Lock(ctx)
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
			d, c := newHooked(t)
			first := lock(t, c, "k", inCohort)
			got := queueUp(t, c, 2, inCohort)
			release(t, first)
			lease := <-got
			asked, answer := make(chan struct{}), make(chan struct{})
			d.onRenew(func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
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
			})
			extended := make(chan error, 1)
			go func() { extended <- lease.Extend(t.Context(), time.Hour) }()
			<-asked
			synctest.Wait()
			release(t, lease)
			next := <-got
			close(answer)
			failIf(t, <-extended == nil, "Extend of a lease that was released said nothing")
			info, err := c.Operator().Inspect(t.Context(), "k")
			if err != nil || info.Holder.Owner != next.Owner() || info.Left > ttl {
				t.Errorf("after the Extend (late: %v) the next turn's key is kept for %v, %v", late, info.Left, err)
			}
			release(t, next)
		})
	}
}
