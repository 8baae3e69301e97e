// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// collected lets leases be renewed, with a garbage collection before each.
func collected(renewals int) {
	for range renewals {
		time.Sleep(ttl / 3)
		runtime.GC()
	}
}

// forgets says of each way to hold a key whether that is forgotten once what use returns is all that is left of it.
var forgets = []struct {
	name      string
	forgotten bool
	use       func(t *testing.T, c *hasp.Client) (kept any)
}{
	{"nothing", true, func(t *testing.T, c *hasp.Client) any {
		lock(t, c, "k", nil)
		return nil
	}},
	{"the lease", false, func(t *testing.T, c *hasp.Client) any { return lock(t, c, "k", nil) }},
	{"a context of it", false, func(t *testing.T, c *hasp.Client) any {
		return lock(t, c, "k", nil).Context(t.Context())
	}},
	{"the end of a context of it", false, func(t *testing.T, c *hasp.Client) any {
		return lock(t, c, "k", nil).Context(context.Background()).Done()
	}},
	{"a context within one of it", false, func(t *testing.T, c *hasp.Client) any {
		ctx, cancel := context.WithCancel(lock(t, c, "k", nil).Context(t.Context()))
		t.Cleanup(cancel)
		return ctx
	}},
	{"a context that has ended", true, func(t *testing.T, c *hasp.Client) any {
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		ctx := lock(t, c, "k", nil).Context(parent)
		return ctx.Done()
	}},
	{"Done", false, func(t *testing.T, c *hasp.Client) any { return lock(t, c, "k", nil).Done() }},
	{"Wanted", false, func(t *testing.T, c *hasp.Client) any { return lock(t, c, "k", nil).Wanted() }},
	{"the lease of a read", false, func(t *testing.T, c *hasp.Client) any {
		return must(c.RWMutex("k", nil).RLock(t.Context()))
	}},
	{"nothing of a slot", true, func(t *testing.T, c *hasp.Client) any {
		must(c.Semaphore("k", 2, nil).Lock(t.Context()))
		return nil
	}},
	{"nothing of an election", true, func(t *testing.T, c *hasp.Client) any {
		must(c.Election("k", nil).Lock(t.Context()))
		return nil
	}},
	{"the leases of Locks", false, func(t *testing.T, c *hasp.Client) any {
		return must(mutexes(c, "k", "other").Lock(t.Context()))
	}},
	{"their end", false, func(t *testing.T, c *hasp.Client) any {
		return must(mutexes(c, "k", "other").Lock(t.Context())).Done()
	}},
	{"nothing of Locks", true, func(t *testing.T, c *hasp.Client) any {
		must(mutexes(c, "k").Lock(t.Context()))
		return nil
	}},
	{"nothing of Locks of two", true, func(t *testing.T, c *hasp.Client) any {
		must(mutexes(c, "k", "other").Lock(t.Context()))
		return nil
	}},
	{"the inner one of two", false, func(t *testing.T, c *hasp.Client) any {
		return within(t, c).inner
	}},
	{"the outer one of two, whose inner one is released", false, func(t *testing.T, c *hasp.Client) any {
		two := within(t, c)
		release(t, two.inner)
		return two.outer
	}},
	{"the released one of two", true, func(t *testing.T, c *hasp.Client) any {
		inner := within(t, c).inner
		collected(2) // it keeps both until then
		release(t, inner)
		return inner
	}},
	{"a function of Do", false, func(t *testing.T, c *hasp.Client) any {
		runs := make(chan struct{})
		go func() {
			_ = c.Mutex("k", nil).Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
				close(runs)
				<-ctx.Done()
				return nil
			})
		}()
		<-runs
		return nil
	}},
	{"a turn in a cohort", false, func(t *testing.T, c *hasp.Client) any { return secondTurn(t, c) }},
	{"nothing of a turn in a cohort", true, func(t *testing.T, c *hasp.Client) any {
		secondTurn(t, c)
		return nil
	}},
}

type two struct{ outer, inner *hasp.Lease }

// within locks a key within a lease of it.
func within(t *testing.T, c *hasp.Client) two {
	o := &hasp.LockOptions{Reentrant: true}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outer := lock(t, c, "k", o)
	return two{outer, must(c.Mutex("k", o).Lock(outer.Context(ctx)))}
}

func secondTurn(t *testing.T, c *hasp.Client) *hasp.Lease {
	first := lock(t, c, "k", inCohort)
	got := queueUp(t, c, 2, inCohort)
	release(t, first)
	release(t, <-got)
	return <-got
}

