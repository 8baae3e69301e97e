// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

var inCohort = &hasp.LockOptions{Cohort: time.Minute}

// queueUp starts Locks one behind the other, each of which holds the key until
// it is told to release it, and returns what they got in the order of grants.
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
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// Those who wait in one client take turns on one grant, first come first
// served, each with a larger fence and as the same owner, and the store is
// asked once more for all of them.
func TestCohortTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 5, inCohort)
		time.Sleep(time.Minute) // a wait for a turn takes nothing off the lease
		fence, owner := first.Fence(), ""
		release(t, first) // it asked for itself alone: the next one asks the store for all
		for i := range 5 {
			lease := <-got
			if lease.Fence() <= fence || lease.Err() != nil {
				t.Errorf("turn %d has the fence %d after %d, and %v", i, lease.Fence(), fence, lease.Err())
			}
			if left := time.Until(lease.Deadline()); left < 29*time.Second {
				t.Errorf("turn %d has %v left", i, left)
			}
			if owner != "" && lease.Owner() != owner {
				t.Errorf("turn %d has an owner of its own", i)
			}
			fence, owner = lease.Fence(), lease.Owner()
			if info, err := c.Inspect(t.Context(), "k"); err != nil || info.Holder.Owner != owner || info.Fence < fence {
				t.Errorf("in turn %d the store knows %+v, %v", i, info, err)
			}
			release(t, lease)
		}
		if d.tries.Load() != 2 || d.releases.Load() != 2 {
			t.Errorf("%d times asked, %d released", d.tries.Load(), d.releases.Load())
		}
		mustBeFree(t, d, "k")
		if next := lock(t, c, "k", nil); next.Fence() <= fence {
			t.Errorf("the fence %d after %d", next.Fence(), fence)
		}
	})
}

// Whoever came after the store was asked waits for the next grant, behind those
// who wait elsewhere: they are passed over by one cohort, not by all.
func TestCohortLetsOthersIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 3, inCohort)
		other := queueUp(t, elsewhere, 1, nil)
		release(t, first)
		release(t, <-other) // in line before the store was asked for the three
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
				if err := lease.Err(); err != nil {
					t.Fatal(err)
				}
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

// Whoever gives up leaves its turn to the others; the error says who was in
// the way.
func TestCohortGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := c.Mutex("k", inCohort).Lock(ctx)
				errs <- err
			}()
			synctest.Wait()
		}
		got := queueUp(t, c, 1, inCohort)
		cancel()
		for range 2 {
			err := <-errs
			wantIs(t, err, context.Canceled, hasp.ErrHeld)
			if held := (*hasp.HeldError)(nil); !errors.As(err, &held) || held.Holder.Owner != first.Owner() {
				t.Errorf("it says %v", err)
			}
		}
		release(t, first)
		release(t, <-got)
		mustBeFree(t, store, "k")
	})
}

// A leader whose wait for the store ends hands the lead on.
func TestCohortLosesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		blocker := lock(t, elsewhere, "k", nil)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", inCohort).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		got := queueUp(t, c, 2, inCohort)
		cancel()
		wantIs(t, <-failed, context.Canceled, hasp.ErrHeld)
		synctest.Wait()
		start := time.Now()
		release(t, blocker)
		release(t, <-got)
		if took := time.Since(start); took > 0 { // by the hint that was the leader's
			t.Errorf("the next leader had the key after %v", took)
		}
		release(t, <-got)
		mustBeFree(t, store, "k")
	})
}

// A lease that is lost is not passed on: the next asks the store, at once.
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
		if d.tries.Load() == tries {
			t.Error("a lease that could not be renewed was passed on")
		}
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
		if err := <-closed; err != nil {
			t.Error(err)
		}
		wantIs(t, lease.Err(), hasp.ErrClosed)
		mustBeFree(t, store, "k")
	})
}

