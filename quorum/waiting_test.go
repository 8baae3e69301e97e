// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// freeFor is how long a key may be free beside a waiter, whatever one node does.
const freeFor = time.Second

// While a subscription moves to the node where the queue is now, the old one is heard:
// the queue may be back before the new one stands.
func TestOldNodeIsHeardWhileTheSubscriptionMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		holder, _ := connect(t, stores)
		held := ask("k")
		mustTry(t, holder, held)
		d, ts := connect(t, stores)
		arrive := make(chan struct{})
		watchHook = func(ctx context.Context, l *link) error {
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
		need(t, err)
		r.Queue = true
		mustTry(t, d, r)
		hinted(hints)
		ts[0].onTry(func(context.Context, voting.VoteRequest) error { return errGone })
		mustTry(t, d, ask("other"))
		ts[0].onTry(nil)
		time.Sleep(100 * time.Millisecond) // the queue goes to the second node, and is back
		hinted(hints)
		release(t, holder, held)
		failIf(t, !hinted(hints), "the node that hands on the key is not heard")
		close(arrive)
		time.Sleep(100 * time.Millisecond)
		failIf(t, !mustTry(t, d, r).Granted, "the key was handed over, and is not granted")
	})
}

// An owner that listens is not gone, however long its subscription takes: it is
// remembered as released nowhere.
func TestOwnerThatListensIsNotGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, links := connect(t, stores)
		holder, _ := connect(t, stores)
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
		failIf(t, mustTry(t, stores[2], r).Why == driver.WhyReleased, "an owner that listens is remembered as released")
		cancel()
		time.Sleep(10 * time.Second)
		res := mustTry(t, stores[2], r)
		failIf(t, res.Why != driver.WhyReleased, "an owner that went: %+v, want Released", res)
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
			stopIf(t, err != nil || len(info.Queue) != 1, "%+v, %v", info, err)
			at := contend.Owner{Key: "k", Owner: info.Queue[0].Owner, Label: info.Queue[0].Label, Settled: true}
			release(t, node, at)
		},
	} {
		bubbled(t, name, func(t *testing.T) {
			stores := newStores(t, 5)
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
			need(t, held.Release())
			free := (<-got).Sub(begun)
			failIf(t, free > freeFor, "the key was free for %v", free)
			time.Sleep(10 * time.Second)
		})
	}
}

// asker asks as often as it is told to, until it has the key.
type asker struct {
	d    *Driver
	r    contend.Owner
	due  time.Time
	gone bool
}

func (a *asker) asks(t *testing.T) (granted bool) {
	t.Helper()
	if a.gone || time.Now().Before(a.due) {
		return false
	}
	res := mustTry(t, a.d, a.r)
	a.due = time.Now().Add(res.RetryIn)
	if res.RetryIn == 0 { // it would be told
		a.due = time.Now().Add(300 * time.Millisecond)
	}
	return res.Granted
}

// A writer that has the queue node's vote, and waits for readers that were there before
// it, is heeded by those that come later for as long as it asks.
func TestReadersHeedAWaitingWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		first, ts := connect(t, stores)
		mustTry(t, first, ask("warm"))
		// The queue node does not hear of this reader.
		ts[0].onTry(hangs)
		before := ask("k")
		before.Mode = driver.Shared
		res := mustTry(t, first, before)
		stopIf(t, !res.Granted, "refused: %+v", res)
		wd, _ := connect(t, stores)
		rd, _ := connect(t, stores)
		mustTry(t, wd, ask("warm2"))
		mustTry(t, rd, ask("warm3"))
		writer, reader := &asker{d: wd, r: ask("k")}, &asker{d: rd, r: ask("k")}
		writer.r.Queue, reader.r.Queue, reader.r.Mode = true, true, driver.Shared

		for begun := time.Now(); time.Since(begun) < 5*time.Second; time.Sleep(time.Millisecond) {
			stopIf(t, writer.asks(t), "the writer has the key beside a reader")
			stopIf(t, reader.asks(t), "a reader passed the writer that waits, after %v", time.Since(begun))
		}
		release(t, first, before)
		for begun := time.Now(); !writer.asks(t); time.Sleep(time.Millisecond) {
			stopIf(t, reader.asks(t) || time.Since(begun) > time.Second, "the writer does not come next")
		}
	})
}

// A reader in the queue is told that the holder shares the key now, where only the queue node
// does not know of it.
func TestReaderHearsOfAConversion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		hd, ts := connect(t, stores)
		rd, _ := connect(t, stores)
		mustTry(t, rd, ask("warm"))
		writer, reader := ask("k"), &asker{d: rd, r: ask("k")}
		mustTry(t, hd, writer)
		synctest.Wait() // the third node has voted, too: it is to convert what it has
		reader.r.Queue, reader.r.Mode = true, driver.Shared
		hints, err := contend.Watch(t.Context(), rd, reader.r)
		need(t, err)
		stopIf(t, reader.asks(t), "a reader beside a writer")
		ts[0].onTry(hangs)
		writer.Mode, writer.Convert = driver.Shared, true
		res := mustTry(t, hd, writer)
		stopIf(t, !res.Granted, "not converted: %+v", res)
		for begun := time.Now(); !reader.asks(t); {
			select {
			case <-hints:
				reader.due = time.Now()
			case <-time.After(time.Until(reader.due)):
			}
			stopIf(t, time.Since(begun) > time.Second, "a reader waits beside one that reads")
		}
	})
}

// A node whose fences are far from the others' keeps no waiter from the key, also when the queue is there.
func TestWaiterBesideANodeOutOfStep(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		for i := range 6 {
			odd, comesBack := i%3, i >= 3
			synctest.Test(t, func(t *testing.T) {
				stores := newStores(t, 3)
				off := ahead
				stores[odd] = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL, Now: func() time.Time { return time.Now().Add(off) }})
				admit(t, stores[odd], ruleTTL)
				if comesBack {
					off = 0 // its fences stay
				}
				a, _ := client(t, stores)
				b, _ := client(t, stores)
				for range 3 {
					held := mustLock(t, a, "k")
					got := make(chan *hasp.Lease)
					go func() { got <- mustLock(t, b, "k") }()
					time.Sleep(5 * time.Second)
					begun := time.Now()
					check(t, held.Release())
					lease := <-got
					if took := time.Since(begun); took > time.Second {
						t.Errorf("node %d ahead by %v: the waiter has the key %v after its release", odd, ahead, took)
					}
					check(t, lease.Release())
				}
			})
		}
	}
}
