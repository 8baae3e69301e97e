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
	"github.com/hasplock/hasp/internal/clock"
)

// Promise 2, failure case 1: loss is declared by the clock while every call to the store hangs, and before anybody else can have the key.
func TestLossNeedsNoNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore(), renew: hangRenew}
		lost := make(chan event.Event, 1)
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Lost {
				lost <- *e
			}
		}})
		start := time.Now()
		const lead = 3 * time.Second
		lease := lock(t, c, "k", &hasp.LockOptions{Lead: lead})
		ctx := lease.Context(t.Context())
		<-ctx.Done()
		got := time.Since(start)
		stopIf(t, got != usable-lead, "the context ended after %v, want %v", got, usable-lead)
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		wantIs(t, lease.Err(), hasp.ErrLost)
		<-lease.Done()
		if e := <-lost; !errors.Is(e.Err, hasp.ErrLost) || e.Held != usable-lead {
			t.Fatalf("the event is %+v", e)
		}
		d.onRenew(nil)
		wantIs(t, lease.Release(), hasp.ErrLost)
		mustBeFree(t, d, "k")
	})
}

// Promise 1 and 2: a machine that slept, or whose wall clock jumped, is seen within one tick, and by Err at once.
func TestLossIsSeenByTheClockThatShowsMost(t *testing.T) {
	for name, jump := range map[string]clock.Instant{
		"the machine slept":               {Boot: time.Minute, Wall: time.Minute},
		"the wall clock stepped forward":  {Wall: time.Minute},
		"the wall clock stepped backward": {Wall: -time.Hour},
	} {
		bubbled(t, name, func(t *testing.T) {
			c := newClient(t, newStore(), nil)
			var jumped atomic.Bool
			hasp.SetClock(c, func() clock.Instant {
				now := clock.System()
				if jumped.Load() {
					now.Wall += jump.Wall
					now.Boot += jump.Boot
				}
				return now
			})
			lease := lock(t, c, "k", nil)
			ctx := lease.Context(t.Context())
			time.Sleep(time.Second)
			jumped.Store(true)
			if jump.Wall < 0 {
				time.Sleep(time.Minute)
				stopIf(t, lease.Err() != nil, "a step back ended the lease: %v", lease.Err())
				return
			}
			woke := time.Now()
			<-ctx.Done()
			stopIf(t, time.Since(woke) > 250*time.Millisecond, "the context ended %v later", time.Since(woke))
			wantIs(t, lease.Err(), hasp.ErrLost)
		})
	}
}

// Promise 2: lease.Err checks the clock: code that just woke up learns of the loss even before the renewer ran.
func TestErrAsksTheClock(t *testing.T) {
	c := newClient(t, newStore(), nil)
	var offset atomic.Int64
	hasp.SetClock(c, func() clock.Instant {
		now := clock.System()
		now.Boot += time.Duration(offset.Load())
		return now
	})
	lease := lock(t, c, "k", nil)
	offset.Store(int64(time.Minute))
	wantIs(t, lease.Err(), hasp.ErrLost)
}

// Promise 2: so does Err of a context of the lease, also of one within another lease's, and then the context has ended in every way.
func TestErrOfAContextAsksTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no renewer runs meanwhile
		var offset atomic.Int64
		c, other := newClient(t, newStore(), nil), newClient(t, newStore(), nil)
		hasp.SetClock(c, func() clock.Instant {
			now := bubble()
			now.Boot += time.Duration(offset.Load())
			return now
		})
		ctx := lock(t, c, "k", nil).Context(t.Context())
		lease := lock(t, other, "other", nil)
		between, cancel := context.WithCancel(ctx)
		defer cancel()
		within := lease.Context(between)
		stopIf(t, ctx.Err() != nil || within.Err() != nil, "a context of a lease that stands has ended")
		offset.Store(int64(time.Minute))
		wantIs(t, within.Err(), context.Canceled)
		wantIs(t, context.Cause(within), hasp.ErrLost)
		<-within.Done()
		wantIs(t, ctx.Err(), context.Canceled)
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		<-ctx.Done()
		failIf(t, lease.Err() != nil, "the other lease: %v", lease.Err())
	})
}

// A store that says that the key is another's ends the lease at once.
func TestStoreWordEndsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		lease := lock(t, c, "k", nil)
		store.Lose("k")
		start := time.Now()
		<-lease.Done()
		stopIf(t, time.Since(start) > ttl/3, "told after %v, want at the next renewal", time.Since(start))
		wantIs(t, lease.Err(), hasp.ErrLost, hasp.ErrNotHeld)
	})
}

func TestNoRenewEndsAfterTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		start := time.Now()
		lease := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
		<-lease.Done()
		stopIf(t, time.Since(start) != usable, "over after %v, want %v", time.Since(start), usable)
	})
}

// Err says that a lease is lost from Lead before its deadline on, as its contexts do, also when it is the first to look.
func TestErrHeedsTheLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		offset := shifted(c)
		const lead = 10 * time.Second
		lease := lock(t, c, "k", &hasp.LockOptions{Lead: lead})
		synctest.Wait() // the renewer's first look must not see the clock jump
		offset.Store(int64(usable - lead - 1))
		failIf(t, lease.Err() != nil, "before the lead: %v", lease.Err())
		offset.Add(1) // the contexts have ended, though the deadline has not passed: nobody else noticed yet
		wantIs(t, lease.Err(), hasp.ErrLost)
	})
}

// The observer hears of a loss that a context is the first to see, once.
func TestObserverHearsWhatAContextSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Lost {
				told.Add(1)
			}
		}})
		offset := shifted(c)
		ctx := lock(t, c, "k", nil).Context(t.Context())
		synctest.Wait() // the renewer's first look must not see the clock jump
		offset.Store(int64(usable))
		for range 2 {
			failIf(t, ctx.Err() == nil, "the context has not ended")
			synctest.Wait()
			failIf(t, told.Load() != 1, "the observer was told %d times", told.Load())
		}
	})
}

func TestMaxHoldBoundsARenewedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		start := time.Now()
		lease := lock(t, c, "k", &hasp.LockOptions{MaxHold: 10 * time.Minute, Lead: time.Second})
		<-lease.Done()
		stopIf(t, time.Since(start) != 10*time.Minute-time.Second, "over after %v", time.Since(start))
		wantIs(t, lease.Err(), hasp.ErrLost)
		failIf(t, !strings.Contains(lease.Err().Error(), "MaxHold"), "the error does not say why: %v", lease.Err())
	})
}

// MaxHold counts from when the caller has the lease: a round trip that is longer
// takes nothing of it, and nothing is requested twice because of it.
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
			failIf(t, d.tries.Load() != 1, "a free key took %d questions", d.tries.Load())
			lasts(lease)
			wantIs(t, lease.Release(), hasp.ErrLost)
			blocker := lock(t, newClient(t, d.Driver, nil), "k", nil)
			got := queueUp(t, c, 1, o)
			time.Sleep(10 * time.Second)
			tries := d.tries.Load()
			lease, _ = handedOff(t, blocker, got)
			failIf(t, d.tries.Load()-tries != 1, "after its hint a waiter asked %d times", d.tries.Load()-tries)
			lasts(lease)
		})
	}
}

// MaxHold is about work, which begins when Locks has all keys.
func TestMaxHoldDoesNotCountTheWaitForOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		other := lock(t, c, "b", nil)
		time.AfterFunc(time.Hour, func() { _ = other.Release() })
		o := &hasp.LockOptions{MaxHold: 10 * time.Minute}
		leases, err := hasp.Locks{c.Mutex("a", o), c.Mutex("b", o)}.Lock(t.Context())
		need(t, err)
		start := time.Now()
		<-leases.Done()
		stopIf(t, time.Since(start) != 10*time.Minute, "over after %v", time.Since(start))
		if err := leases.Err(); !errors.Is(err, hasp.ErrLost) || !strings.Contains(err.Error(), "MaxHold") {
			t.Errorf("the error does not say why: %v", err)
		}
	})
}

// A suspend that leaves time: not renewed on waking.
func TestSuspendThatLeavesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		var jump atomic.Int64
		hasp.SetClock(c, func() clock.Instant {
			now := clock.System()
			now.Boot += time.Duration(jump.Load())
			now.Wall += time.Duration(jump.Load())
			return now
		})
		l := lock(t, c, "k", nil)
		time.Sleep(5 * time.Second)
		jump.Store(int64(20 * time.Second)) // 4.7 s are left
		time.Sleep(time.Minute)
		check(t, l.Err())
	})
}

// A context ends at the deadline, also of a lease that comes just after the renewer was woken for nothing.
func TestContextEndsAtTheDeadlineAfterASpuriousWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		wakeForNothing(t, c)
		lease := lock(t, c, "k", &hasp.LockOptions{TTL: 60 * time.Millisecond, NoRenew: true})
		ctx, over := lease.Context(t.Context()), lease.Deadline()
		<-ctx.Done()
		failIf(t, time.Since(over) > 0, "the context ended %v after the deadline", time.Since(over))
	})
}

