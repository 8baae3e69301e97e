// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/fault"
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
								check(t, f.use(t.Context(), c))
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

// key of a context's value.
type ctxKey struct{}

// Each event of a call and of its lease has the caller's context, the TTL, and when the
// request was sent that it answers; a handoff, how long it took, and a renewal, how old
// the lease had become.
func TestEventsSayWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lag = 3 * time.Millisecond
		store := newStore()
		holder := lock(t, newClient(t, store, nil), "k", nil)
		var mu sync.Mutex
		var events []hasp.Event
		slow := fault.New(store, func(fault.Call) fault.Fault { return fault.Fault{Delay: lag} })
		c := newClient(t, slow, &hasp.Options{Observe: func(e hasp.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "caller"))
		start := time.Now()
		got := make(chan *hasp.Lease)
		go func() {
			lease, err := c.Mutex("k", &hasp.LockOptions{TTL: 30 * time.Second}).Lock(ctx)
			check(t, err)
			cancel() // its values stay
			got <- lease
		}()
		time.Sleep(time.Second)
		release(t, holder)
		freed := time.Now()
		lease := <-got
		time.Sleep(15 * time.Second)
		renewed := time.Now()
		release(t, lease)
		mu.Lock()
		defer mu.Unlock()
		want := map[hasp.EventKind]time.Time{hasp.EventWaiting: start.Add(lag), hasp.EventAcquired: freed, hasp.EventRenewed: {}, hasp.EventReleased: renewed}
		for _, e := range events {
			if e.Context.Value(ctxKey{}) != "caller" || e.TTL != 30*time.Second {
				t.Errorf("%v: TTL %v of %v", e.Kind, e.TTL, e.Context)
			}
			if at, ok := want[e.Kind]; ok && !at.IsZero() && (e.Sent.Before(at) || e.Sent.Sub(at) > 50*lag) {
				t.Errorf("%v: sent at %v, want %v", e.Kind, e.Sent.Sub(start), at.Sub(start))
			}
			if e.Kind == hasp.EventAcquired && e.Handoff != lag {
				t.Errorf("a handoff took %v, want %v", e.Handoff, lag)
			}
			if e.Kind == hasp.EventRenewed && (e.Age < 9*time.Second || e.Age-e.Sent.Sub(freed) > lag) {
				t.Errorf("renewed at the age of %v by what was sent %v after the grant was asked for", e.Age, e.Sent.Sub(freed))
			}
			delete(want, e.Kind)
		}
		failIf(t, len(want) > 0, "no event of %v", want)
	})
}

// Observers calls all of them in order, and costs nothing where there are none.
func TestObservers(t *testing.T) {
	failIf(t, hasp.Observers(nil, nil) != nil, "two that are nil make one that is not")
	var got []int
	note := func(n int) func(hasp.Event) { return func(hasp.Event) { got = append(got, n) } }
	hasp.Observers(note(1), nil, note(2))(hasp.Event{})
	hasp.Observers(nil, note(3))(hasp.Event{})
	failIf(t, !slices.Equal(got, []int{1, 2, 3}), "called %v", got)
}
