// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
)

// Nested locks, by context. Redisson loses a lock in some of these cases: its holds of one thread share a TTL that the latest of them sets,
// and a renewal that the first release stops.

// A short read within a write does not shorten the write's lease, and its release does not stop the write's renewal.
func TestNestedReadLeavesTheWriteAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		w := must(c.RWMutex("k", nil).Lock(t.Context()))
		until := time.Now().Add(usable)
		short := c.RWMutex("k", &hasp.LockOptions{TTL: time.Second, NoRenew: true, Reentrant: true})
		r := must(short.RLock(w.Context(t.Context())))
		if w.Deadline().Before(until) || r.Deadline().Before(until) {
			t.Errorf("after a nested read the deadlines are in %v and %v", time.Until(w.Deadline()), time.Until(r.Deadline()))
		}
		if r.Fence() != w.Fence() || r.Mode() != hasp.Shared || w.Mode() != hasp.Exclusive {
			t.Errorf("the read has fence %d and mode %v, the write %d and %v", r.Fence(), r.Mode(), w.Fence(), w.Mode())
		}
		refused := func(when string) {
			t.Helper()
			for _, try := range []func(context.Context) (*hasp.Lease, error){other.RWMutex("k", nil).TryLock, other.RWMutex("k", nil).TryRLock} {
				_, err := try(t.Context())
				stopIf(t, err == nil, "%s another was let in", when)
			}
			stopIf(t, w.Err() != nil, "%s the write's lease is over: %v", when, w.Err())
		}
		time.Sleep(10 * time.Second)
		refused("after the TTL of the nested read")
		release(t, r)
		refused("after the release of the nested read")
		time.Sleep(10 * ttl)
		refused("long after the release of the nested read")
		release(t, w)
		mustBeFree(t, store, "k")
	})
}

// The hold stays a writer's, and renewed, until the last of its leases is released, in whatever order.
func TestNestedReadOutlivesTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		m := c.RWMutex("k", reentrant)
		w := must(m.Lock(t.Context()))
		r := must(m.RLock(w.Context(t.Context())))
		release(t, w)
		time.Sleep(3 * ttl)
		_, err := newClient(t, store, nil).RWMutex("k", nil).TryRLock(t.Context())
		failIf(t, err == nil || r.Err() != nil, "another was let in: %v; the read: %v", err, r.Err())
		release(t, r)
		mustBeFree(t, store, "k")
	})
}

// The TTLs of nested acquisitions do not add up: a holder that dies frees the key after one of them.
func TestNestedTTLsDoNotAddUp(t *testing.T) {
	for name, take := range map[string]func(*hasp.Client) func(context.Context) (*hasp.Lease, error){
		"write in write": func(c *hasp.Client) func(context.Context) (*hasp.Lease, error) {
			return c.RWMutex("k", &hasp.LockOptions{Reentrant: true, NoRenew: true}).Lock
		},
		"read in read": func(c *hasp.Client) func(context.Context) (*hasp.Lease, error) {
			return c.RWMutex("k", &hasp.LockOptions{Reentrant: true, NoRenew: true}).RLock
		},
		"slot in slot": func(c *hasp.Client) func(context.Context) (*hasp.Lease, error) {
			return c.Semaphore("k", 1, &hasp.LockOptions{Reentrant: true, NoRenew: true}).Lock
		},
		"all in all": func(c *hasp.Client) func(context.Context) (*hasp.Lease, error) {
			return func(ctx context.Context) (*hasp.Lease, error) {
				s, err := hasp.Locks{c.Mutex("k", &hasp.LockOptions{Reentrant: true, NoRenew: true})}.Lock(ctx)
				if err != nil {
					return nil, err
				}
				return s.All()[0], nil
			}
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			store := newStore()
			d := &mortal{Driver: store}
			lock := take(newClient(t, d, nil))
			start := time.Now()
			first := must(lock(t.Context()))
			ctx := first.Context(t.Context())
			for range 5 {
				nested := must(lock(ctx))
				got := nested.Deadline().Sub(start)
				stopIf(t, got != usable, "the deadline is after %v", got)
				ctx = nested.Context(ctx) //nolint:fatcontext // nested is the case
			}
			d.dead.Store(true)
			release(t, must(newClient(t, store, nil).Mutex("k", nil).Lock(t.Context())))
			failIf(t, time.Since(start) != ttl, "the next had the key after %v", time.Since(start))
		})
	}
}

