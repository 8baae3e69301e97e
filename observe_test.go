// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
)

// An Observe that panics, above which somebody recovers, takes that call alone:
// nothing of it stays in the store, and those behind it have the key next.
func TestObserverPanics(t *testing.T) {
	for _, f := range []struct {
		name  string
		kinds []hasp.EventKind
		use   func(ctx context.Context, c *hasp.Client) error
	}{
		{"Lock", []hasp.EventKind{hasp.EventWaiting, hasp.EventAcquired, hasp.EventReleased}, use(nil)},
		{"cohort", []hasp.EventKind{hasp.EventWaiting, hasp.EventAcquired, hasp.EventReleased}, use(inCohort)},
		{"cohort without turns", []hasp.EventKind{hasp.EventReleased}, use(&hasp.LockOptions{Cohort: time.Nanosecond})},
		{"LockAll", []hasp.EventKind{hasp.EventWaiting, hasp.EventAcquired}, func(ctx context.Context, c *hasp.Client) error {
			all, err := c.LockKeys(ctx, "a", "k")
			if err == nil {
				err = all.Release()
			}
			return err
		}},
	} {
		for _, kind := range f.kinds {
			for victim := range 3 {
				t.Run(fmt.Sprint(f.name, kind, victim), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						store := newStore()
						var armed atomic.Bool
						c := newClient(t, store, &hasp.Options{Observe: func(e hasp.Event) {
							if e.Kind == kind && armed.CompareAndSwap(true, false) {
								panic("the observer's")
							}
						}})
						holder := lock(t, newClient(t, store, nil), "k", nil)
						var panicked, locked atomic.Int32
						for i := range 3 {
							if i == victim {
								armed.Store(true)
							}
							go func() {
								defer func() {
									if recover() != nil {
										panicked.Add(1)
									}
								}()
								if err := f.use(t.Context(), c); err != nil {
									t.Error(err)
								}
								locked.Add(1)
							}()
							synctest.Wait()
						}
						release(t, holder)
						time.Sleep(time.Second)
						if panicked.Load() != 1 || locked.Load() != 2 {
							t.Errorf("%d calls of 3 panicked, %d had the key and released it", panicked.Load(), locked.Load())
						}
						mustBeFree(t, store, "a")
						mustBeFree(t, store, "k")
					})
				})
			}
		}
	}
}

// use returns what locks a key for a while.
func use(o *hasp.LockOptions) func(context.Context, *hasp.Client) error {
	return func(ctx context.Context, c *hasp.Client) error {
		lease, err := c.Mutex("k", o).Lock(ctx)
		if err == nil {
			time.Sleep(time.Millisecond)
			err = lease.Release()
		}
		return err
	}
}
