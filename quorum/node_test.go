// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// A node that hangs changes nothing, has one probe and nothing behind it, and
// is back as soon as it goes on.
func TestHungNode(t *testing.T) {
	const locks = 100
	for hung := range 5 {
		synctest.Test(t, func(t *testing.T) {
			stores := newStores(t, 5)
			c, links := client(t, stores)
			need(t, mustLock(t, c, "k").Release())
			synctest.Wait()
			links[hung].stop()
			begun := time.Now()
			need(t, mustLock(t, c, "k").Release())
			took := time.Since(begun)
			failIf(t, took > 110*time.Millisecond, "node %d hangs: a lock took %v until that was known", hung, took)
			time.Sleep(time.Second)
			synctest.Wait()
			sent, goroutines, kept := links[hung].sent.Load(), runtime.NumGoroutine(), int64(math.MaxInt64)
			for range 4 { // a table grows in some of them
				before := heap()
				for range locks {
					begun := time.Now()
					need(t, mustLock(t, c, "k").Release())
					stopIf(t, time.Since(begun) > 0, "node %d hangs: a lock took %v", hung, time.Since(begun))
				}
				kept = min(kept, (heap()-before)/locks)
			}
			now := links[hung].sent.Load()
			failIf(t, now != sent, "%d requests went to the node that hangs", now-sent)
			synctest.Wait()
			if now := runtime.NumGoroutine(); now > goroutines+10 {
				t.Errorf("%d goroutines more beside the node that hangs", now-goroutines)
			}
			if kept > 512 { // an owner takes 3 KiB
				t.Errorf("%d bytes of each lock are kept for the node that hangs", kept)
			}
			links[hung].cont()
			time.Sleep(time.Second) // for the next probe
			lease := mustLock(t, c, "k")
			synctest.Wait()
			n := votes(t, stores, "k", lease.Owner())
			failIf(t, n != 5, "the node goes on, and a lease has %d votes of 5", n)
			need(t, lease.Release())
			synctest.Wait()
			info, _ := stores[hung].Inspect(t.Context(), "k")
			failIf(t, info.Held, "the node that hung still has a vote for %s", info.Holder.Owner)
		})
	}
}

// heap returns the bytes that are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools kept
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Without a majority the error names the nodes, soon, and all is well soon after
// they are back.
func TestTooFewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		c, links := client(t, stores)
		need(t, mustLock(t, c, "k").Release())
		synctest.Wait() // the last node has heard of it, and refuses nobody
		links[0].fail(errGone)
		links[2].fail(errGone)
		links[4].stop()
		begun := time.Now()
		_, err := c.Mutex("k", nil).TryLock(t.Context())
		failIf(t, time.Since(begun) > 50*time.Millisecond, "the error came after %v", time.Since(begun))
		var e *hasp.Error
		if !errors.As(err, &e) || e.Class != driver.ClassUnreachable {
			t.Fatalf("TryLock: %v, want an error of class Unreachable", err)
		}
		const want = "too few nodes vote (2 of 5, and it takes 3): node 1, node 3: connection refused; node 5: it does not answer"
		failIf(t, !strings.HasSuffix(err.Error(), want), "the error is\n%v\nand should end with\n%s", err, want)
		links[0].fail(nil)
		links[2].fail(nil)
		links[4].cont()
		begun = time.Now()
		lease := mustLock(t, c, "k")
		failIf(t, time.Since(begun) > time.Second, "the nodes are back, and a lock took %v", time.Since(begun))
		check(t, lease.Release())
	})
}

// A store that restarted does not vote until whatever it may have forgotten is
// over, and votes again for a lease that still stands: a rolling restart of all
// nodes ends no lease.
func TestRollingRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		c, _ := client(t, stores)
		lease := mustLock(t, c, "k")
		other, _ := client(t, stores)
		for i, s := range stores {
			s.Restart(nil)
			for waited := time.Duration(0); ; waited += time.Second {
				if rec, err := s.Record(t.Context()); err != nil || rec.Voting {
					if err != nil || waited < ruleTTL+10*time.Second {
						t.Fatalf("node %d votes %v after its restart (%v)", i, waited, err)
					}
					break
				}
				res := mustTry(t, s, ask("k"))
				stopIf(t, res.Granted || res.Why != voting.NotVoting, "a node that restarted: %+v", res)
				stopIf(t, waited > 2*ruleTTL, "node %d is not admitted", i)
				time.Sleep(time.Second)
			}
			time.Sleep(ruleTTL) // for the next renewals
			n := votes(t, stores, "k", lease.Owner())
			stopIf(t, n != 5, "after the restart of node %d the lease has %d votes", i, n)
			if _, err := other.Mutex("k", nil).TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
				t.Fatalf("another client: %v, want ErrHeld", err)
			}
		}
		need(t, lease.Err())
		need(t, lease.Release())
		synctest.Wait()
		n := votes(t, stores, "k", lease.Owner())
		failIf(t, n != 0, "%d votes are left", n)
	})
}

