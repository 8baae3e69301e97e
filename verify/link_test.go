// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// Failure case 1. Rule: the context of a holder that is cut off right after a renewal ends before anybody else can have the key.
func TestCutOffHolderIsToldFirst(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	link, cut := faultproxy.New(t, s.Addr()), make(chan struct{})
	var once sync.Once
	holder := Locks(t, link.Addr(), func(_ context.Context, e *event.Event) {
		if e.Kind == event.Renewed {
			once.Do(func() {
				link.Swallow(true, true)
				close(cut)
			})
		}
	})
	t.Cleanup(link.Clear)                            // before the clients close
	opts := &hasp.LockOptions{TTL: 15 * time.Second} // a hundredth of it allows for the machine
	stood := stall.Watch(t)
	lease := mustLock(t, holder.Mutex("k", opts))
	lost := make(chan time.Time, 1)
	work := lease.Context(context.Background())
	context.AfterFunc(work, func() { lost <- time.Now() })

	waiter := Locks(t, s.Addr(), nil)
	next, got := awaitLease(t, lockAsync(t.Context(), waiter.Mutex("k", opts)))
	select {
	case <-cut:
	default:
		t.Fatal("the waiter got the key before the holder was cut off")
	}
	info, err := waiter.Operator().Inspect(t.Context(), "k")
	if err != nil || info.Holder.Owner != next.Owner() || info.Holder.Since.IsZero() {
		t.Fatalf("the store names %+v (%v) as the holder, want owner %s and since when", info.Holder, err, next.Owner())
	}
	var ended time.Time
	select {
	case ended = <-lost:
	case <-time.After(soon):
		t.Fatal("the holder's context did not end")
	}
	allowed := stood()
	if cause := context.Cause(work); !errors.Is(cause, hasp.ErrLost) {
		t.Errorf("the holder's context ended with %v", cause)
	}
	margin := info.Holder.Since.Sub(ended) // in whole ms
	t.Logf("the context ended %v before the store granted the key to the waiter", margin)
	if margin+allowed <= 0 || !ended.Before(got.Add(allowed)) {
		t.Errorf("the holder's context ended %v after the grant, %v after the waiter had the key", -margin, ended.Sub(got))
	}
	if next.Fence() <= lease.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), lease.Fence())
	}
	link.Clear()
	if err := lease.Release(); !errors.Is(err, hasp.ErrLost) {
		t.Errorf("the holder's late Release: %v, want ErrLost", err)
	}
	if err := next.Extend(t.Context(), opts.TTL); err != nil {
		t.Errorf("the next holder, after the late Release: %v", err)
	}
	release(t, next)
}

// Failure case 22. Rule: a slow link is not a fault: with default options a free key is acquired, and a contended one handed off.
func TestRoundTrips(t *testing.T) {
	s := testserver.Redis(t)
	for _, rtt := range []time.Duration{30 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(rtt.String(), func(t *testing.T) {
			eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
				link := faultproxy.New(t, s.Addr())
				link.Delay(rtt)
				key, events := t.Name(), newFeed()
				a := LocksOn(t, dial(link.Addr()), nil).Mutex(key, nil)
				b := LocksOn(t, dial(link.Addr()), events.observe).Mutex(key, nil)
				start := time.Now()
				first := mustLock(t, a)
				t.Logf("a free key, first contact: %.1f round trips", float64(time.Since(start))/float64(rtt))
				got := lockAsync(t.Context(), b)
				events.waits(t)
				lost := stall.Watch(t)
				start = time.Now()
				release(t, first)
				second, at := awaitLease(t, got)
				t.Logf("handed off: %.1f round trips from the call of Release", float64(at.Sub(start))/float64(rtt))
				if trips := at.Sub(start); trips > 5*rtt+little+lost() {
					t.Errorf("handed off %v after Release, by a link with a round trip of %v", trips, rtt)
				}
				if second.Fence() <= first.Fence() {
					t.Errorf("fence %d after %d", second.Fence(), first.Fence())
				}
				release(t, second)
			})
		})
	}
}

