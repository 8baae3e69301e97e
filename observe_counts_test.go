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

// counts sums up what the events say of how many leases are held, and how many calls wait.
type counts struct {
	mu              sync.Mutex
	leases, waiters int
}

func (n *counts) observe(e hasp.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases += e.Leases
	n.waiters += e.Waiters
}

// want waits until nothing moves any more, and compares.
func (n *counts) want(t *testing.T, when string, leases, waiters int) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.leases != leases || n.waiters != waiters {
		t.Errorf("%s: %d leases are held and %d calls wait, by the events; want %d and %d", when, n.leases, n.waiters, leases, waiters)
	}
}

// The sums of Event.Leases and Event.Waiters are exact, whatever is locked and however it
// ends.
func TestEventsCount(t *testing.T) {
	each := func(name string, test func(t *testing.T, n *counts, d *hooked, c *hasp.Client)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, d := &counts{}, &hooked{Driver: newStore()}
				c := newClient(t, d, &hasp.Options{Observe: n.observe})
				test(t, n, d, c)
				check(t, c.Close())
				n.want(t, "after Close", 0, 0)
			})
		})
	}
	// begin calls Lock, and returns what ends the wait, and where the lease comes.
	begin := func(t *testing.T, l hasp.Locker) (cancel context.CancelFunc, got chan *hasp.Lease) {
		ctx, cancel := context.WithCancel(t.Context())
		got = make(chan *hasp.Lease, 1)
		go func() {
			lease, err := l.Lock(ctx)
			if err != nil && ctx.Err() == nil && !errors.Is(err, hasp.ErrClosed) {
				t.Error(err)
			}
			got <- lease
		}()
		synctest.Wait()
		return cancel, got
	}
	for name, o := range map[string]*hasp.LockOptions{"Mutex": nil, "cohort": inCohort} {
		each(name, func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
			m := c.Mutex("k", o)
			other := lock(t, newClient(t, d.Driver, nil), "k", nil)
			if _, err := m.TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
				t.Error(err)
			}
			n.want(t, "after a TryLock", 0, 0)
			stopFirst, _ := begin(t, m)
			_, second := begin(t, m)
			stopThird, _ := begin(t, m)
			_, fourth := begin(t, m)
			n.want(t, "behind another", 0, 4)
			time.Sleep(time.Minute) // they ask again, and are refused
			n.want(t, "a minute later", 0, 4)
			stopFirst()
			n.want(t, "the first one gave up", 0, 3)
			release(t, other)
			time.Sleep(time.Second)
			n.want(t, "it is free", 1, 2)
			stopThird()
			lease := <-second
			n.want(t, "the third one gave up", 1, 1)
			release(t, lease)
			lease = <-fourth
			n.want(t, "the last one has it", 1, 0)
			inner, err := c.Mutex("k", &hasp.LockOptions{Reentrant: true}).Lock(lease.Context(t.Context()))
			need(t, err)
			n.want(t, "twice", 1, 0)
			release(t, lease)
			n.want(t, "once", 1, 0)
			release(t, inner)
			release(t, inner)
			n.want(t, "released", 0, 0)
		})
	}
	each("LockAll", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		other := lock(t, newClient(t, d.Driver, nil), "b", nil)
		if _, err := c.TryLockKeys(t.Context(), "a", "b", "c"); !errors.Is(err, hasp.ErrHeld) {
			t.Error(err)
		}
		n.want(t, "not all", 0, 0)
		got := make(chan *hasp.Leases)
		go func() {
			all, err := c.LockKeys(t.Context(), "a", "b", "c", "c")
			check(t, err)
			got <- all
		}()
		n.want(t, "one of three", 1, 1)
		release(t, other)
		all := <-got
		n.want(t, "all", 3, 0)
		check(t, all.Release())
		n.want(t, "none", 0, 0)
	})
	each("Semaphore", func(t *testing.T, n *counts, _ *hooked, c *hasp.Client) {
		s := c.Semaphore("k", 2, nil)
		_, first := begin(t, s)
		begin(t, s)
		begin(t, s)
		n.want(t, "two slots", 2, 1)
		release(t, <-first)
		n.want(t, "handed on", 2, 0)
	})
	each("lost", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		found := lock(t, c, "found by its release", &hasp.LockOptions{NoRenew: true})
		check(t, c.Break(t.Context(), found.Key(), found.Owner()))
		n.want(t, "broken, which nobody told", 1, 0)
		wantIs(t, found.Release(), hasp.ErrLost)
		n.want(t, "broken and released", 0, 0)
		lease := lock(t, c, "k", &hasp.LockOptions{NoRenew: true})
		lock(t, c, "dropped", &hasp.LockOptions{NoRenew: true})
		n.want(t, "held", 2, 0)
		time.Sleep(hasp.DefaultTTL)
		n.want(t, "lost", 0, 0)
		wantIs(t, lease.Release(), hasp.ErrLost)
		n.want(t, "lost and released", 0, 0)
	})
	each("cohort that loses the key", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		m := c.Mutex("k", &hasp.LockOptions{Cohort: time.Hour, TTL: time.Second})
		d.renew = func(_ context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), _ renewFunc) {
			for i := range rs {
				done(i, driver.Renewal{Err: errors.New("no")})
			}
		}
		_, first := begin(t, m)
		_, second := begin(t, m)
		n.want(t, "two", 1, 1)
		time.Sleep(1500 * time.Millisecond)
		n.want(t, "lost, and the next one has it", 1, 0)
		wantIs(t, (<-first).Release(), hasp.ErrLost)
		time.Sleep(2 * time.Second)
		n.want(t, "both are lost", 0, 0)
		wantIs(t, (<-second).Release(), hasp.ErrLost)
	})
	each("trouble", func(t *testing.T, n *counts, d *hooked, c *hasp.Client) {
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, driver.ErrNotVoting
		}
		stop, _ := begin(t, c.Mutex("k", nil))
		time.Sleep(time.Minute)
		n.want(t, "the store is held back", 0, 1)
		stop()
		n.want(t, "it waits no longer", 0, 0)
	})
	each("Close", func(t *testing.T, n *counts, _ *hooked, c *hasp.Client) {
		for range 3 {
			begin(t, c.Mutex("k", nil))
			begin(t, c.Mutex("k", inCohort))
			begin(t, c.Election("k", nil))
		}
		n.want(t, "open", 1, 8)
	})
}
