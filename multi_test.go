// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/history"
)

// All or none, across modes and stores, in the order of the arguments; what is named twice is held once.
func TestLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newStore(), newStore()
		c, far := newClient(t, one, nil), newClient(t, two, nil)
		s := must(hasp.Locks{
			c.Mutex("m", nil), far.RWMutex("b", nil).RLocker(), c.Semaphore("s", 4, nil),
			c.Mutex("a", &hasp.LockOptions{TTL: 10 * time.Second}), c.RWMutex("m", nil), far.Election("a", nil)}.Lock(t.Context()))
		all := s.All()
		var got []string
		for _, l := range all {
			got = append(got, fmt.Sprint(l.Key(), " ", l.Mode()))
		}
		if want := []string{"m exclusive", "b shared", "s shared", "a exclusive", "m exclusive", "a exclusive"}; fmt.Sprint(got) != fmt.Sprint(want) || all[0] != all[4] || all[3] == all[5] {
			t.Errorf("the leases are %v", got)
		}
		left := time.Until(s.Deadline())
		failIf(t, left > 10*time.Second || left < 9*time.Second, "the deadline is in %v", left)
		ctx, done := s.Context(t.Context()), s.Done()
		time.Sleep(10 * ttl)
		failIf(t, s.Err() != nil || ctx.Err() != nil || slices.ContainsFunc(all, (*hasp.Lease).Abandoned), "%v, %v", s.Err(), ctx.Err())
		_, err := mutexes(c, "free", "m").TryLock(t.Context())
		wantIs(t, err, hasp.ErrHeld)
		mustBeFree(t, one, "free")
		waiter := begin(t.Context(), c.Mutex("s", nil).Lock)
		<-s.Wanted()
		for range 2 {
			check(t, s.Release())
		}
		<-done
		wantIs(t, context.Cause(ctx), context.Canceled)
		wantIs(t, s.Err(), hasp.ErrNotHeld)
		release(t, (<-waiter).v)
		mustBeFree(t, one, "m", "s", "a")
		mustBeFree(t, two, "a", "b")
	})
}

// Errors are reported before anything is requested.
func TestLockAllRefusesBeforeItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c := newHooked(t)
		ok := c.Mutex("a", nil)
		for want, items := range map[string][]hasp.Locker{
			"no keys":        {},
			"item 1 is nil":  {ok, nil},
			"different mode": {ok, c.RWMutex("k", nil), c.RWMutex("k", nil).RLocker()},
			"modes":          {ok, c.Semaphore("k", 2, nil), c.Semaphore("k", 3, nil)},
			"empty":          {ok, c.Mutex("", nil)},
			"0 slots":        {ok, c.Semaphore("k", 0, nil)},
		} {
			for _, all := range []func(hasp.Locks, context.Context) (*hasp.Leases, error){hasp.Locks.Lock, hasp.Locks.TryLock} {
				_, err := all(items, t.Context())
				if !isMistake(err) || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			}
		}
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := mutexes(c, "a", "b").Lock(dead)
		wantIs(t, err, context.Canceled)
		closed := newClient(t, newStore(), nil)
		_ = closed.Close()
		_, err = hasp.Locks{ok, closed.Mutex("z", nil)}.Lock(t.Context())
		wantIs(t, err, hasp.ErrClosed)
		failIf(t, d.tries.Load() != 0, "the store was asked %d times", d.tries.Load())
	})
}

// The loss of one key ends the context of all, and Done.
func TestLossOfOneKeyEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		s := must(mutexes(c, "a", "b", "c").Lock(t.Context()))
		ctx, done := s.Context(t.Context()), s.Done()
		store.Lose("b")
		<-ctx.Done()
		<-done
		wantIs(t, context.Cause(ctx), hasp.ErrLost)
		wantIs(t, s.Err(), hasp.ErrLost)
		failIf(t, s.Context(t.Context()).Err() == nil, "a context after the loss is alive")
		err := s.Release()
		if wantIs(t, err, hasp.ErrLost); !strings.Contains(err.Error(), `"b"`) || strings.Contains(err.Error(), `"a"`) {
			t.Error(err)
		}
		mustBeFree(t, store, "a", "b", "c")

		near, far := newClient(t, store, nil), newClient(t, newStore(), nil)
		s = must(hasp.Locks{near.Mutex("a", nil), far.Mutex("b", nil)}.Lock(t.Context()))
		ctx = s.Context(t.Context())
		check(t, far.Close())
		<-ctx.Done()
		wantIs(t, context.Cause(ctx), hasp.ErrClosed)
		wantIs(t, s.Release(), hasp.ErrClosed)
		mustBeFree(t, store, "a")
	})
}