// dropOne makes a link drop the next script's request, or its reply, and returns when it did, in ns; 0: it has not.
func dropOne(link *faultproxy.Proxy, dir faultproxy.Direction) *atomic.Int64 {
	var conn atomic.Int64 // by which the request came
	dropped := new(atomic.Int64)
	drop := func() bool { return dropped.CompareAndSwap(0, time.Now().UnixNano()) }
	link.Hook(func(c faultproxy.Chunk) bool {
		if c.Dir == faultproxy.Up && bytes.Contains(c.Data, []byte("evalsha")) && conn.CompareAndSwap(0, int64(c.Conn)) {
			return dir == faultproxy.Up && drop()
		}
		return c.Dir == dir && dir == faultproxy.Down && int64(c.Conn) == conn.Load() && drop()
	})
	return dropped
}

// Failure case 23. Rule: one renewal whose request or reply is lost does not lose the lease, at any round trip: while the first has no
// answer the next is sent, after a sixth of the lease's time, on a new connection, which takes up to five round trips.
func TestOneLostRenewal(t *testing.T) {
	s := testserver.Redis(t)
	for _, rtt := range []time.Duration{30 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		for dir, what := range []string{faultproxy.Up: "request", faultproxy.Down: "reply"} {
			t.Run(fmt.Sprintf("%s lost, round trip %v", what, rtt), func(t *testing.T) {
				eachSetting(t, func(t *testing.T, dial func(string) *redis.Options) {
					link := faultproxy.New(t, s.Addr())
					link.Delay(rtt)
					o := dial(link.Addr())
					o.ReadTimeout = time.Hour // go-redis does not ask again by itself
					loseOneRenewal(t, o, link, rtt, faultproxy.Direction(dir))
				})
			})
		}
	}
}

func loseOneRenewal(t *testing.T, o *redis.Options, link *faultproxy.Proxy, rtt time.Duration, dir faultproxy.Direction) {
	const ttl = time.Minute // half of it is left to a machine that stands still
	renewed := make(chan time.Time, 1)
	locks := LocksOn(t, o, func(_ context.Context, e *event.Event) {
		if e.Kind == event.Renewed {
			select {
			case renewed <- time.Now():
			default:
			}
		}
	})
	lease := mustLock(t, locks.Mutex(t.Name(), &hasp.LockOptions{TTL: ttl}))
	dropped, stood := dropOne(link, dir), stall.Watch(t)
	select {
	case at := <-renewed:
		lost := dropped.Load()
		if lost == 0 {
			t.Fatal("no renewal was lost")
		}
		if took, most := at.Sub(time.Unix(0, lost)), ttl/6+5*rtt+little+stood(); took > most {
			t.Errorf("renewed %v after the loss, want %v at most", took, most)
		}
	case <-lease.Done():
		t.Fatalf("the lease was lost: %v", lease.Err())
	case <-time.After(soon):
		t.Fatal("no renewal succeeded after one was lost")
	}
	link.Hook(nil)
	release(t, lease)
}

// Rule: a link that loses large requests and passes small ones loses no lease.
func TestLargeRequestsVanish(t *testing.T) {
	t.Parallel()
	link := faultproxy.New(t, testserver.Redis(t).Addr())
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	const keys, each = 20, 3
	var mu sync.Mutex
	renewed := map[string]int{}
	// after waits until each lease was renewed so many times from now on.
	after := func(n int) {
		t.Helper()
		mu.Lock()
		clear(renewed)
		mu.Unlock()
		for done := false; !done; time.Sleep(10 * time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatal(context.Cause(ctx))
			}
			mu.Lock()
			done = len(renewed) == keys
			for _, times := range renewed {
				done = done && times >= n
			}
			mu.Unlock()
		}
	}
	locks := LocksOn(t, &redis.Options{Addr: link.Addr(), DisableIdentity: true}, func(_ context.Context, e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case event.Renewed:
			renewed[e.Key]++
		case event.Lost:
			cancel(fmt.Errorf("%s is lost: %w", e.Key, e.Err))
		}
	})
	for i := range keys {
		lease := mustLock(t, locks.Mutex(fmt.Sprint("k", i), &hasp.LockOptions{TTL: 15 * time.Second}))
		defer release(t, lease)
	}
	after(1) // the script is loaded
	link.Hook(faultproxy.LosesLarge(1400))
	after(each)
	link.Hook(nil)
	link.Reset()
}
