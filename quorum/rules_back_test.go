// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
)

// An owner whose larger proposal was given back, and who asks for less since, has
// the key in one Try, also where a majority needs the node that gave it back.
func TestLessThanWasGivenBackIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[2].on(func(driver.VoteRequest) error { return driver.ErrUnsupported })
		time.Sleep(10 * time.Second) // nodes grant no fence below the clock's when they began
		r := asks("k")
		var given uint64
		nodes[1].onRelease(func(w driver.WithdrawRequest) error { // is withdrawn for ever
			if w.Owner == r.Owner {
				given = max(given, w.UpTo)
			}
			return nil
		})
		nodes[0].Hold("k", ruleTTL, driver.Label{})
		d.clock.saw(uint64(time.Now().Add(driver.MaxFenceSkew / 4).UnixMicro()))
		refused(t, d, r)
		synctest.Wait()
		if given == 0 {
			t.Fatal("nothing was withdrawn")
		}
		nodes[0].Lose("k")
		d.clock.last.Store(0) // it asks for less
		if res := granted(t, d, r); res.Fence <= given {
			t.Errorf("the fence is %d, and a release takes what is up to %d", res.Fence, given)
		}
	})
}

// Who has the vote of its queue node, and meets another holder at a node that comes
// before it, gives it back: the other sees another queue node, and both would wait.
func TestTwoLineNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[0].Hold("k", ruleTTL, driver.Label{})
		nodes[2].Hold("k", ruleTTL, driver.Label{})
		d.queue.Store(d.nodes[1]) // the first one was away just now
		r := asks("k")
		r.Queue = true
		refused(t, d, r)
		synctest.Wait()
		if owner, _ := nodes[1].holder(t, "k"); owner != "" {
			t.Errorf("its queue node has the vote of %q", owner)
		}
	})
}

// A place in the queue is given up when the queue moves.
func TestOldPlaceIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		for _, n := range nodes {
			n.Hold("k", ruleTTL, driver.Label{})
		}
		r := asks("k")
		r.Queue = true
		refused(t, d, r)
		d.queue.Store(d.nodes[1])
		refused(t, d, r)
		synctest.Wait()
		for i, want := range []int{0, 1, 0} {
			info, err := nodes[i].Inspect(t.Context(), "k")
			if err != nil || len(info.Queue) != want {
				t.Errorf("node %d has %d in the queue, %v; want %d", i, len(info.Queue), err, want)
			}
		}
	})
}

// A node where a Try had no answer remembers the owner that is released.
func TestReleaseIsUnsettledWhereATryIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[2].on(func(r driver.VoteRequest) error {
			if r.Key == "k" {
				return context.DeadlineExceeded // and the request goes on
			}
			return nil
		})
		r := asks("k")
		granted(t, d, r)
		synctest.Wait()
		time.Sleep(time.Second) // and it is in service again
		r.Settled = true
		if err := contend.Release(t.Context(), d, r); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for i, settled := range []bool{true, true, false} {
			nodes[i].mu.Lock()
			last := nodes[i].releases[len(nodes[i].releases)-1]
			nodes[i].mu.Unlock()
			if last.Owner != r.Owner || last.Settled != settled {
				t.Errorf("node %d: the release says settled: %v, want %v", i, last.Settled, settled)
			}
		}
	})
}

// Every owner that was released while a node was away is released there when it
// is back.
func TestDebtsOfAllOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		var rs []contend.Owner
		for _, key := range []string{"a", "b", "c"} {
			r := asks(key)
			granted(t, d, r)
			rs = append(rs, r)
		}
		synctest.Wait()
		nodes[2].SetUnreachable(true)
		for _, r := range rs {
			if err := contend.Release(t.Context(), d, r); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		nodes[2].SetUnreachable(false)
		time.Sleep(5 * time.Second)
		for _, r := range rs {
			if owner, _ := nodes[2].holder(t, r.Key); owner != "" {
				t.Errorf("%q is still held at the node that was away", r.Key)
			}
		}
	})
}

// Of an owner that was refused and never asks again nothing stays, not even where
// its Try arrived after everybody had given it up.
func TestOwnerThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[0].Hold("k", ruleTTL, driver.Label{})
		nodes[1].Hold("k", ruleTTL, driver.Label{})
		r := asks("k")
		nodes[2].on(func(got driver.VoteRequest) error {
			if got.Owner == r.Owner {
				time.AfterFunc(time.Second, func() { _, _ = nodes[2].Store.Vote(context.Background(), got) })
				return context.DeadlineExceeded
			}
			return nil
		})
		refused(t, d, r)
		time.Sleep(comeBack/2 - time.Nanosecond)
		if owner, _ := nodes[2].holder(t, "k"); owner != r.Owner {
			t.Fatal("the Try did not arrive")
		}
		time.Sleep(10 * time.Second)
		if owner, _ := nodes[2].holder(t, "k"); owner != "" {
			t.Error("a Try that came late keeps a node")
		}
	})
}

// When a look at the time comes late, it is this process that stood still: the
// answers may be there, unread.
func TestProcessThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := spies(t, 3)
		gone := 0
		f := d.fanout(d.life, ballot.All(3), ruleTTL, 0, func(*node) { gone++ })
		defer f.cancel()
		time.Sleep(f.limit - 1) // nobody has answered
		f.mu.Lock()
		f.timer.Stop()
		f.mu.Unlock()
		time.Sleep(time.Minute)
		f.look()
		for _, n := range d.nodes {
			if !n.serving() {
				t.Error("a node is out of service for what the process slept")
			}
		}
		time.Sleep(2 * f.limit) // and now nothing more was to read
		synctest.Wait()
		if gone != len(d.nodes) || f.ctx.Err() == nil {
			t.Errorf("%d silent nodes of %d are given up", gone, len(d.nodes))
		}
	})
}

// A node is admitted after the longest lease that anybody may have had there: a
// client learns from the nodes that vote what others were allowed.
func TestWaitIsThatOfTheLongestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 5)
		allow := func(ttl time.Duration, some ...*spy) {
			for _, n := range some {
				n.Restart(nil)
				rec, err := n.Record(t.Context())
				if err := errors.Join(err, n.Admit(t.Context(), rec, ttl)); err != nil {
					t.Fatal(err)
				}
			}
		}
		allow(time.Minute, nodes[0])
		if longest, err := d.agreed(d.nodes[4]); err != nil || longest != time.Minute {
			t.Errorf("%v, %v, want the minute of one node", longest, err)
		}
		allow(time.Minute, nodes[1], nodes[2])
		if _, err := d.agreed(d.nodes[4]); err == nil {
			t.Error("a majority allows a minute, and this client goes on with its own")
		}
	})
}