// Which may be nested in which, and what the refusals say. None of them asks the store, or waits.
func TestNestedRules(t *testing.T) {
	kinds := map[string]func(*hasp.Client, *hasp.LockOptions) hasp.Locker{
		"mutex":    func(c *hasp.Client, o *hasp.LockOptions) hasp.Locker { return c.Mutex("k", o) },
		"write":    func(c *hasp.Client, o *hasp.LockOptions) hasp.Locker { return c.RWMutex("k", o) },
		"read":     func(c *hasp.Client, o *hasp.LockOptions) hasp.Locker { return c.RWMutex("k", o).RLocker() },
		"one of 3": func(c *hasp.Client, o *hasp.LockOptions) hasp.Locker { return c.Semaphore("k", 3, o) },
		"one of 5": func(c *hasp.Client, o *hasp.LockOptions) hasp.Locker { return c.Semaphore("k", 5, o) },
		"election": func(c *hasp.Client, o *hasp.LockOptions) hasp.Locker { return c.Election("k", o) },
	}
	const upgrade, noSlot = "Downgrade", "no such slot"
	for _, rule := range []struct{ outer, inner, refusal string }{
		{"mutex", "mutex", ""}, {"mutex", "write", ""}, {"mutex", "read", ""}, {"mutex", "election", ""}, {"mutex", "one of 3", noSlot},
		{"write", "mutex", ""}, {"write", "write", ""}, {"write", "read", ""}, {"write", "election", ""}, {"write", "one of 3", noSlot},
		{"election", "election", ""}, {"election", "read", ""},
		{"read", "read", ""}, {"read", "write", upgrade}, {"read", "mutex", upgrade}, {"read", "election", upgrade}, {"read", "one of 3", noSlot},
		{"one of 3", "one of 3", ""}, {"one of 3", "one of 5", noSlot}, {"one of 5", "one of 3", noSlot},
		{"one of 3", "read", ""}, {"one of 3", "write", upgrade}, {"one of 3", "mutex", upgrade},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, c := newHooked(t)
			outer := must(kinds[rule.outer](c, nil).Lock(t.Context()))
			ctx := outer.Context(t.Context())
			for name, o := range map[string]*hasp.LockOptions{"": nil, " with Reentrant": reentrant} {
				inner := kinds[rule.inner](c, o)
				want := rule.refusal
				if want == "" && o == nil {
					want = "set LockOptions.Reentrant"
				}
				all := func(ctx context.Context) (*hasp.Lease, error) {
					s, err := hasp.Locks{inner, c.Mutex("another", nil)}.Lock(ctx)
					if err != nil {
						return nil, err
					}
					return s.All()[0], s.All()[1].Release()
				}
				for _, call := range []func(context.Context) (*hasp.Lease, error){inner.Lock, inner.TryLock, all} {
					lease, err := call(ctx)
					switch {
					case want == "" && err != nil:
						t.Errorf("%s in %s%s: %v", rule.inner, rule.outer, name, err)
					case want == "":
						if lease.Owner() != outer.Owner() || lease.Slot() != outer.Slot() {
							t.Errorf("%s in %s%s: another hold", rule.inner, rule.outer, name)
						}
						release(t, lease)
					case err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), hasp.ErrHeld.Error()): // it is no other's
						t.Errorf("%s in %s%s: %v, want %q", rule.inner, rule.outer, name, err, want)
					default:
						wantIs(t, err, hasp.ErrHeld)
					}
				}
			}
			want := int64(1)
			if rule.refusal == "" {
				want = 2 // the other key of the Locks that was not refused
			}
			if got := d.tries.Load(); got != want {
				t.Errorf("%s in %s: the store was asked %d times, want %d", rule.inner, rule.outer, got, want)
			}
			if outer.Err() != nil {
				t.Error(outer.Err())
			}
			release(t, outer)
			mustBeFree(t, d, "k", "another")
		})
	}
}

