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
)

// waiterAt is an owner that waits at node 0, the queue node, for a key that another holds
// there, and a watch of it that nothing else looks after.
func waiterAt(t *testing.T, d *Driver, mode driver.Mode) *watch {
	t.Helper()
	holder, r := asks("k"), asks("k")
	granted(t, d, holder)
	r.Queue, r.Mode = true, mode
	refused(t, d, r)
	synctest.Wait()
	w := &watch{d: d, ctx: t.Context(), claim: r.Claim(), out: make(chan driver.Hint, 1)}
	o := d.owners.get(w.claim)
	stopIf(t, o == nil || !o.inQueue() || d.queue.Load() != d.nodes[0], "it does not wait at node 0")
	return w
}

// told says whether a watch was told something.
func (w *watch) told() bool { return hinted(w.out) }

// A waiter is told when its place is gone, or at the moment that its node names, when that
// comes before the next look.
func TestLookAtAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		said  driver.Renewal
		after time.Duration // it is told; negative: not at all
	}{
		"its place is gone":        {driver.Renewal{Err: driver.ErrNotHeld}, 0},
		"an error":                 {driver.Renewal{Err: errDenied}, -1},
		"it will be told":          {driver.Renewal{}, -1},
		"it is to ask soon":        {driver.Renewal{RetryIn: time.Millisecond}, time.Millisecond},
		"it is to ask at the next": {driver.Renewal{RetryIn: lookPause}, lookPause},
		"it is to ask after that":  {driver.Renewal{RetryIn: lookPause + 1}, -1},
	} {
		bubbled(t, name, func(t *testing.T) {
			d, all := stubs(t)
			w := waiterAt(t, d, driver.Exclusive)
			all[0].renew = func(context.Context, driver.RenewRequest) driver.Renewal { return c.said }
			w.look()
			if c.after > 0 {
				time.Sleep(c.after - 1)
				failIf(t, w.told(), "told too early")
				time.Sleep(time.Nanosecond)
			}
			failIf(t, w.told() != (c.after >= 0), "told %v later: %v", max(c.after, 0), c.after < 0)
			if time.Sleep(time.Second); w.told() {
				t.Error("told once more")
			}
		})
	}
}

// Who has no place is not looked after: it knows when to ask.
func TestNobodyLooksForWhoDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		holder, r := asks("k"), asks("k")
		granted(t, d, holder)
		refused(t, d, r)
		synctest.Wait()
		before := all[0].renews.Load()
		for _, claim := range []driver.Claim{holder.Claim(), r.Claim(), asks("k").Claim()} { // the last never asked
			w := &watch{d: d, ctx: t.Context(), claim: claim, out: make(chan driver.Hint, 1)}
			for _, s := range all {
				s.inspects.Store(0)
			}
			w.look()
			w.glance(0)
			if w.told() || all[0].renews.Load() != before || all[1].inspects.Load()+all[2].inspects.Load() > 0 {
				t.Error("a node is asked for it, or it is told")
			}
		}
	})
}

// A glance is at one of the other nodes in service, each in its turn.
func TestWhereToGlance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		w := waiterAt(t, d, driver.Exclusive)
		counts := func() [3]int64 {
			return [3]int64{all[0].inspects.Load(), all[1].inspects.Load(), all[2].inspects.Load()}
		}
		glances := func(want [3]int64) {
			t.Helper()
			before := counts()
			for turn := range 4 {
				w.glance(turn)
			}
			after := counts()
			for i := range after {
				after[i] -= before[i]
			}
			failIf(t, after != want, "the nodes are asked %v times, want %v", after, want)
		}
		glances([3]int64{0, 2, 2})
		d.nodes[1].setOut(errGone)
		glances([3]int64{0, 0, 4})
		d.nodes[2].setOut(errGone)
		glances([3]int64{0, 0, 0})
	})
}

// Where a release did not reach the queue node and others, fewer than half in all, every
// glance asks a node that knows of it.
func TestGlanceFindsAMajorityThatKnows(t *testing.T) {
	for _, n := range []int{3, 5, 7} {
		synctest.Test(t, func(t *testing.T) {
			d, all := manyStubs(t, n)
			w := waiterAt(t, d, driver.Exclusive)
			for turn := range n {
				for i, s := range all[1:] {
					info := holding()
					if (i+turn)%(n-1) < n/2-1 {
						info = holding(lease("A", driver.Exclusive, 1))
					}
					s.inspect = func(context.Context, string) (driver.Info, error) { return *info, nil }
				}
				if w.glance(0); !w.told() {
					t.Errorf("%d nodes: not told", n)
				}
			}
		})
	}
}

