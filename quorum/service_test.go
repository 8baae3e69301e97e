// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// What is usual is known once there are enough round trips: the first ones open
// connections. Now and then it is looked whether another node is the better queue node.
func TestUsualRoundTrip(t *testing.T) {
	var trip roundTrip
	for i := int64(1); i < enough; i++ {
		look := trip.sample(1000)
		stopIf(t, look || trip.usual.Load() != 0, "after %d: look %v, usual %d", i, look, trip.usual.Load())
	}
	if trip.sample(160); trip.usual.Load() != 160 {
		t.Errorf("the first that is usual: %d, want 160", trip.usual.Load())
	}
	if trip.sample(320); trip.usual.Load() != 170 {
		t.Errorf("the next: %d, want 170", trip.usual.Load())
	}
	for i := int64(enough + 2); i <= 16*enough; i++ {
		look := trip.sample(160)
		failIf(t, look != (i == 8*enough || i == 16*enough), "after %d: look %v", i, look)
	}
}

// The queue does not move with each answer, but when it is time to look.
func TestQueueMovesNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		queueAt(d, 0)
		d.nodes[0].trip.usual.Store(int64(time.Second))
		other := d.nodes[1]
		other.trip.count.Store(8*enough - 2)
		if other.answered(d.now()); d.queueIndex() != 0 {
			t.Error("it moved before its time")
		}
		if other.answered(d.now()); d.queueIndex() != 1 {
			t.Error("it stays at a slow node")
		}
	})
}

// What an error says of a node. One that is silent, or cannot be reached, is out of service,
// unless it said something since, and not long ago: then it is only busy.
func TestFailedRequest(t *testing.T) {
	const begun = 9 * time.Second // and it is 10 s now
	busy := 10*time.Second - minTimeout
	for name, c := range map[string]struct {
		err   error
		heard time.Duration
		out   error
	}{
		"silent":                             {context.DeadlineExceeded, never, errSilent},
		"given up":                           {fmt.Errorf("vote: %w", context.Canceled), never, errSilent},
		"unreachable":                        {errGone, never, errGone},
		"another error is an answer":         {errDenied, never, nil},
		"silent, heard just now":             {context.DeadlineExceeded, busy + 1, nil},
		"silent, heard long enough ago":      {context.DeadlineExceeded, busy, errSilent},
		"unreachable, heard just now":        {errGone, busy + 1, nil},
		"unreachable, heard before it began": {errGone, begun - 1, errGone},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
			time.Sleep(10 * time.Second)
			n := d.nodes[1]
			n.heard.Store(int64(c.heard))
			from := begun
			if c.heard >= busy {
				from = busy
			}
			n.failed(from, c.err)
			if got := n.why(); !errors.Is(got, c.out) || (got != nil) != (c.out != nil) {
				t.Errorf("%s: out of service: %v, want %v", name, got, c.out)
			}
			failIf(t, c.err == errDenied && n.lastHeard() != d.now(), "%s: it was not heard", name)
		})
	}
}

// A node that was slow, and was heard before the request began, is not busy with others.
func TestSlowNodeIsNotBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
		time.Sleep(time.Second)
		n := d.nodes[1]
		n.trip.ns.Store(int64(500 * time.Millisecond))
		n.heard.Store(int64(700 * time.Millisecond))
		if n.failed(800*time.Millisecond, errGone); n.serving() {
			t.Error("it is in service, and said nothing since it was asked")
		}
	})
}

// Why a node is out of service, and if it is held back, for how long as of now.
func TestTroubleOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		n := d.nodes[0]
		check(t, n.trouble())
		n.setOut(errGone)
		if n.wait = (wait{time.Minute, time.Now()}); n.trouble() != errGone {
			t.Error(n.trouble())
		}
		n.setOut(heldFor(3 * time.Second))
		if time.Sleep(10 * time.Second); leftOf(n.trouble()) != 50*time.Second {
			t.Errorf("%v, want 50 s left", n.trouble())
		}
		if n.wait = (wait{}); leftOf(n.trouble()) != 3*time.Second {
			t.Errorf("%v, want what the node said", n.trouble())
		}
	})
}