// A write within a read is refused also behind a Downgrade, and within that a read counts up.
func TestNestedInADowngraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		m := newClient(t, store, nil).RWMutex("k", reentrant)
		w := must(m.Lock(t.Context()))
		ctx := w.Context(t.Context())
		before := must(m.RLock(ctx))
		need(t, w.Downgrade(t.Context()))
		after := must(m.RLock(ctx))
		_, err := m.TryLock(ctx)
		wantIs(t, err, hasp.ErrHeld)
		release(t, w)
		time.Sleep(3 * ttl)
		for _, r := range []*hasp.Lease{before, after} {
			failIf(t, r.Err() != nil || r.Mode() != hasp.Shared, "a nested read is %v, %v", r.Mode(), r.Err())
			release(t, r)
		}
		mustBeFree(t, store, "k")
	})
}

// The next holder learns that a function of Do did not finish, whichever lease of the hold is released last.
func TestPanicUnderNestedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		m := c.RWMutex("k", reentrant)
		var inner *hasp.Lease
		func() {
			defer func() { _ = recover() }()
			_ = m.Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
				inner = must(m.RLock(ctx)) // a reader goroutine's
				panic("half written")
			})
		}()
		release(t, inner)
		next := must(c.RWMutex("k", nil).TryLock(t.Context()))
		failIf(t, !next.Abandoned(), "a nested lease was released later: the next holder is not told")
		release(t, next)
		_ = m.Do(t.Context(), func(ctx context.Context, _ *hasp.Lease) error {
			defer func() { _ = recover() }()
			return m.Do(ctx, func(context.Context, *hasp.Lease) error { panic("half written") })
		})
		next = must(c.RWMutex("k", nil).TryLock(t.Context()))
		failIf(t, !next.Abandoned(), "a nested Do panicked: the next holder is not told")
		release(t, next)
	})
}

func TestReentrance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		outer := lock(t, c, "k", nil)
		ctx := outer.Context(t.Context())

		start := time.Now()
		_, err := c.Mutex("k", nil).Lock(ctx)
		wantIs(t, err, hasp.ErrHeld)
		if time.Since(start) > 0 || !strings.Contains(err.Error(), "already held by this context") {
			t.Fatalf("without Reentrant: %v after %v", err, time.Since(start))
		}
		again := c.Mutex("k", &hasp.LockOptions{Reentrant: true})
		inner, err := again.Lock(ctx)
		need(t, err)
		if inner.Fence() != outer.Fence() || d.tries.Load() != 1 {
			t.Fatalf("fence %d in %d, %d tries", inner.Fence(), outer.Fence(), d.tries.Load())
		}
		need(t, outer.Release())
		stopIf(t, inner.Err() != nil || d.releases.Load() != 0, "the first Release of two released")
		innerCtx := inner.Context(t.Context())
		if ctx.Err() == nil || innerCtx.Err() != nil {
			t.Fatal("Release must end the contexts of its own lease, and no other's")
		}
		if err := inner.Release(); err != nil || d.releases.Load() != 1 {
			t.Fatalf("the last Release: %v, %d releases", err, d.releases.Load())
		}
		mustBeFree(t, d, "k")

		// Other keys and other clients are not the same lock.
		a := lock(t, c, "a", nil)
		if _, err := again.Lock(a.Context(t.Context())); err != nil {
			t.Fatal(err)
		}
		_, err = newClient(t, d, nil).Mutex("a", &hasp.LockOptions{Reentrant: true}).TryLock(a.Context(t.Context()))
		wantIs(t, err, hasp.ErrHeld)
	})
}

func TestReentranceIntoALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		lease := lock(t, c, "k", nil)
		ctx := context.WithoutCancel(lease.Context(t.Context()))
		store.Lose("k")
		<-lease.Done()
		_, err := c.Mutex("k", &hasp.LockOptions{Reentrant: true}).Lock(ctx)
		wantIs(t, err, hasp.ErrLost)
	})
}

