// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// The clock is asked before a kept key is granted: a process that stood still for most of the
// lease's time, and whose renewer has not run yet, asks the store.
func TestKeptKeyIsNotGrantedLate(t *testing.T) {
	for name, c := range map[string]struct {
		ahead time.Duration
		local bool
	}{
		"less than half": {ttl / 3, true},
		"more than half": {ttl/2 + time.Second, false},
		"all":            {ttl, false},
		"more than all":  {2 * ttl, false},
	} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore()}
			client := must(hasp.New(d, nil))
			defer client.Close()
			ahead := shifted(client)
			o := &hasp.LockOptions{Keep: time.Hour}
			first := lock(t, client, "k", o)
			release(t, first)
			ahead.Store(int64(c.ahead))
			next := lock(t, client, "k", o)
			if local := d.tries.Load() == 1; local != c.local || (next.Owner() == first.Owner()) != c.local {
				t.Errorf("granted locally: %v", local)
			}
			if next.Fence() <= first.Fence() || next.Err() != nil {
				t.Errorf("fence %d after %d, %v", next.Fence(), first.Fence(), next.Err())
			}
			release(t, next)
		})
	}
}

// A kept key whose renewal fails, or has no answer, goes back, and the observer is told of the renewal alone: no caller had the key.
func TestKeptKeyInTrouble(t *testing.T) {
	for name, renew := range map[string]func(context.Context, []driver.RenewRequest, func(int, driver.Renewal), renewFunc){
		"refused": failRenew(errDown),
		"silent":  hangRenew,
	} {
		bubbled(t, name, func(t *testing.T) {
			d := &hooked{Driver: newStore(), renew: renew}
			var mu sync.Mutex
			kinds := map[event.Kind]int{}
			c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
				mu.Lock()
				defer mu.Unlock()
				kinds[e.Kind]++
			}})
			o := &hasp.LockOptions{Keep: time.Hour}
			useOnce(t, c, o)
			time.Sleep(ttl / 3)
			if name == "silent" { // that is known later
				time.Sleep(ttl / 3)
			}
			synctest.Wait()
			mustBeFree(t, d, "k")
			tries := d.tries.Load()
			release(t, lock(t, c, "k", o))
			failIf(t, d.tries.Load() != tries+1, "granted without the store")
			mu.Lock()
			defer mu.Unlock()
			if kinds[event.Lost] != 0 || kinds[event.Acquired] != 2 || kinds[event.Released] != 2 || kinds[event.RenewFailed] == 0 && name == "refused" {
				t.Errorf("the events: %v", kinds)
			}
		})
	}
}

// A kept key that the store has given away is forgotten once that is known.
func TestKeptKeyIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			failIf(t, e.Kind == event.Lost || e.Err != nil, "%v: %v", e.Kind, e.Err)
		}})
		o := &hasp.LockOptions{Keep: time.Hour}
		fence := useOnce(t, c, o)
		store.Lose("k")
		other := lock(t, newClient(t, store, nil), "k", nil)
		time.Sleep(ttl / 3)
		synctest.Wait()
		back := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		release(t, other)
		if next := comes(t, back); next.Fence() <= fence || d.tries.Load() < 2 {
			t.Errorf("fence %d after %d, %d tries", next.Fence(), fence, d.tries.Load())
		} else {
			release(t, next)
		}
	})
}

// Close gives back what is kept, as finished, and ends those who wait for their turn.
func TestCloseOfAKeeper(t *testing.T) {
	for _, how := range []string{"kept", "on its way back", "lost unnoticed"} {
		bubbled(t, how, func(t *testing.T) {
			store, d := hookedMem()
			n := &counts{}
			c := newClient(t, d, &hasp.Options{Observe: n.observe})
			useOnce(t, c, kept)
			switch how {
			case "on its way back":
				hangs := make(chan struct{})
				d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
					<-hangs
					return next(ctx, r)
				})
				time.Sleep(5*time.Second + time.Millisecond)
				waits := begin(t.Context(), c.Mutex("k", kept).Lock)
				synctest.Wait()
				time.AfterFunc(time.Second, func() { close(hangs) })
				defer func() { wantIs(t, (<-waits).err, hasp.ErrClosed) }()
			case "lost unnoticed":
				store.Lose("k")
			}
			check(t, c.Close())
			mustBeFree(t, store, "k")
			n.want(t, "after Close", 0, 0)
			if _, err := c.Mutex("k", kept).Lock(t.Context()); !errors.Is(err, hasp.ErrClosed) {
				t.Error(err)
			}
			if how != "lost unnoticed" && lock(t, newClient(t, store, nil), "k", nil).Abandoned() {
				t.Error("nobody abandoned it")
			}
		})
	}
}

// A key that was kept by a process that died is Abandoned, as the store cannot tell.
func TestKeeperDied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &mortal{Driver: store}
		useOnce(t, newClient(t, d, nil), kept)
		d.dead.Store(true)
		start := time.Now()
		next := lock(t, newClient(t, store, nil), "k", nil)
		took := time.Since(start)
		failIf(t, !next.Abandoned() || took > ttl, "abandoned %v, after %v", next.Abandoned(), took)
	})
}

