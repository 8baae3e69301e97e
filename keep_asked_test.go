// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// keeping returns a client that keeps the key, and one elsewhere over d.
func keeping(t *testing.T, d *hooked) (c, elsewhere *hasp.Client, o *hasp.LockOptions) {
	t.Helper()
	o = &hasp.LockOptions{Keep: time.Hour}
	c, elsewhere = newClient(t, d.Driver, nil), newClient(t, d, nil)
	useOnce(t, c, o)
	synctest.Wait() // it asked to be told
	return c, elsewhere, o
}

// TryLock elsewhere has what nobody works under.
func TestTryLockAsksTheKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c, elsewhere, o := keeping(t, d)
		fence := useOnce(t, c, o)
		time.Sleep(ttl) // renewed
		began := time.Now()
		lease, err := elsewhere.Mutex("k", nil).TryLock(t.Context())
		need(t, err)
		if !time.Now().Equal(began) || lease.Fence() <= fence || lease.Abandoned() {
			t.Errorf("after %v, fence %d after %d, abandoned %v", time.Since(began), lease.Fence(), fence, lease.Abandoned())
		}
		if _, err := c.Mutex("k", o).TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
			t.Errorf("the keeper's TryLock: %v", err)
		}
		release(t, lease)
		mustBeFree(t, d, "k")
		time.Sleep(ttl)
		failIf(t, hasp.RenewerRuns(elsewhere), "its place is still cared for")
	})
}

// A key that somebody works under stays there: TryLock waits for as long as a keeper may need, leaves the queue, and says
// who holds the key, as one does whose own context ends before.
func TestTryLockOfAKeeperAtWork(t *testing.T) {
	for name, limit := range map[string]time.Duration{"it waits": 0, "its context ends": time.Millisecond, "its context had ended": -1} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			c, _, o := keeping(t, d)
			var told []event.Event
			var from context.Context
			elsewhere := newClient(t, d, &hasp.Options{Observe: func(ctx context.Context, e *event.Event) { told, from = append(told, *e), ctx }})
			work := lock(t, c, "k", o)
			ctx := t.Context()
			d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				res, err := next(ctx, r)
				if r.Queue {
					res.Ahead = 7 // others came meanwhile
				}
				return res, err
			})
			if limit != 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			began := time.Now()
			_, err := elsewhere.Mutex("k", nil).TryLock(ctx)
			took := time.Since(began)
			var held *hasp.HeldError
			switch {
			case limit == 0 && (took != 5*time.Millisecond || !errors.As(err, &held) || held.Holder.Owner != work.Owner() || held.Ahead != 7):
				t.Errorf("after %v: %v", took, err)
			case limit > 0 && (took != limit || !errors.Is(err, context.DeadlineExceeded)):
				t.Errorf("after %v: %v", took, err)
			case limit < 0 && (took != 0 || !errors.Is(err, context.DeadlineExceeded)):
				t.Errorf("after %v: %v", took, err)
			}
			synctest.Wait()
			failIf(t, limit >= 0 && (len(told) != 1 || told[0].Kind != event.Failed || from != ctx), "the events are %+v", told)
			info := must(d.Inspect(t.Context(), "k"))
			failIf(t, info.Waiters != 0 || info.Holder.Owner != work.Owner(), "the store has %+v", info)
			check(t, work.Err())
			release(t, work)
		})
	}
}

// How long it waits goes by how long the store takes; others' places are before its own.
func TestTryLockWaitsForASlowKeeper(t *testing.T) {
	const delay = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		_, elsewhere, _ := keeping(t, d)
		d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			time.Sleep(delay)
			return next(ctx, r)
		})
		began := time.Now()
		lease, err := elsewhere.Mutex("k", nil).TryLock(t.Context())
		need(t, err)
		if took := time.Since(began); took > 3*delay { // a Try, one that joins, and one that claims
			t.Errorf("it took %v", took)
		}
		release(t, lease)
	})
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c, elsewhere, o := keeping(t, d)
		work := lock(t, c, "k", o)
		first := begin(t.Context(), newClient(t, d.Driver, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		if _, err := elsewhere.Mutex("k", nil).TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
			t.Errorf("past a waiter: %v", err)
		}
		release(t, work)
		release(t, comes(t, first))
	})
}

// busyStore serves one request after another, each of which takes a fixed time.
type busyStore struct {
	*hooked
	mu   sync.Mutex
	free time.Time // when the requests that came until now are served
}

func (s *busyStore) serve(n int) {
	const each = 20 * time.Microsecond
	s.mu.Lock()
	if now := time.Now(); s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(time.Duration(n) * each)
	left := time.Until(s.free)
	s.mu.Unlock()
	time.Sleep(left)
}

func newBusyStore() *busyStore {
	s := &busyStore{hooked: &hooked{Driver: newStore()}}
	s.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		s.serve(1)
		return next(ctx, r)
	}
	s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
		s.serve(len(rs))
		next(ctx, rs, done)
	}
	s.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
		s.serve(1)
		return next(ctx, r)
	}
	return s
}

