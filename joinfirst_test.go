// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// joiner records what it is asked, and tells earlier or not.
type joiner struct {
	*memdriver.Store
	first driver.Telling // TellsEarlier, or 0
	deaf  string         // the key whose Watch fails

	mu    sync.Mutex // guards what follows
	fails bool       // the next Try fails
	calls []string
}

func (j *joiner) Traits() driver.Traits {
	t := j.Store.Traits()
	t.Tells |= j.first
	return t
}

func (j *joiner) call(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls = append(j.calls, what)
}

// fail says, once, that this Try is to fail.
func (j *joiner) fail() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	fails := j.fails
	j.fails = false
	return fails
}

// all returns the calls until now.
func (j *joiner) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.calls)
}

// forget forgets the calls until now. fails: the next Try fails.
func (j *joiner) forget(fails bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls, j.fails = nil, fails
}

func (j *joiner) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	what := "try"
	if r.Queue {
		what = "join"
	}
	j.call(what)
	if j.fail() {
		return driver.Result{}, errDown
	}
	return j.Store.Try(ctx, r)
}

func (j *joiner) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	j.call("watch")
	if c.Key == j.deaf {
		return nil, errDown
	}
	return j.Store.Watch(ctx, c)
}

// A Lock asks without the queue and watches before it joins, unless the store says that it may join at once; a TryLock never joins.
func TestJoinFirst(t *testing.T) {
	for first, want := range map[driver.Telling][]string{0: {"try", "watch", "join"}, driver.TellsEarlier: {"join", "watch"}} {
		synctest.Test(t, func(t *testing.T) {
			d := &joiner{Store: memdriver.New(), first: first}
			c, err := hasp.New(d, nil)
			need(t, err)
			defer c.Close()
			held, err := c.Mutex("k", nil).TryLock(t.Context())
			need(t, err)
			failIf(t, !slices.Equal(d.all(), []string{"try"}), "Tells %v: a TryLock asks %q", first, d.all())
			d.forget(false)
			got := make(chan error)
			go func() {
				l, err := c.Mutex("k", nil).Lock(t.Context())
				if err == nil {
					err = l.Release()
				}
				got <- err
			}()
			synctest.Wait()
			release(t, held)
			check(t, <-got)
			if got := d.all(); !slices.Equal(got, want) {
				t.Errorf("Tells %v: a Lock that waits asks %q, want %q", first, got, want)
			}
		})
	}
}

// A caller that goes on in the place of a cohort's leader that gave up asks with that place, from the first Try on.
func TestNextLeaderAsksWithThePlace(t *testing.T) {
	for _, deaf := range []string{"", "k"} {
		bubbled(t, "no hints of "+deaf, func(t *testing.T) {
			d := &joiner{Store: newStore(), deaf: deaf}
			c, elsewhere := newClient(t, d, nil), newClient(t, d.Store, nil)
			blocker, other := lock(t, elsewhere, "k", nil), lock(t, elsewhere, "other", nil)
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error)
			go func() {
				_, err := c.Mutex("k", inCohort).Lock(ctx)
				failed <- err
			}()
			synctest.Wait()
			got := queueUp(t, c, 1, inCohort)
			hears := begin(t.Context(), c.Mutex("other", nil).Lock) // the latest Watch of the client is a good one
			synctest.Wait()
			d.forget(false) // a Watch that failed is tried again
			cancel()
			wantIs(t, <-failed, context.Canceled)
			synctest.Wait()
			asked := d.all()
			failIf(t, len(asked) == 0 || slices.Contains(asked, "try"), "the next leader asked %q", asked)
			release(t, blocker)
			release(t, <-got)
			release(t, other)
			release(t, (<-hears).v)
		})
	}
}

// A wait that ends while the store is asked for hints asks for nothing more.
func TestEndBeforeTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: &joiner{Store: newStore()}}
		d.watch = func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan driver.Hint, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := newClient(t, d, nil)
		held := lock(t, c, "k", nil)
		before := d.tries.Load()
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", nil).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		cancel()
		wantIs(t, <-failed, context.Canceled, hasp.ErrHeld)
		failIf(t, d.tries.Load()-before != 1, "it asked %d times", d.tries.Load()-before)
		release(t, held)
	})
}

// asked has a client of d lock the key, which is free or held, or whose first Try fails, and returns how it asked.
func (j *joiner) asked(t *testing.T, c, other *hasp.Client, o *hasp.LockOptions, key string) []string {
	t.Helper()
	var holder *hasp.Lease
	if key == "held" {
		holder = lock(t, other, "k", nil)
	}
	j.forget(key == "fails")
	waits := begin(t.Context(), c.Mutex("k", o).Lock)
	time.Sleep(2 * time.Second) // a Watch that fails is given up by then
	if holder != nil {
		release(t, holder)
		time.Sleep(ttl)
	}
	synctest.Wait()
	check(t, granted(t, "the waiter", waits).Release())
	return j.all()
}

