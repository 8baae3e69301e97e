// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
)

// Three contexts, never mixed; failure case 19.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
		wait, cancelWait := context.WithCancel(t.Context())
		lease, err := c.Mutex("k", nil).Lock(wait)
		need(t, err)
		parent, cancelParent := context.WithCancelCause(t.Context())
		ours, other := lease.Context(parent), lease.Context(context.Background())
		cancelWait()
		time.Sleep(5 * ttl)
		if lease.Err() != nil || ours.Err() != nil {
			t.Fatal("the end of the wait's context ended the hold")
		}
		why := errors.New("shutting down")
		cancelParent(why)
		wantIs(t, context.Cause(ours), why)
		if other.Err() != nil {
			t.Fatal("one context's parent ended another")
		}
		need(t, lease.Release())
		if cause := context.Cause(other); cause != context.Canceled {
			t.Fatalf("the cause after Release is %v", cause)
		}
		if after := lease.Context(t.Context()); after.Err() == nil {
			t.Fatal("a released lease gave a live context")
		}
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
		if n := hasp.Contexts(lease); n != 0 {
			t.Fatalf("%d contexts are kept", n)
		}
	})
}

// Context registered after finish never ends.
func TestContextRacesWithLoss(t *testing.T) {
	store := newStore()
	c := newClient(t, store, nil)
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
				if x.Err() == nil {
					t.Fatalf("iteration %d: the lease is lost (%v) and its context lives", i, l.Err())
				}
			}
		}
		_ = l.Release()
	}
}

// Once anybody knows of the loss, no context of the lease says that it stands, while they are still being ended.
func TestContextsEndTogether(t *testing.T) {
	store := newStore()
	c := newClient(t, store, nil)
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
			if x.Err() == nil {
				t.Fatalf("iteration %d: the lease is lost (%v) and its context lives", i, l.Err())
			}
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

// A context outlives its lease as a value: within one of a released lease a Lock asks
// the store, and within one of a lost lease it says so.
func TestLockInTheContextOfWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c := newClient(t, store, nil)
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