// While Locks waits for a key, it keeps those it has, and its wait ends when one of them is lost.
func TestLockAllWatchesWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, other := newClient(t, store, nil), newClient(t, store, nil)
		in := lock(t, other, "b", nil)
		all := func(ctx context.Context) (*hasp.Leases, error) { return mutexes(c, "b", "a").Lock(ctx) }
		waiting := begin(t.Context(), all)
		time.Sleep(10 * ttl) // "a" is renewed
		waits(t, "Locks", waiting)
		store.Lose("a")
		err := (<-waiting).err
		wantIs(t, err, hasp.ErrLost)
		if !strings.Contains(err.Error(), `lock 2 keys, "a": while waiting for "b"`) || errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		synctest.Wait()
		mustBeFree(t, store, "a")
		failIf(t, must(store.Inspect(t.Context(), "b")).Waiters != 0, "a place stays in the queue")
		waiting = begin(t.Context(), all)
		time.Sleep(time.Second)
		release(t, in)
		s := (<-waiting).v
		synctest.Wait()
		for _, l := range s.All() {
			n := hasp.Contexts(l)
			failIf(t, n != 0, "%q keeps %d contexts of the wait", l.Key(), n)
		}
		check(t, s.Release())
	})
}

// A key that is lost while the answer for the last one is under way is not overlooked.
func TestLockAllIsNotHalfLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			if r.Key == "b" {
				store.Lose("a")
				time.Sleep(ttl / 2) // ignores its context
			}
			return res, err
		}
		_, err := mutexes(newClient(t, d, nil), "a", "b").Lock(t.Context())
		wantIs(t, err, hasp.ErrLost)
		synctest.Wait()
		mustBeFree(t, store, "a", "b")
	})
}

// A held set costs no goroutine: the bubbles of the other tests would not end if one stayed.
func TestLeasesCostNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		lock(t, c, "k", nil)
		before := runtime.NumGoroutine() // with the renewer
		var all []*hasp.Leases
		for i := range 100 {
			s := must(mutexes(c, fmt.Sprint("a", i), fmt.Sprint("b", i)).Lock(t.Context()))
			_, _, _ = s.Done(), s.Wanted(), s.Context(t.Context())
			all = append(all, s)
		}
		synctest.Wait()
		n := runtime.NumGoroutine() - before
		failIf(t, n > 10, "%d goroutines more", n)
		for _, s := range all {
			check(t, s.Release())
		}
		for _, l := range all[0].All() {
			n := hasp.Contexts(l)
			failIf(t, n != 0, "%d contexts stay", n)
		}
	})
}

// A Locks that ends early, at each of its steps and in each way, leaves nothing, at once where the store answers.
func TestLockAllLeavesNothing(t *testing.T) {
	keys := []string{"a", "b", "c"}
	for name, broken := range map[string]func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error){
		"no answer": hangTry,
		"the answer was lost": func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			<-ctx.Done()
			return driver.Result{}, ctx.Err()
		},
		"errors": func(context.Context, driver.TryRequest, tryFunc) (driver.Result, error) {
			return driver.Result{}, errDown
		},
		"errors, and granted": func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			_, _ = next(ctx, r)
			return driver.Result{}, errDown
		},
		"the grant comes too late": func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
			res, err := next(ctx, r)
			time.Sleep(ttl)
			return res, err
		},
		"held": nil,
	} {
		for _, at := range keys {
			bubbled(t, name+" at "+at, func(t *testing.T) {
				store, d := hookedMem()
				c := newClient(t, d, nil)
				d.try = func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
					if broken != nil && r.Key == at {
						return broken(ctx, r, next)
					}
					return next(ctx, r)
				}
				if broken == nil {
					in := lock(t, newClient(t, store, nil), at, nil)
					defer release(t, in)
				}
				for _, all := range []func(hasp.Locks, context.Context) (*hasp.Leases, error){hasp.Locks.Lock, hasp.Locks.TryLock} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					start := time.Now()
					if _, err := all(mutexes(c, keys...), ctx); err == nil {
						t.Fatal("it has all")
					}
					failIf(t, time.Since(start) > ttl, "it took %v", time.Since(start))
					cancel()
					synctest.Wait()
					for _, key := range keys {
						if key == at && broken == nil {
							continue
						}
						mustBeFree(t, store, key)
					}
				}
			})
		}
	}
}