// wakeForNothing wakes the renewer, which finds no lease, 50 ms before it looks anyway.
func wakeForNothing(t *testing.T, c *hasp.Client) {
	release(t, lock(t, c, "long", nil))
	synctest.Wait()
	time.Sleep(200 * time.Millisecond)
	release(t, lock(t, c, "short", &hasp.LockOptions{TTL: 20 * time.Millisecond, NoRenew: true}))
	synctest.Wait()
}

// teller is an engine that hears by itself that leases are over: when the test says so.
type teller struct {
	*hooked
	lost func(driver.ID, uint64)
}

func (d *teller) Tell(lost func(driver.ID, uint64)) { d.lost = lost }

// id finds out which owner holds a key.
func (d *teller) id(t *testing.T, key string) driver.ID {
	t.Helper()
	info, err := d.Inspect(t.Context(), key)
	stopIf(t, err != nil || !info.Held, "%q: %+v, %v", key, info, err)
	return driver.ID{Key: key, Owner: info.Holder.Owner, Label: info.Holder.Label}
}

// What the engine hears from the store ends the lease at once, before any renewal, and says why.
func TestEngineTellsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &teller{hooked: &hooked{Driver: newStore()}}
		var lost []event.Event
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Lost {
				lost = append(lost, *e)
			}
		}})
		lease, other := lock(t, c, "k", nil), lock(t, c, "other", nil)
		ctx := lease.Context(t.Context())
		start := time.Now()
		d.lost(d.id(t, "k"), lease.Fence())
		<-ctx.Done()
		synctest.Wait()
		failIf(t, time.Since(start) != 0, "the context ended after %v, want at once", time.Since(start))
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		wantIs(t, lease.Err(), hasp.ErrLost, hasp.ErrNotHeld)
		if len(lost) != 1 || lost[0].Key != "k" || !errors.Is(lost[0].Err, hasp.ErrLost) {
			t.Errorf("the observer was told of %+v", lost)
		}
		failIf(t, other.Err() != nil, "the other lease: %v", other.Err())
	})
}

// Late and strange news ends nothing: of a lease with a smaller fence, of an owner that
// nobody here is, of another label, of a lease that was released, of a closed client's.
func TestEngineTellsOfOthersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &teller{hooked: &hooked{Driver: newStore()}}
		c := newClient(t, d, nil)
		gone := lock(t, c, "gone", nil)
		old := d.id(t, "gone")
		need(t, gone.Release())
		lease := lock(t, c, "k", nil)
		id := d.id(t, "k")
		stranger, labelled := id, id
		stranger.Owner, labelled.Label = old.Owner, "another"
		for _, news := range []driver.ID{old, stranger, labelled} {
			d.lost(news, lease.Fence())
		}
		d.lost(id, lease.Fence()-1)
		synctest.Wait()
		failIf(t, lease.Err() != nil, "the lease: %v", lease.Err())
		if err := gone.Err(); !errors.Is(err, hasp.ErrNotHeld) || errors.Is(err, hasp.ErrLost) {
			t.Errorf("the lease that was released: %v", err)
		}
		if err := lease.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
		need(t, c.Close())
		d.lost(id, lease.Fence())
	})
}

// A session that ends may end thousands of leases, some of which are just being released.
func TestEngineTellsOfThousands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		d := &teller{hooked: &hooked{Driver: newStore()}}
		c := newClient(t, d, nil)
		leases, ids := make([]*hasp.Lease, n), make([]driver.ID, n)
		for i := range leases {
			key := string(rune('a'+i%26)) + time.Duration(i).String()
			leases[i] = lock(t, c, key, nil)
			ids[i] = d.id(t, key)
		}
		go func() {
			for i := range leases {
				d.lost(ids[i], leases[i].Fence())
			}
		}()
		for _, l := range leases[:n/10] {
			if err := l.Release(); err != nil && !errors.Is(err, hasp.ErrLost) {
				t.Errorf("Release: %v", err)
			}
		}
		synctest.Wait()
		for _, l := range leases[n/10:] {
			wantIs(t, l.Err(), hasp.ErrLost)
		}
	})
}

// What an engine without fences tells ends that lease alone.
func TestEngineWithoutFencesTellsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &teller{hooked: &hooked{Driver: newStore()}}
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			res.Fence = 0
			return res, err
		}
		c := newClient(t, d, nil)
		lease, other := lock(t, c, "k", nil), lock(t, c, "other", nil)
		d.lost(d.id(t, "k"), 0)
		synctest.Wait()
		wantIs(t, lease.Err(), hasp.ErrLost)
		failIf(t, other.Err() != nil, "the other lease: %v", other.Err())
	})
}