// All stores restart empty inside one TTL: nobody else is granted the key before
// the lease is over, and its loss is told.
func TestAllForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		c, _ := client(t, stores)
		other, _ := client(t, stores)
		lease := mustLock(t, c, "k")
		for _, s := range stores {
			s.Restart(nil)
		}
		_, err := other.Mutex("k", nil).TryLock(t.Context())
		if !errors.Is(err, voting.ErrNotVoting) || !strings.Contains(err.Error(), "held back") {
			t.Fatalf("TryLock: %v, want one that says that nodes are held back", err)
		}
		<-lease.Done()
		failIf(t, !errors.Is(lease.Err(), hasp.ErrLost), "the lease: %v, want ErrLost", lease.Err())
		lost := time.Now()
		var next *hasp.Lease
		for next == nil {
			next, err = other.Mutex("k", nil).TryLock(t.Context())
			stopIf(t, time.Since(lost) > 2*ruleTTL, "no node is admitted: %v", err)
			time.Sleep(100 * time.Millisecond)
		}
		failIf(t, next.Fence() <= lease.Fence(), "the fence is %d after %d", next.Fence(), lease.Fence())
		check(t, next.Release())
	})
}

// The operator's word lets new nodes vote at once.
func TestAdmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		for _, s := range stores {
			s.Restart(nil)
		}
		c, _ := client(t, stores)
		need(t, c.Operator().Admit(t.Context()))
		need(t, mustLock(t, c, "k").Release())
	})
}

// A Lock that found too few nodes goes on with the same owner once they are back:
// none of them was told that it is gone.
func TestOwnerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, warm := range []bool{false, true} {
			stores := newStores(t, 5)
			c, links := client(t, stores)
			if warm {
				need(t, mustLock(t, c, "other").Release())
			}
			for _, l := range links[:3] {
				l.stop()
			}
			got := make(chan *hasp.Lease)
			go func() { got <- mustLock(t, c, "k") }()
			time.Sleep(200 * time.Millisecond)
			for _, l := range links[:3] {
				l.cont()
			}
			back := time.Now()
			lease := <-got
			failIf(t, time.Since(back) > 2*time.Second, "all nodes are back, and the lock took %v", time.Since(back))
			check(t, lease.Release())
		}
	})
}

// Who says that nodes may take their time is not told that they are silent, nor
// that one which was away stays away, by calls that have limits of their own.
func TestNodeTimeoutIsForAllCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		d, links := patient(t, stores, 3*time.Second)
		first := ask("k")
		mustTry(t, d, first)
		time.Sleep(time.Second)
		links[0].fail(errGone)
		mustTry(t, d, ask("other")) // it is out of service
		links[0].fail(nil)
		for _, l := range links {
			l.delay(2 * time.Second)
		}
		info, err := d.Inspect(t.Context(), "k")
		failIf(t, err != nil || info.Holder.Owner != first.Owner, "Inspect: %+v, %v", info, err)
		time.Sleep(10 * time.Second)
		last := ask("last")
		mustTry(t, d, last)
		time.Sleep(5 * time.Second)
		n := votes(t, stores, "last", last.Owner)
		failIf(t, n != 3, "%d of 3 nodes vote, and all answer in time", n)
	})
}

// A subscription is such a call, too.
func TestNodeTimeoutIsForSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := patient(t, newStores(t, 3), 3*time.Second)
		watchHook = func(ctx context.Context, _ *link) error {
			select {
			case <-time.After(2 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		defer func() { watchHook = nil }()
		held, waits := ask("k"), ask("k")
		mustTry(t, d, held)
		hints, err := contend.Watch(t.Context(), d, waits)
		need(t, err)
		waits.Queue = true
		if res, err := contend.Try(t.Context(), d, waits); err != nil || res.Granted {
			t.Fatalf("Try: %+v, %v", res, err)
		}
		release(t, d, held)
		failIf(t, !hinted(hints), "the waiter is not told, though its node confirmed in time that it listens")
	})
}

// Whoever waits for a subscription is not in the queue yet: a node that confirms none is
// deaf after three seconds, however long nodes may take, and its waiters poll.
func TestSubscriptionThatIsNeverConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := patient(t, newStores(t, 3), time.Minute)
		watchHook = hangs
		defer func() { watchHook = nil }()
		begun := time.Now()
		_, err := contend.Watch(t.Context(), d, ask("k"))
		failIf(t, err != nil, "Watch: %v, want a channel", err)
		failIf(t, time.Since(begun) != 3*time.Second, "it took %v", time.Since(begun))
	})
}

// The first Watch asks the nodes for their names, for as long as its caller waits.
func TestFirstWatchEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, links := patient(t, newStores(t, 3), time.Minute)
		links[1].stop()
		defer links[1].cont()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		_, err := contend.Watch(ctx, d, ask("k"))
		failIf(t, err == nil, "no error, and its caller left")
		failIf(t, time.Since(begun) != time.Second, "it took %v", time.Since(begun))
	})
}
