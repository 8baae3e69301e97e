// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// freeFor is how long a key may be free beside a waiter, whatever one node does.
const freeFor = time.Second

// While a subscription moves to the node where the queue is now, the old one is heard:
// the queue may be back before the new one stands.
func TestOldNodeIsHeardWhileTheSubscriptionMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{})
		holder, _ := taps(t, stores)
		held := ask("k")
		mustTry(t, holder, held)
		d, ts := taps(t, stores)
		arrive := make(chan struct{})
		watchHook = func(ctx context.Context, l *tap) error {
			if l != ts[1] {
				return nil
			}
			select {
			case <-arrive:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		defer func() { watchHook = nil }()
		defer d.Close()
		r := ask("k")
		hints, err := contend.Watch(t.Context(), d, r)
		if err != nil {
			t.Fatal(err)
		}
		r.Queue = true
		mustTry(t, d, r)
		hear := func() bool {
			synctest.Wait()
			select {
			case <-hints:
				return true
			default:
				return false
			}
		}
		hear()
		ts[0].hook(func() { ts[0].try = func(context.Context, driver.VoteRequest) error { return errAway } })
		mustTry(t, d, ask("other"))
		ts[0].hook(func() { ts[0].try = nil })
		time.Sleep(100 * time.Millisecond) // the queue goes to the second node, and is back
		hear()
		if err := contend.Release(t.Context(), holder, held); err != nil {
			t.Fatal(err)
		}
		if !hear() {
			t.Error("the node that hands on the key is not heard")
		}
		close(arrive)
		time.Sleep(100 * time.Millisecond)
		if !mustTry(t, d, r).Granted {
			t.Error("the key was handed over, and is not granted")
		}
	})
}

// Where the queue node says that an owner was released, it says nothing of another
// holder: a majority of the others decides.
func TestReleasedIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{})
		d, _ := taps(t, stores)
		r := ask("k")
		_ = contend.Release(t.Context(), stores[0], r) // leaves a tombstone
		r.Queue = true
		if res := mustTry(t, d, r); !res.Granted {
			t.Errorf("nobody has the key, and it is refused: %+v", res)
		}
		if err := contend.Release(t.Context(), d, r); err != nil {
			t.Fatal(err)
		}
		if res := mustTry(t, d, r); res.Granted || res.Why != driver.Released {
			t.Errorf("an owner that was released: %+v", res)
		}
	})
}

// An owner that listens is not gone, however long its subscription takes: it is
// remembered as released nowhere.
func TestOwnerThatListensIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := voting(t, 3, memdriver.NodeOptions{})
		d, links := connect(t, stores)
		defer d.Close()
		holder, _ := taps(t, stores)
		mustTry(t, d, ask("other"))
		mustTry(t, holder, ask("k"))
		links[2].stop()
		r := ask("k")
		mustTry(t, d, r) // has no answer from the third
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := contend.Watch(ctx, d, r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		links[2].cont()
		time.Sleep(time.Second)
		if res := mustTry(t, stores[2], r); res.Why == driver.Released {
			t.Error("an owner that listens is remembered as released")
		}
		cancel()
		time.Sleep(10 * time.Second)
		if res := mustTry(t, stores[2], r); res.Why != driver.Released {
			t.Errorf("an owner that went: %+v, want Released", res)
		}
	})
}

// Whoever waits looks after the queue: that its node hangs, or has lost the place, or
// that a hint was lost, is known before the key was free for a second.
func TestWaiterLooksAfterTheLine(t *testing.T) {
	for name, happens := range map[string]func(t *testing.T, node *memdriver.Store, links ...*link){
		"the queue node hangs": func(_ *testing.T, _ *memdriver.Store, links ...*link) {
			for _, l := range links {
				l.stop()
				time.AfterFunc(10*time.Second, l.cont)
			}
		},
		"the release does not reach the queue node": func(_ *testing.T, _ *memdriver.Store, links ...*link) {
			links[1].stop()
			time.AfterFunc(10*time.Second, links[1].cont)
		},
		"the place is lost": func(t *testing.T, node *memdriver.Store, _ ...*link) {
			info, err := node.Inspect(t.Context(), "k")
			if err != nil || len(info.Queue) != 1 {
				t.Fatalf("%+v, %v", info, err)
			}
			at := contend.Owner{Key: "k", Owner: info.Queue[0].Owner, Label: info.Queue[0].Label, Settled: true}
			if err := contend.Release(t.Context(), node, at); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stores := voting(t, 5, memdriver.NodeOptions{})
				holder, hlinks := client(t, stores)
				waiter, links := client(t, stores)
				held := mustLock(t, holder, "k")
				got := make(chan time.Time, 1)
				go func() {
					lease, err := waiter.Mutex("k", nil).Lock(t.Context())
					got <- time.Now()
					if err != nil {
						t.Error(err)
						return
					}
					_ = lease.Release()
				}()
				time.Sleep(10 * time.Second)
				happens(t, stores[0], links[0], hlinks[0])
				begun := time.Now()
				if err := held.Release(); err != nil {
					t.Fatal(err)
				}
				if free := (<-got).Sub(begun); free > freeFor {
					t.Errorf("the key was free for %v", free)
				}
				time.Sleep(10 * time.Second)
			})
		})
	}
}
