// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// A key is abandoned when one node says so: of the majority that knew, the others
// may have forgotten, or be away.
func TestOneNodeKnowsThatAKeyIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		granted(t, over(t, nodes, nil), asks("k"))
		synctest.Wait()
		time.Sleep(2 * ruleTTL)
		nodes[0].restarted(t)
		nodes[1].restarted(t)
		r := asks("k")
		nodes[1].on(func(voting.VoteRequest) error { return errOnTheWay })
		for range 2 {
			failIf(t, !granted(t, d, r).Abandoned, "node 2 knows that nobody released it")
		}
		nodes[1].on(nil)
		granted(t, d, r)
		synctest.Wait()
		nodes[2].SetUnreachable(true)
		failIf(t, !granted(t, d, r).Abandoned, "asked again, it was not abandoned")
	})
}

// Whoever loses a round leaves the mark where it was.
func TestLosersLeaveTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		crashed := asks("k")
		granted(t, d, crashed)
		synctest.Wait()
		time.Sleep(2 * ruleTTL)
		var free []func()
		for _, n := range nodes[:2] {
			free = append(free, n.Hold("k", ruleTTL, driver.Label{}))
		}
		r := asks("k")
		refused(t, d, r)
		synctest.Wait()
		stopIf(t, len(nodes[2].asked("k")) == 0, "node 2 was not asked")
		direct := asks("k")
		direct.Fence = d.clock.next()
		failIf(t, !granted(t, nodes[2], direct).Abandoned, "a vote that was given back took the mark with it")
		for _, f := range free {
			f()
		}
	})
}

// Who is told that a key was abandoned takes that from all nodes that answer, and who
// does not finish leaves it on all of them, so that it is told once.
func TestAbandonedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := lags(t)
		granted(t, d, asks("warm"))
		var late, other *link // of those without the queue
		for i, n := range d.nodes {
			if n != d.queue.Load() {
				late, other = nodes[i], late
			}
		}
		turn := func(want bool, end driver.End) {
			t.Helper()
			r := asks("k")
			res := granted(t, d, r)
			failIf(t, res.Abandoned != want, "Abandoned is %v", res.Abandoned)
			synctest.Wait()
			r.End = end
			late.lags(10 * time.Millisecond)
			release(t, d, r)
			synctest.Wait()
			late.lags(time.Millisecond)
		}
		turn(false, driver.EndUnfinished)
		turn(true, driver.EndUnused)
		turn(true, driver.EndFinished)
		time.Sleep(time.Second)
		other.fail(errGone)
		turn(false, driver.EndFinished)
	})
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		gone := asks("k")
		granted(t, d, gone)
		synctest.Wait()
		gone.End = driver.EndUnfinished
		release(t, d, gone)
		nodes[2].on(func(voting.VoteRequest) error { // its Tries are overtaken by Releases
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		r := asks("k")
		failIf(t, !granted(t, d, r).Abandoned, "the one before did not finish")
		release(t, d, r)
		time.Sleep(time.Second)
		nodes[2].on(nil)
		nodes[1].on(func(voting.VoteRequest) error { return errOnTheWay })
		failIf(t, granted(t, d, asks("k")).Abandoned, "the one before did")
	})
}

// How a lease ended is said to each node; who had none was never at work.
func TestEndsReachTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		ends := func(r contend.Owner) (all []driver.End) {
			synctest.Wait()
			for _, n := range nodes {
				n.mu.Lock()
				for _, got := range n.releases {
					if got.Owner == r.Owner {
						all = append(all, got.End)
					}
				}
				n.mu.Unlock()
			}
			return all
		}
		r := asks("k")
		granted(t, d, r)
		r.End = driver.EndUnfinished
		release(t, d, r)
		if got := ends(r); len(got) < 3 || slices.Min(got) != driver.EndUnfinished {
			t.Errorf("%v", got)
		}
		held := asks("k")
		failIf(t, !granted(t, d, held).Abandoned, "the one before did not finish")
		w := asks("k")
		w.Queue = true
		refused(t, d, w)
		release(t, d, w)
		if got := ends(w); len(got) == 0 || slices.Contains(got, driver.EndFinished) {
			t.Errorf("a waiter's: %v", got)
		}
		forgot := asks("k")
		nodes[2].on(func(r voting.VoteRequest) error {
			if r.Owner == forgot.Owner {
				return errOnTheWay
			}
			return nil
		})
		refused(t, d, forgot) // and never asks again: node 2 may have its Try
		time.Sleep(2 * comeBack)
		if got := ends(forgot); len(got) == 0 || slices.Contains(got, driver.EndFinished) {
			t.Errorf("of one that did not come back: %v", got)
		}
		release(t, d, held)
		synctest.Wait()
		late := asks("k")
		nodes[2].loses(func(r voting.VoteRequest) error {
			time.Sleep(d.timeout(ruleTTL) / 2)
			return nil
		})
		granted(t, d, late)
		synctest.Wait()
		late.End = driver.EndUnfinished
		release(t, d, late)
		time.Sleep(time.Second)
		if got := ends(late); len(got) < 4 || slices.Min(got) != driver.EndUnfinished {
			t.Errorf("of one whose last vote came late: %v", got)
		}
	})
}