// A client that was refused a key joins the queue with its first Try the next time, once it watches; a client that was granted it asks as ever.
func TestJoinsABusyKey(t *testing.T) {
	for name, o := range map[string]*hasp.LockOptions{"it enters": nil, "it asks for what it was handed": {NoRenew: true, TTL: time.Hour}} {
		bubbled(t, name, func(t *testing.T) {
			d := &joiner{Store: newStore()}
			c, other := newClient(t, d, nil), newClient(t, d.Store, nil)
			for i, step := range []struct {
				key  string
				want []string
			}{
				{"free", []string{"try"}},
				{"fails", []string{"try", "try"}},
				{"held", []string{"try", "watch", "join"}},
				{"held", []string{"watch", "join"}},
				{"held", []string{"watch", "join"}},
				{"free", []string{"watch", "join"}},
				{"free", []string{"try"}},
				{"held", []string{"try", "watch", "join"}},
			} {
				if o != nil && step.key == "held" { // it claims what it was handed
					step.want = append(step.want, "join")
				}
				got := d.asked(t, c, other, o, step.key)
				failIf(t, !slices.Equal(got, step.want), "step %d: a Lock asks %q, want %q", i, got, step.want)
			}
			l, err := c.Mutex("k", nil).TryLock(t.Context())
			need(t, err)
			asked := d.all()
			failIf(t, asked[len(asked)-1] != "try", "a TryLock of a busy key asks %q", asked)
			release(t, l)
		})
	}
}

// Where the latest Watch failed, a Lock does not wait for one before it asks.
func TestBusyKeyWithoutHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c, other := newClient(t, d, nil), newClient(t, d.Driver, nil)
		deaf := func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan driver.Hint, error) {
			<-ctx.Done()
			return nil, errDown
		}
		held := lock(t, other, "k", nil)
		d.onWatch(deaf)
		waits := begin(t.Context(), c.Mutex("k", nil).Lock)
		time.Sleep(2 * time.Second)
		release(t, held)
		time.Sleep(ttl)
		synctest.Wait()
		check(t, granted(t, "the waiter", waits).Release())
		began := time.Now()
		if err := lock(t, c, "k", nil).Release(); err != nil || !time.Now().Equal(began) {
			t.Errorf("a free key is locked after %v: %v", time.Since(began), err)
		}
	})
}

// A Watch that is not answered keeps no Lock from a key that is free.
func TestBusyKeyAndASlowWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		c, other := newClient(t, d, nil), newClient(t, d.Driver, nil)
		held := lock(t, other, "k", nil)
		waits := begin(t.Context(), c.Mutex("k", nil).Lock)
		synctest.Wait()
		release(t, held)
		synctest.Wait()
		release(t, granted(t, "the waiter", waits))
		d.onWatch(func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan driver.Hint, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			began := time.Now()
			lease, err := c.Mutex("k", nil).Lock(ctx)
			cancel()
			need(t, err)
			if took := time.Since(began); took > 5*time.Millisecond || time.Until(lease.Deadline()) < ttl*98/100 {
				t.Errorf("it took %v, and lasts %v", took, time.Until(lease.Deadline()))
			}
			release(t, lease)
		}
	})
}

// However many keys were waited for, few are remembered, and none that is free again.
func TestBusyKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newStore()
		c, other := newClient(t, d, nil), newClient(t, d, nil)
		const more = 10
		for i := range hasp.MaxBusy + more {
			key := strconv.Itoa(i)
			held := lock(t, other, key, nil)
			waits := begin(t.Context(), c.Mutex(key, nil).Lock)
			synctest.Wait()
			need(t, held.Release())
			synctest.Wait()
			need(t, granted(t, "the waiter", waits).Release())
		}
		n := hasp.Busy(c)
		failIf(t, n != more, "%d keys are remembered, want those %d that came after %d", n, more, hasp.MaxBusy)
	})
}

// A key is not likely to be waited for since an error ended its first Try.
func TestFailedKeyIsNotBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		d := &hooked{Driver: newStore()}
		d.try = func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			cancel()
			return driver.Result{}, errDown
		}
		c := newClient(t, d, nil)
		_, err := c.Mutex("k", nil).Lock(ctx)
		failIf(t, !errors.Is(err, context.Canceled) || hasp.Busy(c) != 0, "%v, %d keys are remembered", err, hasp.Busy(c))
	})
}
