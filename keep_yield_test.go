// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A waiter of another client has the key once a renewal has told the keeper, and before callers that ask the keeper after that.
func TestKeeperYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore()
		traits := mem.Traits()
		traits.Tells &^= driver.TellsWanted
		store := &hooked{Driver: &without{mem, traits}}
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		o := &hasp.LockOptions{Keep: time.Hour}
		fence := useOnce(t, c, o)
		start := time.Now()
		other := begin(t.Context(), elsewhere.Mutex("k", o).Lock)
		synctest.Wait()
		fence = max(fence, useOnce(t, c, o)) // it was not told yet
		lease := comes(t, other)
		failIf(t, time.Since(start) > ttl/3, "it waited for %v", time.Since(start))
		if lease.Fence() <= fence || lease.Abandoned() {
			t.Errorf("fence %d after %d, abandoned %v", lease.Fence(), fence, lease.Abandoned())
		}
		back := begin(t.Context(), c.Mutex("k", o).Lock)
		synctest.Wait()
		select {
		case <-back:
			t.Fatal("two holders")
		default:
		}
		fence = lease.Fence()
		release(t, lease) // its keeper learns of the wait by a renewal, too
		next := comes(t, back)
		failIf(t, next.Fence() <= fence, "fence %d after %d", next.Fence(), fence)
		release(t, next)
	})
}

// With a store that tells who waits, the keeper hears of it at once, whether it keeps the key or somebody has it, and in
// whichever turn; each grant of the store costs one renewal for that.
func TestKeeperAsksToBeTold(t *testing.T) {
	for _, busy := range []bool{false, true} {
		for turns := range 4 {
			synctest.Test(t, func(t *testing.T) {
				store, d := hookedMem()
				c, elsewhere := newClient(t, d, nil), newClient(t, store, nil)
				o := &hasp.LockOptions{Keep: time.Hour}
				for range turns + 1 {
					useOnce(t, c, o)
				}
				var lease *hasp.Lease
				if busy {
					lease = lock(t, c, "k", o)
				}
				synctest.Wait()
				failIf(t, d.renews.Load() != 1, "asking took %d renewals", d.renews.Load())
				start := time.Now()
				other := begin(t.Context(), elsewhere.Mutex("k", nil).Lock)
				synctest.Wait()
				if busy {
					release(t, lease)
				}
				release(t, comes(t, other))
				took := time.Since(start)
				failIf(t, took > 0, "busy %v, after %d turns: it waited for %v", busy, turns, took)
			})
		}
	}
}

// messages has every wait in the store told to the clients that may keep the key.
func messages(d *hooked, tell ...*hasp.Client) {
	d.onTry(func(ctx context.Context, r driver.TryRequest, next tryFunc) (driver.Result, error) {
		res, err := next(ctx, r)
		if err == nil && !res.Granted && r.Queue {
			for _, c := range tell {
				hasp.Want(c, r.Key)
			}
		}
		return res, err
	})
}

// With an engine that tells by a message who waits, nobody waits for a renewal.
func TestKeeperIsToldByAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		a, b := &hooked{Driver: store}, &hooked{Driver: store}
		first, second := newClient(t, a, nil), newClient(t, b, nil)
		messages(a, second)
		messages(b, first)
		o := &hasp.LockOptions{Keep: time.Hour}
		start := time.Now()
		var fence uint64
		for range 500 {
			for _, c := range []*hasp.Client{first, first, second, first, second} {
				if f := useOnce(t, c, o); f <= fence {
					t.Fatalf("fence %d after %d", f, fence)
				} else {
					fence = f
				}
			}
		}
		lease := lock(t, first, "k", o)
		waits := begin(t.Context(), second.Mutex("k", o).Lock)
		synctest.Wait()
		release(t, lease)
		release(t, comes(t, waits))
		failIf(t, time.Since(start) > 0, "somebody waited, for %v in all", time.Since(start))
	})
}

// A keeper that was told grants nothing more, though its release is still on the way.
func TestKeeperThatWasToldGrantsNothing(t *testing.T) {
	for _, first := range []string{"kept", "held", "held again"} {
		synctest.Test(t, func(t *testing.T) {
			store, d := hookedMem()
			c, elsewhere := newClient(t, d, nil), newClient(t, store, nil)
			o := &hasp.LockOptions{Keep: time.Hour}
			var order []string
			var mu sync.Mutex
			note := func(who string) { mu.Lock(); order = append(order, who); mu.Unlock() }
			lease := lock(t, c, "k", o)
			if first != "held" {
				release(t, lease)
			}
			if first == "held again" {
				lease = lock(t, c, "k", o)
			}
			hangs := make(chan struct{})
			d.onRelease(func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
				<-hangs
				return next(ctx, r)
			})
			var all sync.WaitGroup
			use := func(who string, c *hasp.Client) {
				all.Go(func() {
					l := lock(t, c, "k", o)
					note(who)
					time.Sleep(time.Second)
					release(t, l)
				})
				synctest.Wait()
			}
			use("remote", elsewhere)
			time.Sleep(ttl / 3) // the renewal tells it
			synctest.Wait()
			if first != "kept" {
				all.Go(func() { release(t, lease) })
				synctest.Wait()
			}
			for _, who := range []string{"1", "2", "3"} {
				use(who, c)
			}
			time.Sleep(time.Second)
			mu.Lock()
			failIf(t, len(order) != 0, "granted before the release was done: %v", order)
			mu.Unlock()
			close(hangs)
			all.Wait()
			failIf(t, fmt.Sprint(order) != "[remote 1 2 3]", "%s: in the order %v", first, order)
		})
	}
}

