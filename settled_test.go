// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// settledness is a driver that notes what the latest Release said, and loses the
// answers to Try while it is asked to.
func settledness(t *testing.T) (c *hasp.Client, loses *atomic.Bool, said func() bool) {
	t.Helper()
	loses = new(atomic.Bool)
	releases := make(chan bool, 16)
	d := &hooked{Driver: newStore()}
	d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		res, err := next(ctx, r)
		if loses.Load() {
			return driver.Result{}, errDown
		}
		return res, err
	}
	d.release = func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
		err := next(ctx, r)
		releases <- r.Settled
		return err
	}
	return newClient(t, d, nil), loses, func() bool { return <-releases }
}

// A Release is settled when every Try of its owner was answered, and only then:
// without a tombstone a Try that is still under way would have the key for
// nobody.
func TestReleaseIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, loses, said := settledness(t)
		release(t, lock(t, c, "answered", nil))
		if !said() {
			t.Error("each Try was answered, but the Release is not settled")
		}

		loses.Store(true)
		time.AfterFunc(time.Second, func() { loses.Store(false) })
		release(t, lock(t, c, "one answer was lost", nil))
		if said() {
			t.Error("a Try had no answer, but the Release is settled")
		}

		loses.Store(true)
		if _, err := c.Mutex("no answer", nil).TryLock(t.Context()); err == nil {
			t.Error("TryLock succeeded without an answer")
		}
		if said() {
			t.Error("the Try had no answer, but what cleans up is settled")
		}
	})
}

// The same of waits that end without the key.
func TestGivingUpIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, loses, said := settledness(t)
		holder := lock(t, c, "k", nil)
		wait := func(during func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				_, err := c.Mutex("k", nil).Lock(ctx)
				done <- err
			}()
			synctest.Wait()
			during()
			cancel()
			wantIs(t, <-done, context.Canceled, hasp.ErrHeld)
		}
		wait(func() {})
		if !said() {
			t.Error("each Try was answered, but giving up is not settled")
		}
		loses.Store(true)
		wait(func() {
			loses.Store(false)
			time.Sleep(time.Second) // it is refused, and that is answered
		})
		if said() {
			t.Error("a Try had no answer, but giving up is settled")
		}
		release(t, holder)
	})
}

// A Try of one leader that had no answer is one of the cohort's owner.
func TestCohortIsNotSettledByItsNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, loses, said := settledness(t)
		ctx, cancel := context.WithCancel(t.Context())
		loses.Store(true)
		failed := make(chan error)
		go func() {
			_, err := c.Mutex("k", inCohort).Lock(ctx)
			failed <- err
		}()
		synctest.Wait()
		got := queueUp(t, c, 2, inCohort)
		loses.Store(false)
		cancel()
		wantIs(t, <-failed, context.Canceled)
		for range 2 {
			release(t, <-got)
		}
		if said() {
			t.Error("a Try of the first leader had no answer, but the Release is settled")
		}
	})
}

// A leader leaves when its context ends, though the store does not confirm a
// subscription.
func TestCohortLeaderLeavesAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &hooked{Driver: newStore()}
		d.watch = func(ctx context.Context, _ driver.Claim, _ watchFunc) (<-chan struct{}, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := newClient(t, d, nil)
		other := newClient(t, d.Driver, nil)
		lock(t, other, "k", nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex("k", inCohort).Lock(ctx)
		wantIs(t, err, context.DeadlineExceeded)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it left after %v", took)
		}
	})
}