// A client that is closed ends the wait, also when its key is still to come.
func TestLockAllEndsWithEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		near, far := newClient(t, store, nil), newClient(t, newStore(), nil)
		in := lock(t, newClient(t, store, nil), "b", nil)
		all := begin(t.Context(), func(ctx context.Context) (*hasp.Leases, error) {
			return hasp.Locks{near.Mutex("a", nil), near.Mutex("b", nil), far.Mutex("c", nil)}.Lock(ctx)
		})
		synctest.Wait()
		start := time.Now()
		if err := far.Close(); err != nil || time.Since(start) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		wantIs(t, (<-all).err, hasp.ErrClosed)
		synctest.Wait()
		mustBeFree(t, store, "a")
		release(t, in)
		mustBeFree(t, store, "b")
	})
}

// When the store does not answer, a Locks whose context has ended returns after a moment and releases in the background.
func TestLockAllGivesBackInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, d := hookedMem()
		c := newClient(t, d, nil)
		in := lock(t, newClient(t, store, nil), "c", nil)
		ctx, cancel := context.WithCancel(t.Context())
		waiting := begin(ctx, func(ctx context.Context) (*hasp.Leases, error) { return mutexes(c, "a", "b", "c").Lock(ctx) })
		synctest.Wait()
		back := time.Now().Add(12 * time.Second)
		d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			if time.Now().Before(back) {
				return errDown
			}
			return next(ctx, r)
		})
		cancel()
		start := time.Now()
		wantIs(t, (<-waiting).err, context.Canceled)
		failIf(t, time.Since(start) > hasp.Moment, "it returned after %v", time.Since(start))
		time.Sleep(time.Until(back) + 3*time.Second)
		mustBeFree(t, store, "a", "b")
		release(t, in)
	})
}

// nosy is a context that runs a check when it is used.
type nosy struct {
	context.Context
	look func()
}

func (n nosy) Value(key any) any {
	n.look()
	return n.Context.Value(key)
}

// A caller that finds Err not nil finds Done closed, also while the loss is being reported to others.
func TestDoneIsClosedAfterErr(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		s := must(hasp.Locks{
			c.Mutex("a", nil), c.Mutex("b", &hasp.LockOptions{TTL: ttl, NoRenew: true})}.Lock(t.Context()))
		done := s.Done()
		var made, looked atomic.Bool
		parent, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 30 { // contexts end in no order
			s.All()[1].Context(nosy{parent, func() {
				if !made.Load() || s.Err() == nil {
					return
				}
				looked.Store(true)
				select {
				case <-done:
				default:
					t.Error("Err knows of the loss, and Done is open")
				}
			}})
		}
		made.Store(true)
		<-done
		synctest.Wait()
		failIf(t, !looked.Load(), "nobody looked while the loss was told")
		_ = s.Release()
	})
}

// The end of the caller's context is what ended the wait, also when a key that it has is over by then.
func TestLockAllEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		offset := shifted(c)
		lock(t, newClient(t, store, nil), "b", nil)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := mutexes(c, "a", "b").Lock(ctx)
			got <- err
		}()
		synctest.Wait()
		offset.Store(int64(time.Hour))
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) || errors.Is(err, hasp.ErrLost) {
			t.Errorf("the error is %v", err)
		}
	})
}

// Two callers that name the same keys in opposite orders do not wait for each other.
func TestLockAllInBothOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of callers that wait for each other
		defer cancel()
		var wg sync.WaitGroup
		for i := range 2 {
			c := newClient(t, store, nil)
			keys := []string{"a", "b"}
			if i == 1 {
				keys = []string{"b", "a"}
			}
			wg.Go(func() {
				for range 50 {
					s, err := mutexes(c, keys...).Lock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					check(t, s.Release())
				}
			})
		}
		wg.Wait()
		mustBeFree(t, store, "a", "b")
	})
}