// Two clients that want the key all the time have it in turn, and each has its part.
func TestKeepersAlternate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		o := &hasp.LockOptions{TTL: 3 * time.Second, Keep: time.Hour}
		var mu sync.Mutex
		var fence uint64
		var last, longest int
		var had [2]int
		var all sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		run := 0
		for i := range 2 {
			c := newClient(t, store, nil)
			for range 2 {
				all.Go(func() {
					for {
						l, err := c.Mutex("k", o).Lock(ctx)
						if err != nil {
							return
						}
						mu.Lock()
						failIf(t, l.Fence() <= fence, "fence %d after %d", l.Fence(), fence)
						if fence = l.Fence(); last != i {
							last, run = i, 0
						}
						run++
						longest = max(longest, run)
						had[i]++
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
						release(t, l)
					}
				})
			}
		}
		all.Wait()
		// A renewal is due a second after the last, and tells it.
		failIf(t, longest > 110 || had[0] < 1000 || had[1] < 1000, "in succession %d, in all %v", longest, had)
	})
}

// Without a wait elsewhere nothing is given back; a key that is kept in vain, again and again, is kept more and more seldom.
func TestKeepTurnsItselfOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		o := &hasp.LockOptions{Keep: time.Hour}
		use := func() (wasKept bool) {
			useOnce(t, c, o)
			wasKept = isKept(t, store)
			useOnce(t, elsewhere, nil) // waits, if it has to
			return wasKept
		}
		gaps := func(uses int, want string) {
			t.Helper()
			var all []int
			gap := 0
			for range uses {
				if !use() {
					gap++
					continue
				}
				all, gap = append(all, gap), 0
			}
			failIf(t, fmt.Sprint(all) != want, "not kept in between: %v, want %s", all, want)
		}
		gaps(600, "[0 2 4 8 16 32 64 64 64 64 64 64 64 64]")
		for range 64 { // used again, it is as before
			if isKept(t, store) {
				break
			}
			useOnce(t, c, o)
		}
		useOnce(t, c, o)
		useOnce(t, elsewhere, nil)
		gaps(30, "[0 2 4 8]")
	})
}

// With Cohort, waiters that were there when the store was asked have their turn first, even once the keeper was told.
func TestKeepWithCohort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		c, elsewhere := newClient(t, store, nil), newClient(t, store, nil)
		o := &hasp.LockOptions{Keep: time.Hour, Cohort: time.Hour}
		holder := lock(t, elsewhere, "k", nil)
		got := queueUp(t, c, 3, o)
		time.Sleep(ttl) // the store knows that there are three
		release(t, holder)
		first := <-got
		other := queueUp(t, elsewhere, 1, nil)
		late := begin(t.Context(), c.Mutex("k", o).Lock)
		time.Sleep(ttl) // told
		release(t, first)
		for range 2 {
			select {
			case l := <-got:
				release(t, l)
			case <-other:
				t.Fatal("somebody elsewhere was before them")
			}
		}
		release(t, <-other)
		release(t, comes(t, late))
	})
}

// Many goroutines of two clients, without a fake clock: one at a time, and fences rise.
func TestKeepRace(t *testing.T) {
	store := newStore()
	keeps := []time.Duration{time.Millisecond, time.Second} // the one gives keys back all the time
	var all sync.WaitGroup
	var mu sync.Mutex
	var held int64      // how often
	var fence uint64    // the key's
	var until time.Time // the deadline of the lease of which a goroutine is inside
	links := []*hooked{{Driver: store}, {Driver: store}}
	clients := []*hasp.Client{must(hasp.New(links[0], nil)), must(hasp.New(links[1], nil))}
	messages(links[0], clients[1]) // the other is told by its renewals
	for n, c := range clients {
		defer c.Close()
		for g := range 4 {
			all.Go(func() {
				m := c.Mutex("k", &hasp.LockOptions{TTL: 300 * time.Millisecond, Keep: keeps[n]})
				for i := range 200 {
					time.Sleep(rand.N(2 * time.Millisecond)) // a key for which others wait all the time is never kept
					ctx, cancel := context.WithCancel(context.Background())
					if (i+g)%7 == 0 {
						time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
					}
					lease, err := m.Lock(ctx)
					if err != nil {
						cancel()
						continue
					}
					mu.Lock()
					deadline := lease.Deadline()
					failIf(t, time.Now().Before(until), "two holders")
					held++
					if time.Now().Before(deadline) {
						failIf(t, lease.Fence() <= fence, "fence %d after %d", lease.Fence(), fence)
						fence, until = lease.Fence(), deadline
					}
					mu.Unlock()
					runtime.Gosched()
					mu.Lock()
					if until.Equal(deadline) {
						until = time.Time{}
					}
					mu.Unlock()
					if i%5 == 0 { // by several at once
						go func() { _ = lease.Release() }()
					}
					_ = lease.Release()
					cancel()
				}
			})
		}
	}
	all.Wait()
	failIf(t, links[0].releases.Load()+links[1].releases.Load() >= held, "no lease was kept: this run shows nothing")
}
