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
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
)

// heardAll makes all nodes known, with short round trips.
func heardAll(d *Driver) {
	for _, n := range d.nodes {
		n.hears()
	}
}

// How long nodes may be silent is what the slowest needs of those that are asked.
func TestFanoutHeedsTheNodesItAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		heardAll(d)
		d.nodes[2].trip.ns.Store(int64(20 * time.Millisecond))
		ttl := 10 * time.Second
		for set, want := range map[ballot.Set]time.Duration{setOf(0, 1): d.timeout(ttl), setOf(0, 2): 80 * time.Millisecond} {
			f := d.fanout(t.Context(), set, ttl, 0, nil)
			failIf(t, f.limit != want, "nodes %b: %v, want %v", set, f.limit, want)
			f.cancel()
		}
	})
}

// A node that says nothing for a node time-out is given up; one that answers others is
// waited for, to a bound that the caller sets. When the look comes late, the process stood
// still, and nobody is given up.
func TestWhoIsGivenUp(t *testing.T) {
	const ttl = 10 * time.Second
	for name, c := range map[string]struct {
		most    time.Duration
		looksAt func(limit time.Duration) time.Duration
		heard   time.Duration // before the look; 0: never since it began
		silent  bool
	}{
		"before its time":                 {0, func(l time.Duration) time.Duration { return l - 1 }, 0, false},
		"silent":                          {0, func(l time.Duration) time.Duration { return l }, 0, true},
		"the look is a bit late":          {0, func(l time.Duration) time.Duration { return l + l/2 }, 0, true},
		"the look is late":                {0, func(l time.Duration) time.Duration { return l + l/2 + 1 }, 0, false},
		"busy":                            {0, func(l time.Duration) time.Duration { return l }, time.Millisecond, false},
		"busy, with a bound":              {time.Second, func(l time.Duration) time.Duration { return l }, time.Millisecond, false},
		"busy, for longer than the bound": {20 * time.Millisecond, func(l time.Duration) time.Duration { return l }, time.Millisecond, true},
		"busy, for as long as the bound":  {maxTimeout, func(l time.Duration) time.Duration { return l }, time.Millisecond, true},
	} {
		bubbled(t, name, func(t *testing.T) {
			d, all := stubs(t)
			all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
			heardAll(d)
			time.Sleep(time.Second)
			told := 0
			f := d.fanout(t.Context(), setOf(1), ttl, c.most, func(*node) { told++ })
			defer f.cancel()
			f.timer.Stop()
			stopIf(t, f.limit != maxTimeout, "the node time-out is %v", f.limit)
			time.Sleep(c.looksAt(f.limit) - c.heard)
			if c.heard > 0 {
				d.nodes[1].hears()
				time.Sleep(c.heard)
			}
			f.look()
			f.timer.Stop()
			if silent := f.waits == 0; silent != c.silent || (told == 1) != c.silent || (d.nodes[1].why() != nil) != (c.silent && c.heard == 0) {
				t.Errorf("given up: %v, told %d times, out of service: %v", silent, told, d.nodes[1].why())
			}
		})
	}
}

// A request that nobody waits for any longer gives up its nodes at once, and says nothing
// of them.
func TestEndedRequestGivesUpItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		heardAll(d)
		ctx, cancel := context.WithCancel(t.Context())
		told := 0
		f := d.fanout(ctx, setOf(0, 2), 10*time.Second, 0, func(*node) { told++ })
		cancel()
		f.look()
		if f.waits != 0 || told != 2 || !d.nodes[0].serving() || !d.nodes[2].serving() {
			t.Errorf("waits for %b, told of %d", f.waits, told)
		}
	})
}

// Who answers while others are given up is not given up.
func TestAnswerComesBeforeItsNodeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		heardAll(d)
		var told []*node
		var f *fanout
		f = d.fanout(t.Context(), setOf(0, 1), 10*time.Second, 0, func(n *node) {
			told = append(told, n)
			failIf(t, !f.over(d.nodes[1]) || f.over(d.nodes[1]), "a node answers once")
		})
		f.timer.Stop()
		time.Sleep(f.limit)
		f.look()
		failIf(t, len(told) != 1 || told[0] != d.nodes[0], "%d nodes are given up, want the first", len(told))
	})
}

