// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// abandon leaves the key k abandoned.
func abandon(t *testing.T, c *hasp.Client, o *hasp.LockOptions) {
	t.Helper()
	defer func() { _ = recover() }()
	_ = c.Mutex("k", o).Do(t.Context(), func(context.Context, *hasp.Lease) error { panic("a bug") })
}

// How a holder's end makes the next one's lease Abandoned, or not.
func TestAbandoned(t *testing.T) {
	for name, end := range map[string]struct {
		of   func(t *testing.T, d *mortal, c *hasp.Client)
		want bool
	}{
		"nobody before": {func(*testing.T, *mortal, *hasp.Client) {}, false},
		"released": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			release(t, lock(t, c, "k", nil))
		}, false},
		"Do returned an error": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			mine := errors.New("mine")
			wantIs(t, c.Mutex("k", nil).Do(t.Context(), func(context.Context, *hasp.Lease) error { return mine }), mine)
		}, false},
		"Do panicked": {func(t *testing.T, _ *mortal, c *hasp.Client) { abandon(t, c, nil) }, true},
		"died": {func(t *testing.T, d *mortal, c *hasp.Client) {
			lock(t, c, "k", nil)
			d.dead.Store(true)
		}, true},
		"a slot's holder died": {func(t *testing.T, d *mortal, c *hasp.Client) {
			must(c.Semaphore("k", 1, nil).Lock(t.Context()))
			d.dead.Store(true)
		}, true},
		"a reader died": {func(t *testing.T, d *mortal, c *hasp.Client) {
			must(c.RWMutex("k", nil).RLock(t.Context()))
			d.dead.Store(true)
		}, false},
		"downgraded, then died": {func(t *testing.T, d *mortal, c *hasp.Client) {
			check(t, must(c.RWMutex("k", nil).Lock(t.Context())).Downgrade(t.Context()))
			d.dead.Store(true)
		}, false},
		"lost by the clock, then released": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			l := lock(t, c, "k", &hasp.LockOptions{NoRenew: true, Lead: 10 * time.Second})
			<-l.Done() // the store has it for a while
			wantIs(t, l.Release(), hasp.ErrLost)
		}, true},
		"MaxHold": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			l := lock(t, c, "k", &hasp.LockOptions{MaxHold: time.Second})
			<-l.Done()
			wantIs(t, l.Release(), hasp.ErrLost)
		}, true},
		"its client was closed": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			lock(t, c, "k", nil)
			check(t, c.Close())
		}, true},
		"its client was closed while Do ran": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			err := c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
				go c.Close()
				<-ctx.Done()
				return ctx.Err()
			})
			wantIs(t, err, hasp.ErrClosed)
		}, true},
		"given up": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			l := lock(t, c, "k", nil)
			check(t, l.Abandon())
			check(t, l.Release()) // is no second end
		}, true},
		"released, then given up": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			l := lock(t, c, "k", nil)
			release(t, l)
			check(t, l.Abandon())
		}, false},
		"several given up": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			check(t, must(mutexes(c, "j", "k").Lock(t.Context())).Abandon())
		}, true},
		"broken": {func(t *testing.T, _ *mortal, c *hasp.Client) {
			l := lock(t, c, "k", nil)
			check(t, c.Operator().Break(t.Context(), "k", l.Owner()))
			wantIs(t, l.Release(), hasp.ErrLost)
		}, true},
		"adopted and released": {func(t *testing.T, d *mortal, c *hasp.Client) {
			l := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
			release(t, must(c.Operator().Adopt(t.Context(), "k", l.Owner(), nil)))
		}, false},
		"a cohort's last turn died": {func(t *testing.T, d *mortal, c *hasp.Client) {
			first := lock(t, c, "k", inCohort)
			got := queueUp(t, c, 2, inCohort)
			release(t, first)
			release(t, <-got)
			failIf(t, (<-got).Abandoned(), "a turn after one that was released is Abandoned")
			d.dead.Store(true)
		}, true},
	} {
		bubbled(t, name, func(t *testing.T) {
			store := newStore()
			d := &mortal{Driver: store}
			end.of(t, d, newClient(t, d, nil))
			c := newClient(t, store, nil)
			next := lock(t, c, "k", nil)
			failIf(t, next.Abandoned() != end.want, "Abandoned is %v, want %v", next.Abandoned(), end.want)
			if err := next.Downgrade(t.Context()); err != nil || next.Abandoned() != end.want {
				t.Error("a lease forgets that it is Abandoned")
			}
			release(t, next)
			failIf(t, lock(t, c, "k", nil).Abandoned(), "the mark outlives a holder who finished")
		})
	}
}