// The queue is at the first node by name that is in service, answers as fast as the others,
// about, and writes; or at one that does not write, if none does.
func TestWhereTheQueueIs(t *testing.T) {
	const ms = int64(time.Millisecond)
	slack := int64(minTimeout / 4)
	for name, c := range map[string]struct {
		usual    [3]int64
		out      [3]bool
		readOnly [3]bool
		want     int
	}{
		"the first":            {want: 0},
		"the first in service": {out: [3]bool{true}, want: 1},
		"none in service":      {out: [3]bool{true, true, true}, want: -1},
		"one that writes":      {readOnly: [3]bool{true}, want: 1},
		"one that writes, after one that does not": {readOnly: [3]bool{false, true, false}, want: 0},
		"none writes":                  {readOnly: [3]bool{true, true, true}, want: 0},
		"as slow as it may be":         {usual: [3]int64{slow*ms + slack, ms, ms}, want: 0},
		"slower than that":             {usual: [3]int64{slow*ms + slack + 1, ms, ms}, want: 1},
		"one out of service is faster": {usual: [3]int64{100 * ms, 100 * ms, ms}, out: [3]bool{2: true}, want: 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, _ := stubs(t)
			for i, n := range d.nodes {
				n.trip.usual.Store(c.usual[i])
				n.readOnly.Store(c.readOnly[i])
				if c.out[i] {
					n.out = errGone
				}
			}
			for _, first := range []int{0, 2} { // by name, which their order says nothing of
				at := func(i int) int { return i }
				if first == 2 && !c.out[2] && !c.readOnly[2] && c.usual == [3]int64{} {
					at = func(int) int { return 2 }
				}
				want := c.want
				if first == 2 && want >= 0 {
					want = at(want)
				}
				if queueAt(d, first); first == 0 && d.queueIndex() != c.want || first == 2 && at(0) == 2 && d.queueIndex() != want {
					t.Errorf("%s, node %d by name: the queue is at %d", name, first, d.queueIndex())
				}
			}
		})
	}
}

// A node that does not write has the queue after all that do, whatever their names are, and
// in whatever order they are listed.
func TestQueueIsWhereANodeWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		d.nodes[2].readOnly.Store(true)
		if queueAt(d, 2); d.queueIndex() != 0 {
			t.Errorf("the queue is at %d, want 0", d.queueIndex())
		}
	})
}

// Who waits is told when the queue moves, and only then.
func TestMoveOfTheQueueIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		queueAt(d, 0)
		_, moved := d.queueNode()
		moves := func() bool {
			select {
			case <-moved:
				return true
			default:
				return false
			}
		}
		if d.route(); moves() {
			t.Error("told, and it is where it was")
		}
		if queueAt(d, 1); !moves() {
			t.Error("not told that it moved")
		}
	})
}

// What an owner keeps: nothing once it is blank, or over, unless a Try of it is under way,
// or it is another one by now.
func TestWhichOwnersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		over := func(o *owner, _ driver.Claim) {
			o.Release(driver.ReleaseRequest{Claim: driver.Claim{Key: o.id.Key}, TTL: ruleTTL}, -1)
			o.each(func(i int) { o.Withdrawn(i, 0) })
		}
		for name, c := range map[string]struct {
			make         func(o *owner, c driver.Claim)
			blank, ended bool
		}{
			"blank":                {func(*owner, driver.Claim) {}, true, false},
			"released":             {over, true, true},
			"with a Try under way": {func(o *owner, c driver.Claim) { over(o, c); o.turn <- struct{}{} }, false, false},
			"which has something":  {func(o *owner, c driver.Claim) { o.Renewing(driver.RenewRequest{Fence: 7, TTL: ruleTTL}, 0) }, false, false},
			"which is another now": {func(o *owner, c driver.Claim) {
				over(o, c)
				d.owners.drop(o.id)
				d.owners.open(d, c)
			}, false, false},
		} {
			for how, drop := range map[string]func(*owner){"blank": d.owners.dropIfBlank, "over": d.owners.dropIfOver} {
				claim := asks(name + how).Claim()
				o := d.owners.open(d, claim)
				c.make(o, claim)
				drop(o)
				want := c.blank
				if how == "over" {
					want = c.ended
				}
				gone := d.owners.get(claim) == nil
				failIf(t, gone != want, "an owner %s, if it is %s: dropped %v", name, how, gone)
			}
		}
	})
}

// each calls f for all nodes of an owner's ballot.
func (o *owner) each(f func(node int)) {
	for i := range 3 {
		f(i)
	}
}

// Those that vanished are dropped when there are many, and nobody else is.
func TestVanishedOwnersAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		d.owners.open(d, asks("first").Claim()) // which looks for them
		adopt := func(key string, ttl time.Duration) driver.Claim {
			claim := asks(key).Claim()
			d.renewedOwner(driver.RenewRequest{Claim: claim, Fence: 7, TTL: ttl})
			return claim
		}
		stays := adopt("stays", time.Hour)
		for d.live() < 1024 {
			adopt("vanishes", time.Second)
		}
		time.Sleep(10 * time.Second)
		d.owners.open(d, asks("last").Claim())
		if n := d.live(); n != 3 || d.owners.get(stays) == nil {
			t.Errorf("%d owners are left, want the first, the last, and the one that stays", n)
		}
	})
}
