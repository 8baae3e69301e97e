// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/history"
)

// Two who name the same keys in opposite orders do not wait for each other.
func TestLockAllInBothOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of those who wait for each other
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
					s, err := c.LockKeys(ctx, keys...)
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
		mustBeFree(t, store, "a")
		mustBeFree(t, store, "b")
	})
}

// 32 processes that want random sets of keys, in random orders and modes, some
// of which are killed meanwhile: all others continue, nobody believes to hold a key
// that another has, and no key stays.
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
	s, err := hasp.LockAll(ctx, items...)
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