// What a waiter is told by a glance: that nobody has the key elsewhere; and who reads, that
// the queue node alone knows of one that writes. Otherwise it has to wait.
func TestWhatAGlanceTells(t *testing.T) {
	const w, r = driver.Exclusive, driver.Shared
	is := func(i *driver.Info) func(context.Context, string) (driver.Info, error) {
		return func(context.Context, string) (driver.Info, error) { return *i, nil }
	}
	fails := func(context.Context, string) (driver.Info, error) {
		return *holding(lease("A", w, 1)), errDenied // what comes with an error says nothing
	}
	failsFree := func(context.Context, string) (driver.Info, error) { return driver.Info{}, errDenied }
	freeA := holding(lease("A", w, 1))
	freeA.Held = false
	type inspect = func(context.Context, string) (driver.Info, error)
	for name, c := range map[string]struct {
		mode          driver.Mode
		queue, others inspect
		told          bool
	}{
		"free elsewhere":                         {w, is(holding(lease("A", w, 1))), is(holding()), true},
		"held elsewhere":                         {w, is(holding(lease("A", w, 1))), is(holding(lease("A", w, 1))), false},
		"the other fails":                        {w, is(holding(lease("A", w, 1))), failsFree, false},
		"shared elsewhere, by whom it waits for": {r, is(holding(lease("A", w, 1))), is(holding(lease("A", r, 1), lease("B", r, 2))), true},
		"the second of those who share":          {r, is(holding(lease("B", w, 1))), is(holding(lease("A", r, 1), lease("B", r, 2))), true},
		"shared, but it wants to write":          {w, is(holding(lease("A", w, 1))), is(holding(lease("A", r, 1))), false},
		"not shared elsewhere":                   {r, is(holding(lease("A", w, 1))), is(holding(lease("A", w, 1))), false},
		"shared by others, who are not there":    {r, is(holding(lease("C", w, 1))), is(holding(lease("A", r, 1))), true},
		"shared at the queue node, too":          {r, is(holding(lease("A", r, 1))), is(holding(lease("A", r, 1))), false},
		"not held at the queue node":             {r, is(freeA), is(holding(lease("A", r, 1))), false},
		"the queue node fails":                   {r, fails, is(holding(lease("A", r, 1))), false},
	} {
		bubbled(t, name, func(t *testing.T) {
			d, all := stubs(t)
			one := waiterAt(t, d, c.mode)
			all[0].inspect = c.queue
			all[1].inspect, all[2].inspect = c.others, c.others
			one.glance(0)
			failIf(t, one.told() != c.told, "told: %v, want %v", !c.told, c.told)
		})
	}
}

// A place that stayed behind when the queue moved may be handed the key. Its owner listens
// where the queue is, so a glance tells it; and every other waiter of this process.
func TestGlanceAtALeftPlaceThatWasHandedTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		w := waiterAt(t, d, driver.Exclusive)
		second, third := *w, *w
		second.claim, second.out = asks("k").Claim(), make(chan driver.Hint, 1)
		third.claim, third.out = asks("k").Claim(), make(chan driver.Hint, 1)
		d.waiters["k"] = []*watch{w, &second, &third}
		for _, handed := range []*watch{w, &second} {
			all[1].inspect = func(context.Context, string) (driver.Info, error) {
				return *holding(lease(handed.claim.Owner, driver.Exclusive, 0)), nil
			}
			w.glance(0)
			for name, one := range map[string]*watch{"the first": w, "the second": &second, "the third": &third} {
				failIf(t, one.told() != (one == handed), "%s waiter told: %v", name, one != handed)
			}
		}
	})
}

// Without a queue node a glance is at the others all the same.
func TestGlanceWithoutAQueueNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		w := waiterAt(t, d, driver.Shared)
		d.queue.Store(nil)
		shared := func(context.Context, string) (driver.Info, error) { return *holding(lease("A", driver.Shared, 1)), nil }
		for _, s := range all {
			s.inspect = shared
		}
		if w.glance(0); w.told() {
			t.Error("told, and nobody knows of a writer")
		}
	})
}

// A place is kept where the queue is. Who has none there must ask, and joins it.
func TestWhosePlaceIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		w := waiterAt(t, d, driver.Exclusive)
		other := asks("another")
		granted(t, d, other)
		synctest.Wait()
		keep := func(c driver.Claim) (res driver.Renewal) {
			d.keepPlaces(t.Context(), []driver.RenewRequest{{Claim: c, TTL: ruleTTL, Queue: true, Patience: ruleTTL}}, []int{0},
				func(_ int, r driver.Renewal) { res = r })
			return res
		}
		if res := keep(w.claim); res.Err != nil {
			t.Errorf("its place: %v", res.Err)
		}
		if res := keep(other.Claim()); !errors.Is(res.Err, driver.ErrNotHeld) {
			t.Errorf("no place: %v", res.Err)
		}
		if res := keep(asks("k").Claim()); !errors.Is(res.Err, driver.ErrNotHeld) {
			t.Errorf("never asked: %v", res.Err)
		}
		before := all[0].renews.Load()
		queueAt(d, 2)
		if res := keep(w.claim); !errors.Is(res.Err, driver.ErrNotHeld) || all[0].renews.Load() != before {
			t.Errorf("the queue moved: %v", res.Err)
		}
	})
}

// An owner is in the queue while it has a place there, and not with the vote that it
// reserves in place of it.
func TestWhoIsInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		w := waiterAt(t, d, driver.Exclusive)
		failIf(t, !d.owners.get(w.claim).inQueue(), "who waits is not in the queue")
		for _, s := range all[1:] {
			s.Hold("other", ruleTTL, driver.Label{})
		}
		r := asks("other")
		r.Queue = true
		refused(t, d, r)
		o := d.owners.get(r.Claim())
		if place, reserved := o.Place(); place != 0 || !reserved || o.inQueue() {
			t.Errorf("place %d, reserved %v, in the queue: %v", place, reserved, o.inQueue())
		}
		failIf(t, d.owners.open(d, asks("new").Claim()).inQueue(), "who never asked is in the queue")
	})
}