// Turns that saw the mark, but whose user did not have the key, do not take it away.
func TestAbandonedIsNotSwallowed(t *testing.T) {
	for name, swallow := range map[string]func(t *testing.T, d *hooked, c *hasp.Client){
		"nobody": func(*testing.T, *hooked, *hasp.Client) {},
		"a reader": func(t *testing.T, _ *hooked, c *hasp.Client) {
			r := must(c.RWMutex("k", nil).RLock(t.Context()))
			failIf(t, !r.Abandoned(), "a reader is not Abandoned")
			release(t, r)
		},
		"a TryLock whose answer was lost": func(t *testing.T, d *hooked, c *hasp.Client) {
			d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				_, _ = next(ctx, r)
				return driver.Result{}, errDown
			})
			_, err := c.Mutex("k", nil).TryLock(t.Context())
			wantIs(t, err, errDown)
			d.onTry(nil)
		},
		"a TryLock that was granted too late": func(t *testing.T, d *hooked, c *hasp.Client) {
			d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				res, err := next(ctx, r)
				time.Sleep(2 * time.Second)
				return res, err
			})
			if _, err := c.Mutex("k", &hasp.LockOptions{TTL: time.Second}).TryLock(t.Context()); err == nil {
				t.Error("granted")
			}
			d.onTry(nil)
		},
		"a Locks.TryLock that failed": func(t *testing.T, _ *hooked, c *hasp.Client) {
			other := lock(t, c, "z", nil)
			_, err := mutexes(c, "k", "z").TryLock(t.Context())
			wantIs(t, err, hasp.ErrHeld)
			release(t, other)
		},
		"a Locks that gave up": func(t *testing.T, _ *hooked, c *hasp.Client) {
			other := lock(t, c, "z", nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := mutexes(c, "k", "z").Lock(ctx)
			wantIs(t, err, context.DeadlineExceeded)
			release(t, other)
		},
		"a Locks whose client was closed": func(t *testing.T, d *hooked, _ *hasp.Client) {
			c := newClient(t, d, nil)
			other := lock(t, c, "z", nil)
			all := begin(t.Context(), func(ctx context.Context) (*hasp.Leases, error) { return mutexes(c, "k", "z").Lock(ctx) })
			synctest.Wait()
			check(t, c.Close())
			wantIs(t, (<-all).err, hasp.ErrClosed)
			wantIs(t, other.Err(), hasp.ErrClosed)
		},
		"a Locks in a cohort that gave up": func(t *testing.T, _ *hooked, c *hasp.Client) {
			other := lock(t, c, "z", nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := hasp.Locks{c.Mutex("k", inCohort), c.Mutex("z", nil)}.Lock(ctx)
			wantIs(t, err, context.DeadlineExceeded)
			release(t, other)
		},
		"a Lock whose answer was lost, asked again": func(t *testing.T, d *hooked, c *hasp.Client) {
			var n atomic.Int64
			d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
				res, err := next(ctx, r)
				if n.Add(1) == 1 {
					return driver.Result{}, errDown
				}
				return res, err
			})
			l := lock(t, c, "k", nil)
			failIf(t, !l.Abandoned(), "the lost answer took the mark")
			d.onTry(nil)
			if err := c.Operator().Break(t.Context(), "k", l.Owner()); err != nil { // or the mark would be gone
				t.Error(err)
			}
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			store := newStore()
			died := &mortal{Driver: store}
			lock(t, newClient(t, died, nil), "k", nil)
			died.dead.Store(true)
			time.Sleep(ttl)
			d := &hooked{Driver: store}
			swallow(t, d, newClient(t, d, nil))
			synctest.Wait()
			next := lock(t, newClient(t, store, nil), "k", nil)
			failIf(t, !next.Abandoned(), "the mark is gone")
			release(t, next)
		})
	}
}