// Three contexts, never mixed; failure case 19.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		wait, cancelWait := context.WithCancel(t.Context())
		lease, err := c.Mutex("k", nil).Lock(wait)
		need(t, err)
		parent, cancelParent := context.WithCancelCause(t.Context())
		ours, other := lease.Context(parent), lease.Context(context.Background())
		cancelWait()
		time.Sleep(5 * ttl)
		stopIf(t, lease.Err() != nil || ours.Err() != nil, "the end of the wait's context ended the hold")
		why := errors.New("shutting down")
		cancelParent(why)
		wantIs(t, context.Cause(ours), why)
		stopIf(t, other.Err() != nil, "one context's parent ended another")
		need(t, lease.Release())
		cause := context.Cause(other)
		stopIf(t, cause != context.Canceled, "the cause after Release is %v", cause)
		stopIf(t, lease.Context(t.Context()).Err() == nil, "a released lease gave a live context")
		wantIs(t, lease.Err(), hasp.ErrNotHeld)
		mustBeFree(t, store, "k")
	})
}

// Promise 6: a long lease keeps nothing of contexts whose parents ended.
func TestContextsOfEndedParentsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := lock(t, newClient(t, newStore(), nil), "k", nil)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			lease.Context(ctx)
			cancel()
		}
		synctest.Wait()
		n := hasp.Contexts(lease)
		stopIf(t, n != 0, "%d contexts are kept", n)
	})
}

// Context registered after finish never ends.
func TestContextRacesWithLoss(t *testing.T) {
	store, c := newMem(t)
	for i := range 3000 {
		l, err := c.Mutex("k", nil).TryLock(context.Background())
		need(t, err)
		store.Lose("k")
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Extend(context.Background(), time.Minute) })
		var ctxs [8]context.Context
		for i := range ctxs {
			ctxs[i] = l.Context(t.Context()) //nolint:fatcontext // none of them is another's parent
		}
		wg.Wait()
		if l.Err() != nil {
			for _, x := range ctxs {
				stopIf(t, x.Err() == nil, "iteration %d: the lease is lost (%v) and its context lives", i, l.Err())
			}
		}
		_ = l.Release()
	}
}

// Once anybody knows of the loss, no context of the lease says that it stands, while they are still being ended.
func TestContextsEndTogether(t *testing.T) {
	store, c := newMem(t)
	for i := range 3000 {
		l, err := c.Mutex("k", nil).TryLock(context.Background())
		need(t, err)
		var ctxs [32]context.Context
		for i := range ctxs {
			ctxs[i] = l.Context(t.Context()) //nolint:fatcontext // none of them is another's parent
		}
		store.Lose("k")
		var wg sync.WaitGroup
		wg.Go(func() { _ = l.Extend(context.Background(), time.Minute) })
		for l.Err() == nil {
			runtime.Gosched()
		}
		for _, x := range ctxs {
			stopIf(t, x.Err() == nil, "iteration %d: the lease is lost (%v) and its context lives", i, l.Err())
		}
		wg.Wait()
		_ = l.Release()
	}
}

// A context of a hold that stands may be made within an ended one of the same hold.
func TestContextWithinAnEndedOneOfItsHold(t *testing.T) {
	c := newClient(t, newStore(), nil)
	m := c.Mutex("k", &hasp.LockOptions{Reentrant: true})
	first, err := m.Lock(t.Context())
	need(t, err)
	outer := first.Context(t.Context())
	second, err := m.Lock(outer)
	need(t, err)
	need(t, first.Release())
	need(t, second.Err())
	wantIs(t, second.Context(outer).Err(), context.Canceled)
	need(t, second.Release())
}

// A context outlives its lease as a value: within one of a released lease a Lock asks the store, and within one of a lost lease it says so.
func TestLockInTheContextOfWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		m := c.Mutex("k", reentrant)
		outer := lock(t, c, "k", reentrant)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		inner := must(m.Lock(outer.Context(ctx)))
		within := context.WithoutCancel(inner.Context(ctx))
		release(t, must(m.TryLock(within))) // it counts up
		release(t, inner)
		_, err := m.TryLock(within)
		var held *hasp.HeldError
		failIf(t, !errors.As(err, &held) || held.Holder.Owner != outer.Owner(), "within a released lease: %v", err)
		store.Lose("k")
		within = context.WithoutCancel(outer.Context(ctx))
		<-outer.Done()
		_ = outer.Release()
		_, err = m.TryLock(within)
		wantIs(t, err, hasp.ErrLost)
	})
}
