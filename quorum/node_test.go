// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum_test

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
)

// A node that hangs changes nothing, has one probe and nothing behind it, and
// is back as soon as it goes on.
func TestHungNode(t *testing.T) {
	const locks = 100
	for hung := range 5 {
		synctest.Test(t, func(t *testing.T) {
			stores := newStores(t, 5)
			c, links := client(t, stores)
			if err := mustLock(t, c, "k").Release(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			links[hung].stop()
			begun := time.Now()
			if err := mustLock(t, c, "k").Release(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 110*time.Millisecond {
				t.Errorf("node %d hangs: a lock took %v until that was known", hung, took)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			sent, goroutines, kept := links[hung].sent.Load(), runtime.NumGoroutine(), int64(math.MaxInt64)
			for range 4 { // a table grows in some of them
				before := heap()
				for range locks {
					begun := time.Now()
					if err := mustLock(t, c, "k").Release(); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(begun); took > 0 {
						t.Fatalf("node %d hangs: a lock took %v", hung, took)
					}
				}
				kept = min(kept, (heap()-before)/locks)
			}
			if now := links[hung].sent.Load(); now != sent {
				t.Errorf("%d requests went to the node that hangs", now-sent)
			}
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
			if n := votes(t, stores, "k", lease.Owner()); n != 5 {
				t.Errorf("the node goes on, and a lease has %d votes of 5", n)
			}
			if err := lease.Release(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if info, _ := stores[hung].Inspect(t.Context(), "k"); info.Held {
				t.Errorf("the node that hung still has a vote for %s", info.Holder.Owner)
			}
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

// What a node was asked for while it hung is released there when it goes on.
func TestVoteOfAHungNodeIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 3)
		c, links := client(t, stores)
		links[2].stop()
		lease := mustLock(t, c, "k") // its Try waits in the node
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		links[2].cont()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := votes(t, stores, "k", lease.Owner()); n != 0 {
			t.Errorf("%d votes are left of a lease that was released", n)
		}
	})
}

// Without a majority the error names the nodes, soon, and all is well soon after
// they are back.
func TestTooFewNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := newStores(t, 5)
		c, links := client(t, stores)
		if err := mustLock(t, c, "k").Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the last node has heard of it, and refuses nobody
		links[0].fail(errAway)
		links[2].fail(errAway)
		links[4].stop()
		begun := time.Now()
		_, err := c.Mutex("k", nil).TryLock(t.Context())
		if took := time.Since(begun); took > 50*time.Millisecond {
			t.Errorf("the error came after %v", took)
		}
		var e *hasp.Error
		if !errors.As(err, &e) || e.Class != hasp.ClassUnreachable {
			t.Fatalf("TryLock: %v, want an error of class Unreachable", err)
		}
		const want = "too few nodes vote (2 of 5, and it takes 3): node 1, node 3: connection refused; node 5: it does not answer"
		if !strings.HasSuffix(err.Error(), want) {
			t.Errorf("the error is\n%v\nand should end with\n%s", err, want)
		}
		links[0].fail(nil)
		links[2].fail(nil)
		links[4].cont()
		begun = time.Now()
		lease := mustLock(t, c, "k")
		if took := time.Since(begun); took > time.Second {
			t.Errorf("the nodes are back, and a lock took %v", took)
		}
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
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
					if err != nil || waited < nodeMaxTTL+10*time.Second {
						t.Fatalf("node %d votes %v after its restart (%v)", i, waited, err)
					}
					break
				}
				if res := mustTry(t, s, ask("k")); res.Granted || res.Why != driver.NotVoting {
					t.Fatalf("a node that restarted: %+v", res)
				}
				if waited > 2*nodeMaxTTL {
					t.Fatalf("node %d is not admitted", i)
				}
				time.Sleep(time.Second)
			}
			time.Sleep(nodeMaxTTL) // for the next renewals
			if n := votes(t, stores, "k", lease.Owner()); n != 5 {
				t.Fatalf("after the restart of node %d the lease has %d votes", i, n)
			}
			if _, err := other.Mutex("k", nil).TryLock(t.Context()); !errors.Is(err, hasp.ErrHeld) {
				t.Fatalf("another client: %v, want ErrHeld", err)
			}
		}
		if err := lease.Err(); err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := votes(t, stores, "k", lease.Owner()); n != 0 {
			t.Errorf("%d votes are left", n)
		}
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
		if !errors.Is(err, driver.ErrNotVoting) || !strings.Contains(err.Error(), "held back") {
			t.Fatalf("TryLock: %v, want one that says that nodes are held back", err)
		}
		<-lease.Done()
		if err := lease.Err(); !errors.Is(err, hasp.ErrLost) {
			t.Errorf("the lease: %v, want ErrLost", err)
		}
		lost := time.Now()
		var next *hasp.Lease
		for next == nil {
			next, err = other.Mutex("k", nil).TryLock(t.Context())
			if time.Since(lost) > 2*nodeMaxTTL {
				t.Fatalf("no node is admitted: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if next.Fence() <= lease.Fence() {
			t.Errorf("the fence is %d after %d", next.Fence(), lease.Fence())
		}
		if err := next.Release(); err != nil {
			t.Error(err)
		}
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
		if err := c.Admit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := mustLock(t, c, "k").Release(); err != nil {
			t.Fatal(err)
		}
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
				if err := mustLock(t, c, "other").Release(); err != nil {
					t.Fatal(err)
				}
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
			if took := time.Since(back); took > 2*time.Second {
				t.Errorf("all nodes are back, and the lock took %v", took)
			}
			if err := lease.Release(); err != nil {
				t.Error(err)
			}
		}
	})
}