// Turns of a cohort on one grant: the first sees the mark, and the later ones if it did not have the key for its user.
func TestAbandonedInACohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		died := &mortal{Driver: store}
		lock(t, newClient(t, died, nil), "k", nil)
		died.dead.Store(true)
		c := newClient(t, store, nil)
		other := lock(t, c, "z", nil)
		// The one that leads the cohort wants another key, too.
		ctx, cancel := context.WithCancel(t.Context())
		all := begin(ctx, func(ctx context.Context) (*hasp.Leases, error) {
			return hasp.Locks{c.Mutex("k", inCohort), c.Mutex("z", nil)}.Lock(ctx)
		})
		synctest.Wait()
		got := queueUp(t, c, 3, inCohort)
		time.Sleep(ttl) // granted, for all who are there
		cancel()
		wantIs(t, (<-all).err, context.Canceled)
		for i := range 3 {
			l := <-got
			failIf(t, l.Abandoned() != (i == 0), "Abandoned is %v in turn %d", l.Abandoned(), i)
			release(t, l)
		}
		release(t, other)
		failIf(t, lock(t, c, "k", nil).Abandoned(), "the mark outlives turns that finished")
	})
}

// A turn that ends with a panic is not passed on as if it had finished.
func TestPanicInACohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		first := lock(t, c, "k", inCohort)
		panicked := make(chan any)
		go func() {
			defer func() { panicked <- recover() }()
			_ = c.Mutex("k", inCohort).Do(t.Context(), func(context.Context, *hasp.Lease) error {
				time.Sleep(time.Second)
				panic("a bug")
			})
		}()
		synctest.Wait()
		got := queueUp(t, c, 2, inCohort)
		release(t, first)
		failIf(t, <-panicked == nil, "the panic is gone")
		for i := range 2 {
			l := <-got
			failIf(t, l.Abandoned() != (i == 0), "Abandoned is %v in turn %d after a panic", l.Abandoned(), i)
			release(t, l)
		}
	})
}

// A turn that is not taken, because its context ended at that moment, ends as finished, like the previous one.
func TestAbandonedAndATurnForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 { // whether the turn or the end of its context comes first is chance
			store := newStore()
			died := &mortal{Driver: store}
			lock(t, newClient(t, died, nil), "k", nil)
			died.dead.Store(true)
			c := newClient(t, store, nil)
			leads := begin(t.Context(), c.Mutex("k", inCohort).Lock)
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			turn := begin(ctx, c.Mutex("k", inCohort).Lock)
			first := (<-leads).v
			stopIf(t, !first.Abandoned(), "the case is void")
			cancel()
			release(t, first)
			if got := <-turn; got.v != nil {
				release(t, got.v)
			}
			synctest.Wait()
			stopIf(t, lock(t, c, "k", nil).Abandoned(), "the mark is back")
		}
	})
}

// Wanted is closed with the renewal after a waiter came, for each lease of the hold, and not before.
func TestWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		m := c.RWMutex("k", reentrant)
		first := must(m.RLock(t.Context()))
		nested := must(m.RLock(first.Context(t.Context())))
		beside := must(newClient(t, store, nil).RWMutex("k", nil).RLock(t.Context()))
		wanted := first.Wanted()
		time.Sleep(3 * ttl)
		open := func(when string, ch <-chan struct{}) {
			t.Helper()
			select {
			case <-ch:
				t.Fatal("wanted " + when)
			default:
			}
		}
		open("by nobody", wanted)
		writer := begin(t.Context(), newClient(t, store, nil).RWMutex("k", nil).Lock)
		start := time.Now()
		<-wanted
		failIf(t, time.Since(start) > ttl/3, "learnt after %v", time.Since(start))
		<-nested.Wanted()
		<-first.Wanted() // stays closed for later callers
		<-beside.Wanted()
		release(t, nested)
		release(t, first)
		release(t, beside)
		w := (<-writer).v
		time.Sleep(ttl)
		open("by those who had it before", w.Wanted())
		release(t, w)

		// Without renewal, Extend learns it.
		l := must(c.Mutex("k", &hasp.LockOptions{NoRenew: true}).Lock(t.Context()))
		wanted = l.Wanted()
		waiter := begin(t.Context(), c.Mutex("k", nil).Lock)
		time.Sleep(ttl / 2)
		open("without asking", wanted)
		need(t, l.Extend(t.Context(), ttl))
		<-wanted
		release(t, l)
		release(t, (<-waiter).v)
		open("after the end", must(c.Mutex("other", nil).Lock(t.Context())).Wanted())
	})
}