// However many keys are wanted at once of a keeper that uses none, and so however long the store's queue is, each TryLock has its key.
func TestTryLocksOfManyKeptKeys(t *testing.T) {
	const keys = 5000
	for _, together := range []int{1, 64, keys} {
		synctest.Test(t, func(t *testing.T) {
			d := newBusyStore()
			keeper, elsewhere := newClient(t, d, nil), newClient(t, d, nil)
			all := func(do func(key string)) {
				var wg sync.WaitGroup
				defer wg.Wait()
				turns := make(chan struct{}, together)
				for i := range keys {
					turns <- struct{}{}
					wg.Go(func() {
						do("k" + strconv.Itoa(i))
						<-turns
					})
				}
			}
			all(func(key string) { release(t, lock(t, keeper, key, &hasp.LockOptions{Keep: time.Hour})) })
			time.Sleep(ttl) // all asked to be told, and were renewed
			var refused atomic.Int64
			all(func(key string) {
				lease, err := elsewhere.Mutex(key, nil).TryLock(t.Context())
				if err != nil {
					refused.Add(1)
					return
				}
				release(t, lease)
			})
			if n := refused.Load(); n > 0 {
				t.Errorf("%d TryLocks at once: %d of %d are refused, though the keeper uses no key", together, n, keys)
			}
		})
	}
}

// Where the join is not answered, or no message comes, it is refused as by any holder.
func TestTryLockOfAKeeperThatCannotBeAsked(t *testing.T) {
	for name, c := range map[string]struct {
		takes  time.Duration
		tries  int64
		break_ func(d *hooked)
	}{
		"no answer to the join": {5 * time.Second, 2, func(d *hooked) { // as any request
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				if r.Queue {
					return hangTry(ctx, r, next)
				}
				return next(ctx, r)
			}
		}},
		"the join fails": {0, 2, func(d *hooked) {
			d.classify = func(error) driver.Class { return driver.ClassFull }
			d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				if r.Queue {
					return driver.Result{}, errDown
				}
				return next(ctx, r)
			}
		}},
		"no watch": {5 * time.Millisecond, 1, func(d *hooked) {
			d.watch = func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan driver.Hint, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}},
	} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			_, elsewhere, _ := keeping(t, d)
			d.change(func() { c.break_(d) })
			began := time.Now()
			_, err := elsewhere.Mutex("k", nil).TryLock(t.Context())
			failIf(t, !errors.Is(err, hasp.ErrHeld), "%v", err)
			failIf(t, time.Since(began) != c.takes || d.tries.Load() != c.tries, "it took %v, and %d Tries", time.Since(began), d.tries.Load())
		})
	}
}

// A holder that only wants to hear of who joins is not asked.
func TestTryLockAsksNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		held := lock(t, newClient(t, d.Driver, nil), "k", nil)
		wanted := held.Wanted()
		synctest.Wait()
		began := time.Now()
		_, err := newClient(t, d, nil).Mutex("k", nil).TryLock(t.Context())
		failIf(t, !errors.Is(err, hasp.ErrHeld), "%v", err)
		failIf(t, d.tries.Load() != 1 || !time.Now().Equal(began), "%d tries in %v", d.tries.Load(), time.Since(began))
		isWanted(t, "after a TryLock", wanted, false)
	})
}

// A TryLock of the keeper's own client, while somebody has the key there, does not count as somebody elsewhere.
func TestOwnTryLockEndsNoKeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c, _, o := keeping(t, &hooked{Driver: d})
		owner := ""
		for range 4 {
			work := lock(t, c, "k", o)
			stopIf(t, owner != "" && work.Owner() != owner, "the key went back")
			owner = work.Owner()
			for _, m := range []*hasp.Mutex{c.Mutex("k", o), c.Mutex("k", nil)} {
				if _, err := m.TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
					t.Error(err)
				}
			}
			release(t, work)
			synctest.Wait()
		}
		failIf(t, d.tries.Load() != 1+4*2, "%d tries", d.tries.Load())
	})
}

// A key that is wanted here all the time is never idle, and so never kept; its client asks to be told all the same.
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
		d, c := newHooked(t)
		useOnce(t, c, &hasp.LockOptions{Keep: time.Second})
		d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Second + time.Millisecond)
		err := c.Close()
		info := must(d.Inspect(t.Context(), "k"))
		failIf(t, info.Held && err == nil, "Close says nothing of the key that it could not release")
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

// The store is asked once for each of its grants, however often a turn wants to know: a key is not kept while it is asked.
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
		failIf(t, d.tries.Load() != 1 || d.renews.Load() != 1, "%d tries, %d renewals", d.tries.Load(), d.renews.Load())
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

// The answer tells of a waiter that waits already when the store is asked to tell.
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
		d, c := newHooked(t)
		useOnce(t, c, &hasp.LockOptions{Keep: time.Second})
		d.onRelease(func(context.Context, driver.ReleaseRequest, releaseFunc) error { return errors.New("no") })
		time.Sleep(time.Hour)
		d.onRelease(nil)
		check(t, c.Close())
	})
}
