// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

func holdsOn(t testing.TB, stores []*memdriver.Store, key string) (s []string) {
	for _, st := range stores {
		info, err := st.Inspect(t.Context(), key)
		need(t, err)
		s = append(s, info.Holder.Owner)
	}
	return s
}

// A restore after Release.
func TestRestoreAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, ts := connect(t, stores)
		var rs []contend.Owner
		for i := range 17 {
			r := ask("k" + string(rune('a'+i)))
			res := mustTry(t, d, r)
			r.Fence, r.Settled = res.Fence, true
			rs = append(rs, r)
		}
		synctest.Wait()
		for _, r := range rs {
			stores[0].Lose(r.Key)
		}
		ts[0].onTry(func(ctx context.Context, r voting.VoteRequest) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		contend.Renew(t.Context(), d, rs, func(i int, r driver.Renewal) {
			if r.Err != nil {
				t.Error(i, r.Err)
			}
		})
		for _, r := range rs {
			if err := contend.Release(t.Context(), d, r); err != nil {
				t.Log(err)
			}
		}
		time.Sleep(5 * time.Second)
		for _, r := range rs {
			got := holdsOn(t, stores, r.Key)
			failIf(t, got[0] != "", "%s: votes 5 s after Release: %q", r.Key, got)
		}
	})
}

// The queue node answers everything but Renew.
func TestHeadRenewHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, ts := connect(t, stores)
		c, _ := hasp.New(d, nil)
		defer c.Close()
		l := mustLock(t, c, "k")
		ts[0].set(func() {
			ts[0].renew = func(ctx context.Context, _ []driver.RenewRequest) error { <-ctx.Done(); return ctx.Err() }
		})
		for range 4000 { // other traffic, for 40 s
			time.Sleep(10 * time.Millisecond)
			o := mustLock(t, c, "other")
			_ = o.Release()
			if err := l.Err(); err != nil {
				t.Fatalf("a majority prolongs it, and: %v; held by %q", err, holdsOn(t, stores, "k"))
			}
		}
		_ = l.Release()
	})
}

// The queue node's clock was a minute ahead for a while.
func TestFarNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		one, err := stores[0].Record(t.Context())
		need(t, err)
		ahead := storesAhead(t, 1, time.Minute)[0]
		for ahead.Restart(nil); admit(t, ahead, ruleTTL) > one.Run; ahead.Restart(nil) { // until it is the queue node
		}
		stores[0] = ahead
		d, _ := connect(t, stores)
		c, _ := hasp.New(d, nil)
		defer c.Close()
		var last time.Duration
		for range 5 {
			begun := time.Now()
			lease := mustLock(t, c, "k")
			waits := make(chan struct{})
			go func() {
				defer close(waits)
				next := mustLock(t, c, "k") // waits: its second Try proposes above what it saw
				t.Log("next after", time.Since(begun), holdsOn(t, stores, "k"))
				_ = next.Release()
			}()
			time.Sleep(time.Second)
			_ = lease.Release()
			<-waits
			synctest.Wait()
			last = time.Since(begun)
			got := holdsOn(t, stores, "k")
			failIf(t, got[0] != "", "released, and %q", got)
		}
		failIf(t, last > 5*time.Second, "a turn took %v", last)
	})
}

// Who watches before anything was asked listens where the queue is, and is not sent
// there later, when its place is already taken.
func TestFirstWatchKnowsTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		slices.Reverse(stores)
		d, ts := connect(t, stores)
		var mu sync.Mutex
		var heard []int
		watchHook = func(_ context.Context, l *link) error {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, slices.Index(ts, l))
			return nil
		}
		defer func() { watchHook = nil }()
		r := ask("k")
		if _, err := contend.Watch(t.Context(), d, r); err != nil {
			t.Fatal(err)
		}
		r.Queue = true
		mustTry(t, d, r)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		failIf(t, !slices.Equal(heard, []int{2}), "it listened at %v, and the queue is at 2", heard)
	})
}

// The answer of the queue node to the first Try is slow, and the subscription too.
func TestGoneAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, ts := connect(t, stores)
		c, _ := hasp.New(d, nil)
		defer c.Close()
		l := mustLock(t, c, "k")
		stop := make(chan struct{})
		go func() { // other traffic: the queue node is only busy
			for {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
				o, err := c.Mutex("other", nil).TryLock(t.Context())
				if err == nil {
					_ = o.Release()
				}
			}
		}()
		var slow atomic.Bool
		ts[0].onTry(func(ctx context.Context, r voting.VoteRequest) error {
			if r.Key == "k" && !slow.Swap(true) {
				time.Sleep(1500 * time.Millisecond)
			}
			return nil
		})
		watchHook = func(ctx context.Context, l *link) error { time.Sleep(990 * time.Millisecond); return nil }
		defer func() { watchHook = nil }()
		got := grantedAt(t, c)
		time.Sleep(3 * time.Second)
		released := time.Now()
		_ = l.Release()
		took := (<-got).Sub(released)
		failIf(t, took > 2*time.Second, "the only waiter had the key %v after the release", took)
		close(stop)
	})
}