// The turn that comes at the moment its waiter gives up is passed on.
func TestCohortGivingUpRacesWithTheTurn(t *testing.T) {
	store := newStore()
	c := newClient(t, store, nil)
	for range 300 {
		first := lock(t, c, "k", inCohort)
		var wg sync.WaitGroup
		var inside atomic.Int32
		for i := range 6 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if i%2 == 0 {
					go cancel()
				}
				lease, err := c.Mutex("k", inCohort).Lock(ctx)
				if err != nil {
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two hold the key")
				}
				inside.Add(-1)
				release(t, lease)
			})
		}
		release(t, first)
		wg.Wait()
		release(t, lock(t, c, "k", inCohort))
	}
}

// A cohort whose leaders' time is always almost over still has its turns: the
// place in line is the cohort's.
func TestCohortOfImpatientLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		blocker := lock(t, elsewhere, "k", nil)
		end, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for range 2 { // hold it in turn, a second each
			wg.Go(func() {
				for {
					lease, err := elsewhere.Mutex("k", nil).Lock(end)
					if err != nil {
						return
					}
					time.Sleep(time.Second)
					release(t, lease)
				}
			})
		}
		wg.Go(func() {
			time.Sleep(15 * time.Second)
			release(t, blocker)
		})
		var locked, failed atomic.Int64
		for i := range 600 { // each bears 10 s
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(end, 10*time.Second)
				defer cancel()
				lease, err := c.Mutex("k", inCohort).Lock(ctx)
				if err != nil {
					failed.Add(1)
					return
				}
				locked.Add(1)
				release(t, lease)
			})
			time.Sleep(100 * time.Millisecond)
			if i == 300 {
				locked.Store(0)
				failed.Store(0)
			}
		}
		if locked.Load() < 200 || failed.Load() > 0 {
			t.Errorf("in the last 30 s %d Locks had the key, and %d gave up", locked.Load(), failed.Load())
		}
		stop()
		wg.Wait()
		synctest.Wait()
		mustBeFree(t, store, "k")
	})
}

// A store that does not answer is reported to all who waited for it as long,
// not to one after the other; and to the others as what it is.
func TestCohortOnASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, &hooked{Driver: newStore(), try: hangTry}, &hasp.Options{MaxSilence: 5 * time.Second})
		start := time.Now()
		errs := make(chan error, 7)
		for i := range 7 {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if i == 6 {
				ctx, cancel = context.WithTimeout(ctx, 4*time.Second)
				defer cancel()
			}
			go func() {
				_, err := c.Mutex("k", inCohort).Lock(ctx)
				errs <- err
			}()
			synctest.Wait()
		}
		for range 7 {
			err := <-errs
			var e *hasp.Error
			if !errors.As(err, &e) || e.Class != hasp.ClassUnreachable || errors.Is(err, hasp.ErrHeld) {
				t.Errorf("the error is %v", err)
			}
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("the last heard after %v", took)
		}
	})
}

// What one turn asked for by Extend is not the next one's.
func TestCohortDoesNotPassExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		first := lock(t, c, "k", inCohort)
		got := queueUp(t, c, 2, inCohort)
		release(t, first)
		lease := <-got
		if err := lease.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		release(t, lease)
		heir := <-got
		if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Left > ttl {
			t.Errorf("the store keeps the next turn for %v, %v", info.Left, err)
		}
		release(t, heir)
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
		if d.tries.Load() != 2 {
			t.Errorf("the store was asked %d times", d.tries.Load())
		}
	})
}

func TestCohortNeedsRenewal(t *testing.T) {
	c := newClient(t, newStore(), nil)
	if _, err := c.Mutex("k", &hasp.LockOptions{Cohort: 1, NoRenew: true}).Lock(t.Context()); err == nil {
		t.Error("NoRenew and Cohort go together")
	}
	if _, err := c.Mutex("k", &hasp.LockOptions{Cohort: -1}).Lock(t.Context()); err == nil {
		t.Error("a negative time is taken")
	}
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