// The mark of who died before stays until somebody has worked under the key: a keeper does not
// take it away, and its next turn does not see it again.
func TestKeptAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		d := &mortal{Driver: store}
		lock(t, newClient(t, d, nil), "k", nil)
		d.dead.Store(true)
		c := newClient(t, store, nil)
		z := lock(t, newClient(t, store, nil), "z", nil)
		ctx, cancel := context.WithTimeout(t.Context(), ttl+time.Second)
		defer cancel()
		_, err := hasp.Locks{c.Mutex("k", kept), c.Mutex("z", nil)}.Lock(ctx) // has k, and no caller works under it
		wantIs(t, err, context.DeadlineExceeded)
		release(t, z)
		stopIf(t, !isKept(t, store), "the case is void")
		for i := range 3 {
			lease := lock(t, c, "k", kept)
			failIf(t, lease.Abandoned() != (i == 0), "turn %d: Abandoned is %v", i, lease.Abandoned())
			release(t, lease)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		failIf(t, lock(t, newClient(t, store, nil), "k", nil).Abandoned(), "the mark is back")
	})
}

// A function of Do that panics leaves nothing to keep.
func TestKeepAndPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		useOnce(t, c, kept)
		abandon(t, c, kept)
		mustBeFree(t, store, "k")
		next := lock(t, c, "k", kept)
		failIf(t, !next.Abandoned(), "not Abandoned after a panic")
		release(t, next)
		failIf(t, !isKept(t, store), "not kept after that")
	})
}

// The sums of the events are exact, and what is kept counts as nobody's.
func TestEventsOfAKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counts{}
		var acquired, released atomic.Int64
		d := &hooked{Driver: newStore()}
		type ctxKey struct{}
		c := newClient(t, d, &hasp.Options{Observe: func(ctx context.Context, e *event.Event) {
			n.observe(ctx, e)
			switch e.Kind {
			case event.Acquired:
				failIf(t, ctx.Value(ctxKey{}) != acquired.Add(1), "the context of another call: %v", ctx)
				failIf(t, e.Sent.IsZero() == (acquired.Load() == 1), "event %d: sent %v", acquired.Load(), e.Sent)
			case event.Released:
				released.Add(1)
				failIf(t, e.Held != time.Second, "held for %v", e.Held)
			}
		}})
		m := c.Mutex("k", kept)
		for i := range int64(3) {
			lease := must(m.Lock(context.WithValue(t.Context(), ctxKey{}, i+1)))
			n.want(t, "held", 1, 0)
			time.Sleep(time.Second)
			release(t, lease)
			n.want(t, "kept", 0, 0)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		n.want(t, "given back", 0, 0)
		acquired.Store(0) // a later turn that the store is told of
		m = c.Mutex("j", kept)
		for i := range int64(2) {
			lease := must(m.Lock(context.WithValue(t.Context(), ctxKey{}, i+1)))
			time.Sleep(time.Second)
			if i == 1 {
				hasp.Want(c, "j")
			}
			release(t, lease)
		}
		n.want(t, "released", 0, 0)
		if acquired.Load() != 2 || released.Load() != 5 || d.releases.Load() != 2 {
			t.Errorf("%d acquired, %d released, %d of them in the store", acquired.Load(), released.Load(), d.releases.Load())
		}
	})
}

// An observer that panics keeps the lease from its caller, and not from the next.
func TestKeepAndAnObserverThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		c := newClient(t, newStore(), &hasp.Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Acquired && n.Add(1) == 2 {
				panic("a bug")
			}
		}})
		useOnce(t, c, kept)
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Mutex("k", kept).Lock(t.Context())
			t.Error("no panic")
		}()
		useOnce(t, c, kept)
	})
}

// Whenever the context of a Lock ends, either it returns a lease or the key is kept, or free, and the next one can have it.
func TestKeepAndCancelledContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counts{}
		d := &hooked{Driver: newStore()}
		c := newClient(t, d, &hasp.Options{Observe: n.observe})
		m := c.Mutex("k", kept)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		useOnce(t, c, kept)
		_, err := m.Lock(ended)
		wantIs(t, err, context.Canceled)
		failIf(t, !isKept(t, d), "a Lock whose context had ended took the key")
		for i := range 200 { // what comes first is chance
			ctx, cancel := context.WithCancel(t.Context())
			held := lock(t, c, "k", kept)
			waits := begin(ctx, m.Lock)
			if i%2 == 0 {
				synctest.Wait()
			}
			go cancel()
			release(t, held)
			if got := <-waits; got.v != nil {
				release(t, got.v)
			}
			synctest.Wait()
			if i%10 == 0 {
				time.Sleep(5 * time.Second)
				synctest.Wait()
				mustBeFree(t, d, "k")
			}
		}
		n.want(t, "in the end", 0, 0)
	})
}