// What the end of a request says of its node: an answer, also that somebody else holds the
// key, is one; an error counts while the request is waited for.
func TestEndOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		ended   bool // nobody waits for it any longer
		answers int64
		out     bool
	}{
		"an answer":             {nil, false, 1, false},
		"not held":              {driver.ErrNotHeld, false, 1, false},
		"an error":              {errGone, false, 0, true},
		"an error, too late":    {errGone, true, 0, false},
		"an answer, even later": {nil, true, 1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			for how, ends := range map[string]func(f *fanout, n *node){
				"ended": func(f *fanout, n *node) { f.ended(n, c.err) },
				"hears": func(f *fanout, n *node) { f.hears(n, c.err) },
			} {
				d, all := stubs(t)
				all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
				n := d.nodes[1]
				f := d.fanout(t.Context(), setOf(0, 1), 10*time.Second, 0, nil)
				if c.ended {
					f.cancel()
				}
				ends(f, n)
				answers := n.trip.count.Load()
				if how == "hears" { // an answer of many is no round trip
					answers = c.answers
				}
				heard := n.lastHeard() != never
				if answers != c.answers || heard != (c.answers > 0) || n.serving() == c.out {
					t.Errorf("%s, %s: %d answers, heard %v, out of service: %v", name, how, answers, heard, n.why())
				}
				f.cancel()
				_ = d.Close()
			}
		})
	}
}

// A node that says that it does not vote is out of service at once.
func TestNodeThatDoesNotVoteLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, voting.ErrNotVoting }
		f := d.fanout(t.Context(), setOf(0, 1), 10*time.Second, 0, nil)
		f.hears(d.nodes[1], voting.ErrNotVoting)
		failIf(t, !errors.Is(d.nodes[1].why(), voting.ErrNotVoting), "out of service: %v", d.nodes[1].why())
		f.cancel()
	})
}

// A process that adopted a lease, and has not heard its nodes before, converts it: the
// queue node is asked no more than the others.
func TestConvertByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		w := asks("k")
		fence := granted(t, d, w).Fence
		synctest.Wait()
		queue := nodes[d.queue.Load().index]
		gone := w
		gone.Settled = true
		need(t, contend.Release(t.Context(), queue.Store, gone))
		queue.Hold("k", ruleTTL, driver.Label{})
		convert, _ := converting(w, fence)
		granted(t, over(t, nodes, nil), convert) // two of three nodes converted it
	})
}

// describer is a node that takes its time to describe a key.
type describer struct{ *spy }

func (d *describer) Inspect(ctx context.Context, key string) (driver.Info, error) {
	select {
	case <-time.After(lookLimit - time.Millisecond):
	case <-ctx.Done():
		return driver.Info{}, ctx.Err()
	}
	return d.spy.Inspect(ctx, key)
}

// A node may take longer to describe a key than to vote, and stays in service.
func TestSlowInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := spies(t, 3)
		d := New([]voting.Node{&describer{nodes[0]}, &describer{nodes[1]}, &describer{nodes[2]}}, nil)
		defer d.Close()
		granted(t, d, asks("k"))
		synctest.Wait()
		info, err := d.Inspect(t.Context(), "k")
		failIf(t, err != nil || !info.Held, "%+v, %v, want the holder", info, err)
		for _, n := range d.nodes {
			if !n.serving() {
				t.Error(n.name, "is out of service")
			}
		}
	})
}

// A refusal does not wait for the place to go that the owner had on another queue node.
func TestRefusalDoesNotWaitForTheOldPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		granted(t, d, asks("k"))
		synctest.Wait() // or the waiter may have the third vote
		w := asks("k")
		w.Queue = true
		refused(t, d, w)
		synctest.Wait()
		old := d.queue.Load()
		nodes[old.index].onRelease(func(voting.WithdrawRequest) error { time.Sleep(minTimeout / 2); return nil })
		old.readOnly.Store(true)
		d.route()
		begun := time.Now()
		refused(t, d, w)
		failIf(t, time.Since(begun) > 0, "the refusal came after %v", time.Since(begun))
		time.Sleep(time.Minute)
	})
}

// A Try ends when its nodes are given up, also where that is after the time that it gives most of them.
func TestTryEndsWithItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		heardAll(d)
		for i, s := range all {
			d.nodes[i].trip.ns.Store(int64(maxTimeout))
			s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
				return driver.Result{}, hangs(ctx, r)
			}
		}
		if res, err := contend.Try(t.Context(), d, asks("k")); err == nil {
			t.Errorf("%+v, of nodes that say nothing", res)
		}
	})
}
