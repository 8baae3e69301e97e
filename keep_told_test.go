// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A key that is wanted here all the time is never idle, and so never kept; its client asks to be told
// all the same.
func TestBusyKeeperIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		o := &hasp.LockOptions{Keep: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range 3 {
			all.Go(func() {
				for {
					l, err := c.Mutex("k", o).Lock(ctx)
					if err != nil {
						return
					}
					time.Sleep(time.Second)
					_ = l.Release()
				}
			})
		}
		for range 10 {
			time.Sleep(3500 * time.Millisecond)
			start := time.Now()
			l := lock(t, elsewhere, "k", nil)
			if took := time.Since(start); took > 2*time.Second { // the turn that runs, and one more at most
				t.Errorf("it waited for %v", took)
			}
			release(t, l)
		}
	})
}

// What the store says of the lease when it is asked to tell counts, too.
func TestKeeperIsToldOfTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		o := &hasp.LockOptions{Keep: time.Hour}
		lease := lock(t, c, "k", o)
		store.Lose("k")
		other := lock(t, elsewhere, "k", nil)
		release(t, lease) // kept; the store is asked to tell, and says ErrNotHeld
		synctest.Wait()
		got := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		select {
		case o := <-got:
			t.Errorf("granted, though the store has said that the key is lost: %v; the other: %v", o.v.Fence(), other.Err())
			_ = o.v.Release()
		default:
		}
		_ = other.Release()
	})
}

// Close does not wait for the store to take a wish.
func TestKeeperCloseWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), renew: hangRenew}
		c := newClient(t, d, nil)
		useOnce(t, c, &hasp.LockOptions{Keep: time.Hour})
		start := time.Now()
		check(t, c.Close())
		failIf(t, time.Since(start) > 0, "Close took %v", time.Since(start))
	})
}

// Close names a kept key that was on its way back, and did not arrive.
func TestKeeperCloseWhileGivingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		useOnce(t, c, &hasp.LockOptions{Keep: time.Second})
		d.change(func() {
			d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		time.Sleep(time.Second + time.Millisecond)
		err := c.Close()
		if info := must(d.Inspect(t.Context(), "k")); info.Held && err == nil {
			t.Errorf("Close says nothing of the key that it could not release")
		}
	})
}

// A lease that is downgraded is its cohort's no more, and hears for itself.
func TestKeeperWantedAfterDowngrade(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
			o := &hasp.LockOptions{Keep: keep}
			useOnce(t, c, o)
			synctest.Wait()
			lease := lock(t, c, "k", o)
			need(t, lease.Downgrade(t.Context()))
			w := lease.Wanted()
			synctest.Wait()
			start := time.Now()
			got := begin(t.Context(), elsewhere.Mutex("k", nil).Lock)
			<-w
			failIf(t, time.Since(start) > 0, "Keep %v: Wanted after %v", keep, time.Since(start))
			release(t, lease)
			release(t, comes(t, got))
		})
	}
}

// The store is asked once for each of its grants, however often a turn wants to know: a key is not kept
// while it is asked.
func TestKeeperWantedInEachTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			time.Sleep(time.Millisecond)
			next(ctx, rs, done)
		}
		c := newClient(t, d, nil)
		useOnce(t, c, &hasp.LockOptions{Keep: time.Hour})
		time.Sleep(time.Second) // the store has been asked to tell
		for range 10 {
			l := lock(t, c, "k", &hasp.LockOptions{Keep: time.Hour})
			l.Wanted()
			synctest.Wait()
			release(t, l)
		}
		time.Sleep(time.Second)
		if d.tries.Load() != 1 || d.renews.Load() != 1 {
			t.Errorf("%d tries, %d renewals", d.tries.Load(), d.renews.Load())
		}
	})
}

// So it does where it was to hear before.
func TestKeeperWantedBeforeDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		o := &hasp.LockOptions{Keep: time.Hour}
		useOnce(t, c, o)
		synctest.Wait()
		lease := lock(t, c, "k", o)
		w := lease.Wanted()
		synctest.Wait()
		need(t, lease.Downgrade(t.Context()))
		synctest.Wait()
		start := time.Now()
		got := begin(t.Context(), elsewhere.Mutex("k", nil).Lock)
		<-w
		failIf(t, time.Since(start) > 0, "Wanted after %v", time.Since(start))
		release(t, lease)
		release(t, comes(t, got))
	})
}

// One who waits already when the store is asked to tell is told of by the answer.
func TestKeeperIsToldByTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		lease := lock(t, c, "k", &hasp.LockOptions{Keep: time.Hour})
		got := begin(t.Context(), elsewhere.Mutex("k", nil).Lock)
		synctest.Wait() // it is in the queue
		start := time.Now()
		release(t, lease)
		release(t, comes(t, got))
		failIf(t, time.Since(start) > 0, "it waited for %v", time.Since(start))
	})
}

// What could not be given back earlier is not Close's to tell: it has expired since, or will.
func TestCloseLongAfterAKeyWasNotGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, nil)
		useOnce(t, c, &hasp.LockOptions{Keep: time.Second})
		d.change(func() {
			d.release = func(context.Context, driver.ReleaseRequest, releaseFunc) error { return errors.New("no") }
		})
		time.Sleep(time.Hour)
		d.change(func() { d.release = nil })
		check(t, c.Close())
	})
}