// 32 processes that want random sets of keys, in random orders and modes, some of which are killed meanwhile: all others continue, no
// process believes to hold a key that another has, and no key stays.
func TestLockAllOfManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		hist := &history.Log{}
		end := time.Now().Add(time.Minute)
		var wg sync.WaitGroup
		for i := range uint64(32) {
			rnd := rand.New(rand.NewPCG(2, i))
			d := &mortal{Driver: store}
			c := newClient(t, d, nil)
			if i%8 == 0 {
				time.AfterFunc(time.Duration(rnd.IntN(60000))*time.Millisecond, func() { d.dead.Store(true) })
			}
			wg.Go(func() {
				for n := 0; time.Now().Before(end) && !d.dead.Load(); n++ {
					var items []hasp.Locker
					var limits []int
					for _, k := range rnd.Perm(8)[:1+rnd.IntN(4)] {
						o := &hasp.LockOptions{TTL: 5 * time.Second}
						limits = append(limits, 0)
						switch key := string('a' + rune(k)); rnd.IntN(3) {
						case 0:
							items = append(items, c.RWMutex(key, o).RLocker())
						case 1:
							items = append(items, c.Semaphore(key, 2, o))
							limits[len(limits)-1] = 2
						default:
							items = append(items, c.Mutex(key, o))
						}
					}
					hold(t, hist, d, items, limits, time.Duration(rnd.IntN(300))*time.Millisecond)
				}
			})
		}
		wg.Wait()
		check(t, history.Check(hist.Holds()))
		time.Sleep(ttl)
		for _, key := range "abcdefgh" {
			mustBeFree(t, store, string(key))
		}
	})
}

// hold locks all items and believes in them for a while.
func hold(t *testing.T, hist *history.Log, d *mortal, items []hasp.Locker, limits []int, nap time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s, err := hasp.Locks(items).Lock(ctx)
	if err != nil {
		if !d.dead.Load() {
			t.Error(err)
		}
		return
	}
	var held []*history.Hold
	for i, l := range s.All() {
		h := history.Hold{Key: l.Key(), Owner: l.Owner(), Fence: l.Fence(), Shared: l.Mode() == hasp.Shared, Limit: limits[i], Slot: l.Slot()}
		held = append(held, hist.Acquired(h, forever))
	}
	_ = sleep(s.Context(t.Context()), nap)
	for _, h := range held {
		hist.Released(h)
	}
	if err := s.Release(); err != nil && !d.dead.Load() {
		t.Error(err)
	}
}

// Do of several keys holds all while its function runs, releases them after it, and waits with Close for it; a panic abandons them.
func TestDoOfLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, mine := newClient(t, store, nil), errors.New("mine")
		var closed chan outcome[any]
		err := mutexes(c, "b", "a").Do(t.Context(), func(ctx context.Context, all *hasp.Leases) error {
			for i, key := range []string{"b", "a"} {
				failIf(t, all.All()[i].Key() != key, "lease %d is of %s", i, all.All()[i].Key())
				_, err := newClient(t, store, nil).Mutex(key, nil).TryLock(t.Context())
				wantIs(t, err, hasp.ErrHeld)
			}
			return mine
		})
		failIf(t, err == nil || errors.Is(err, hasp.ErrLost), "%v", err)
		wantIs(t, err, mine)
		mustBeFree(t, store, "a", "b")
		func() {
			defer func() { failIf(t, recover() == nil, "the panic is gone") }()
			_ = mutexes(c, "a", "b").Do(t.Context(), func(context.Context, *hasp.Leases) error { panic("a bug") })
		}()
		for _, l := range must(mutexes(c, "a", "b").Lock(t.Context())).All() {
			failIf(t, !l.Abandoned(), "%s is not Abandoned after a panic", l.Key())
			release(t, l)
		}
		err = mutexes(c, "a", "b").Do(t.Context(), func(ctx context.Context, _ *hasp.Leases) error {
			closed = begin(t.Context(), func(context.Context) (any, error) { return nil, c.Close() })
			<-ctx.Done()
			synctest.Wait()
			waits(t, "Close", closed)
			return nil
		})
		wantIs(t, err, hasp.ErrClosed)
		need(t, (<-closed).err)
		mustBeFree(t, store, "a", "b")
	})
}
