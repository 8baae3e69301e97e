// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// isWanted checks whether a channel of Wanted is closed by now.
func isWanted(t *testing.T, what string, ch <-chan struct{}, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case <-ch:
		stopIf(t, !want, "%s: Wanted, but nobody waits", what)
	default:
		stopIf(t, want, "%s: not Wanted, but somebody waits", what)
	}
}

// A holder that asks hears of a waiter at once, in every mode, and whoever shares the key with it.
func TestWantedComesAtOnce(t *testing.T) {
	for name, hold := range map[string]func(c *hasp.Client) hasp.Locker{
		"Exclusive": func(c *hasp.Client) hasp.Locker { return c.Mutex("k", nil) },
		"Shared":    func(c *hasp.Client) hasp.Locker { return c.RWMutex("k", nil).RLocker() },
		"a slot":    func(c *hasp.Client) hasp.Locker { return c.Semaphore("k", 2, nil) },
	} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			c, other := newClient(t, d, nil), newClient(t, d.Driver, nil)
			var held []*hasp.Lease
			for range map[bool]int{true: 1, false: 2}[name == "Exclusive"] {
				l, err := hasp.Locks{hold(c)}.Lock(t.Context())
				need(t, err)
				held = append(held, l.All()...)
			}
			began := time.Now()
			for _, l := range held {
				isWanted(t, "before", l.Wanted(), false)
			}
			n := d.renews.Load()
			failIf(t, n != int64(len(held)), "%d renewals asked, want one for each lease", n)
			waits := begin(t.Context(), other.Mutex("k", nil).Lock)
			for _, l := range held {
				isWanted(t, "after", l.Wanted(), true)
			}
			now := time.Now()
			failIf(t, !now.Equal(began), "it took %v", now.Sub(began))
			for _, l := range held {
				release(t, l)
			}
			synctest.Wait()
			granted(t, "the waiter", waits)
		})
	}
}

// Who was in the queue before the holder asked is in the answer to the renewal that asks.
func TestWantedAtOnceWhenSomebodyWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		lease := lock(t, newClient(t, store, nil), "k", nil)
		began := time.Now()
		_ = begin(t.Context(), newClient(t, store, nil).Mutex("k", nil).Lock)
		synctest.Wait()
		isWanted(t, "at once", lease.Wanted(), true)
		failIf(t, time.Since(began) != 0, "it took %v", time.Since(began))
	})
}

// asked are the renewals of a driver that ask to be told.
type asked struct {
	mu   sync.Mutex
	all  []func() // as they come; nil: of a renewal that does not ask
	lost bool     // the store is not asked
}

func (a *asked) of(d *hooked) {
	d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
		a.mu.Lock()
		for i := range rs {
			if !rs[i].Queue {
				a.all = append(a.all, rs[i].Wanted)
			}
			if a.lost {
				rs[i].Wanted = nil
			}
		}
		a.mu.Unlock()
		next(ctx, rs, done)
	}
}

// seen returns for each renewal whether it asked.
func (a *asked) seen() (all []bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, wanted := range a.all {
		all = append(all, wanted != nil)
	}
	return all
}

// Where the message is lost, or the engine sends none, the next renewal says it.
func TestWantedComesWithARenewal(t *testing.T) {
	for name, c := range map[string]struct {
		lacks  driver.Telling
		renews int64 // before the next that is due
	}{"the message is lost": {0, 1}, "the engine sends none": {driver.TellsWanted, 0}} {
		bubbled(t, name, func(t *testing.T) {
			store := newStore()
			traits := store.Traits()
			traits.Tells &^= c.lacks
			d := &hooked{Driver: &without{store, traits}}
			(&asked{lost: true}).of(d)
			lease := lock(t, newClient(t, d, nil), "k", nil)
			wanted := lease.Wanted()
			synctest.Wait()
			failIf(t, d.renews.Load() != c.renews, "asking cost %d renewals, want %d", d.renews.Load(), c.renews)
			_ = begin(t.Context(), newClient(t, store, nil).Mutex("k", nil).Lock)
			isWanted(t, "before the renewal", wanted, false)
			time.Sleep(ttl / 3)
			isWanted(t, "after it", wanted, true)
		})
	}
}

// Who never asks has the store told nothing; who asked, and heard, does not ask again.
func TestWantedIsAskedForOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		a := &asked{}
		a.of(d)
		lease := lock(t, newClient(t, d, nil), "k", nil)
		time.Sleep(ttl)
		for _, asks := range a.seen() {
			stopIf(t, asks, "nobody called Wanted, but the store is asked")
		}
		a.all = nil
		wanted := lease.Wanted()
		synctest.Wait()
		time.Sleep(2 * ttl / 3)
		for _, asks := range a.seen() {
			stopIf(t, !asks, "a renewal does not ask")
		}
		_ = begin(t.Context(), newClient(t, d.Driver, nil).Mutex("k", nil).Lock)
		isWanted(t, "at once", wanted, true)
		before := len(a.seen())
		time.Sleep(ttl)
		after := a.seen()[before:]
		failIf(t, len(after) == 0 || after[0], "and then the renewals ask: %v", after)
	})
}

// A renewal that was sent before the call did not ask: another one does, and does not wait for it.
func TestWantedDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		lease := lock(t, newClient(t, d, nil), "k", nil)
		hang := make(chan struct{})
		var asks []bool
		d.onRenew(func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			asks = append(asks, rs[0].Wanted != nil)
			if len(asks) == 1 {
				<-hang
			}
			next(ctx, rs, done)
		})
		time.Sleep(ttl / 3)
		synctest.Wait()
		wanted := lease.Wanted()
		synctest.Wait()
		stopIf(t, len(asks) != 2 || asks[0] || !asks[1], "the renewals ask: %v, want only the second", asks)
		_ = begin(t.Context(), newClient(t, d.Driver, nil).Mutex("k", nil).Lock)
		isWanted(t, "at once", wanted, true)
		close(hang)
	})
}

// Without renewal nothing is sent that would prolong the lease: an Extend asks.
func TestWantedWithoutRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		lease := lock(t, newClient(t, d, nil), "k", &hasp.LockOptions{NoRenew: true})
		wanted := lease.Wanted()
		synctest.Wait()
		failIf(t, d.renews.Load() != 0, "it was renewed %d times", d.renews.Load())
		need(t, lease.Extend(t.Context(), ttl))
		_ = begin(t.Context(), newClient(t, d.Driver, nil).Mutex("k", nil).Lock)
		isWanted(t, "at once", wanted, true)
	})
}

// News that comes late is for nobody: neither for the lease that has ended, nor for the next.
func TestWantedAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		a := &asked{}
		a.of(d)
		c := newClient(t, d, nil)
		first := lock(t, c, "k", nil)
		wanted := first.Wanted()
		synctest.Wait()
		need(t, first.Release())
		second := lock(t, c, "k", nil)
		a.all[0]()
		isWanted(t, "of the lease that ended", wanted, false)
		isWanted(t, "of the next", second.Wanted(), false)
	})
}

// Wanted of several leases asks for all of them.
func TestWantedOfLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		all, err := mutexes(newClient(t, store, nil), "a", "b").Lock(t.Context())
		need(t, err)
		wanted, began := all.Wanted(), time.Now()
		isWanted(t, "before", wanted, false)
		_ = begin(t.Context(), newClient(t, store, nil).Mutex("b", nil).Lock)
		isWanted(t, "after", wanted, true)
		failIf(t, time.Since(began) != 0, "it took %v", time.Since(began))
	})
}