// An unreachable lease is reported, and its TTL ends it; as long as a caller may use it, it is renewed.
func TestForgottenLease(t *testing.T) {
	for _, f := range forgets {
		bubbled(t, f.name, func(t *testing.T) {
			store := newStore()
			told, lost := make(chan event.Event, 10), make(chan event.Event, 10)
			c := newClient(t, store, &hasp.Options{RecordCallers: true, Observe: func(_ context.Context, e *event.Event) {
				switch {
				case e.Key != "k":
				case e.Kind == event.Forgotten:
					told <- *e
				case e.Kind == event.Lost:
					lost <- *e
				}
			}})
			kept := f.use(t, c)
			collected(4)
			synctest.Wait()
			stopIf(t, (len(told) != 0) != f.forgotten, "with %s left it is forgotten: %v", f.name, len(told) != 0)
			collected(4)
			synctest.Wait()
			info, err := store.Inspect(t.Context(), "k")
			failIf(t, err != nil || info.Held == f.forgotten, "later it is held: %v, %v", info.Held, err)
			runtime.KeepAlive(kept)
			if !f.forgotten {
				return
			}
			e, end := <-told, <-lost
			if !strings.Contains(e.Callers, "hasp_test.") || strings.Contains(e.Callers, "hasp.(*Mutex)") {
				t.Errorf("it was taken by\n%s", e.Callers)
			}
			if e.Key != "k" || e.Left <= 0 || e.Left > ttl || e.Held <= 0 || len(told) > 0 {
				t.Errorf("told: %+v, and %d more", e, len(told))
			}
			if !errors.Is(end.Err, hasp.ErrLost) || !strings.Contains(end.Err.Error(), "without Release") {
				t.Errorf("it was lost with %v", end.Err)
			}
		})
	}
}

// A finalizer may release the lease that it is of: the collector has cleared the weak pointers to it by then.
func TestFinalizerReleases(t *testing.T) {
	o := &hasp.LockOptions{Reentrant: true}
	for name, use := range map[string]func(t *testing.T, c *hasp.Client, comesBack func(*hasp.Lease)) (other *hasp.Lease){
		"alone": func(t *testing.T, c *hasp.Client, comesBack func(*hasp.Lease)) *hasp.Lease {
			comesBack(lock(t, c, "k", o))
			collected(1)
			return nil
		},
		"within another": func(t *testing.T, c *hasp.Client, comesBack func(*hasp.Lease)) *hasp.Lease {
			two := within(t, c)
			comesBack(two.inner)
			collected(1)
			return two.outer
		},
		"around a newer one": func(t *testing.T, c *hasp.Client, comesBack func(*hasp.Lease)) *hasp.Lease {
			outer := lock(t, c, "k", o)
			collected(1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			comesBack(outer)
			return must(c.Mutex("k", o).Lock(outer.Context(ctx)))
		},
	} {
		for _, first := range []bool{true, false} { // the other is released first
			t.Run(fmt.Sprintf("%s, the other first: %t", name, first), func(t *testing.T) {
				var back atomic.Pointer[hasp.Lease] // set by a goroutine outside the bubble
				synctest.Test(t, func(t *testing.T) {
					store := newStore()
					other := use(t, newClient(t, store, nil), func(l *hasp.Lease) { runtime.SetFinalizer(l, back.Store) })
					synctest.Wait()
					for range 1000 {
						if back.Load() == nil {
							runtime.GC()
						}
					}
					if first && other != nil {
						release(t, other)
					}
					release(t, back.Load())
					if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Held != (other != nil && !first) {
						t.Errorf("it is held: %v, %v", info.Held, err)
					}
					if !first && other != nil {
						release(t, other)
					}
					mustBeFree(t, store, "k")
				})
			})
		}
	}
}

// Forgotten is for good: a lease that a finalizer brings back is not renewed
// again, nor forgotten again, and its Downgrade is no different from another's.
func TestForgottenLeaseComesBack(t *testing.T) {
	for _, unknown := range []bool{false, true} { // a Downgrade before that had no answer
		t.Run(fmt.Sprint(unknown), func(t *testing.T) {
			var back atomic.Pointer[hasp.Lease] // set by a goroutine outside the bubble
			synctest.Test(t, func(t *testing.T) {
				var told atomic.Int32
				store, d := hookedMem()
				c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
					if e.Kind == event.Forgotten {
						told.Add(1)
					}
				}})
				func() {
					lease := must(c.RWMutex("k", nil).Lock(t.Context()))
					runtime.SetFinalizer(lease, back.Store)
					if !unknown {
						return
					}
					d.onTry(hangTry)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					wantIs(t, lease.Downgrade(ctx), context.DeadlineExceeded)
					d.onTry(nil)
				}()
				for range 3 {
					if synctest.Wait(); told.Load() == 0 {
						collected(1)
					}
				}
				for range 1000 {
					if back.Load() == nil {
						runtime.GC()
					}
				}
				lease := back.Load()
				need(t, lease.Downgrade(t.Context()))
				if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Holder.Mode != driver.Shared {
					t.Errorf("the Downgrade said nil, and the store has %+v, %v", info.Holder, err)
				}
				renews := d.renews.Load()
				time.Sleep(ttl)
				synctest.Wait()
				if n := told.Load(); n != 1 || d.renews.Load() != renews {
					t.Errorf("told of %d times, and renewed %d times after that", n, d.renews.Load()-renews)
				}
				wantIs(t, lease.Err(), hasp.ErrLost)
			})
		})
	}
}
