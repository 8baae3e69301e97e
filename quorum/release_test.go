// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
)

// A Release that a majority did not answer says which nodes did not, and why.
func TestReleaseNamesTheNodesThatFailed(t *testing.T) {
	for name, third := range map[string]error{"one confirms": nil, "one has nothing": driver.ErrNotHeld} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			r := asks("k")
			granted(t, d, r)
			synctest.Wait()
			for i, err := range []error{errDenied, errFull, third} {
				all[i].withdraw = func(context.Context, voting.WithdrawRequest) error { return err }
			}
			err := contend.Release(t.Context(), d, r)
			e := (*VoteError)(nil)
			if !errors.As(err, &e) || !slices.Equal(e.Names, []string{"node 1", "node 2"}) || !errors.Is(err, errDenied) || !errors.Is(err, errFull) {
				t.Errorf("%s: %v, want the errors of nodes 1 and 2", name, err)
			}
		})
	}
}

// A release that could not be delivered is sent by one worker for each node, or a node that
// comes back would get each of them several times.
func TestOneWorkerCleansUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		goOn := make(chan struct{})
		var mu sync.Mutex
		sent := map[string]int{}
		all[1].withdraw = func(_ context.Context, r voting.WithdrawRequest) error {
			mu.Lock()
			sent[r.Key]++
			mu.Unlock()
			<-goOn
			return nil
		}
		for _, key := range []string{"a", "b", "c", "d"} {
			d.nodes[1].cleanUpLater(nil, asks(key).Withdrawal())
			synctest.Wait()
		}
		close(goOn)
		time.Sleep(time.Second)
		mu.Lock()
		defer mu.Unlock()
		failIf(t, sent["a"] != 1 || sent["b"] != 1 || sent["c"] != 1 || sent["d"] != 1, "sent so many times: %v", sent)
	})
}

// The worker leaves a node that is out of service to its probes, which see to the rest.
func TestWorkerLeavesANodeThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		n := d.nodes[1]
		n.setOut(errGone)
		n.cleanUpLater(nil, asks("k").Withdrawal())
		ended := false
		go func() { n.cleanUpSoon(); ended = true }()
		synctest.Wait()
		if !ended || all[1].withdraws.Load() != 0 {
			t.Errorf("it ended: %v, after %d requests", ended, all[1].withdraws.Load())
		}
		n.setOut(nil)
		n.cleanUpLater(nil, asks("another").Withdrawal())
		if time.Sleep(time.Second); all[1].withdraws.Load() != 2 {
			t.Errorf("in service again: %d releases are delivered, want 2", all[1].withdraws.Load())
		}
	})
}

// How often a withdrawal is sent. A vote of an owner that goes on: until it is confirmed, or
// the owner asks anew. What is released: it is cleaned up later, and not sent beside that.
func TestHowOftenAVoteIsWithdrawn(t *testing.T) {
	for name, c := range map[string]struct {
		fails    int64 // the first so many
		released bool
		again    bool // its owner asks anew meanwhile
		want     int64
	}{
		"confirmed":                          {0, false, false, 1},
		"confirmed, of a release":            {0, true, false, 1},
		"confirmed in the end":               {3, false, false, 4},
		"of a release, confirmed in the end": {3, true, false, 4},
		"its owner asks anew":                {1 << 60, false, true, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			all[1].withdraw = func(context.Context, voting.WithdrawRequest) error {
				if all[1].withdraws.Load() <= c.fails {
					return errDenied
				}
				return driver.ErrNotHeld
			}
			r := asks("k")
			o := d.owners.open(d, r.Claim())
			req := driver.TryRequest{Claim: r.Claim(), TTL: ruleTTL}
			v := ballot.View{Serving: ballot.All(3), Queue: ballot.None, Met: true, Fence: 1}
			o.Ask(req, v)
			w := ballot.Withdrawal{Node: 1, Over: c.released, Tries: o.Tries(), WithdrawRequest: r.Withdrawal()}
			<-d.nodes[1].withdraw(o, w)
			if c.again {
				o.mu.Lock()
				o.Ask(req, v)
				o.mu.Unlock()
			}
			if time.Sleep(10 * time.Second); all[1].withdraws.Load() != c.want {
				t.Errorf("%s: sent %d times, want %d", name, all[1].withdraws.Load(), c.want)
			}
			d.nodes[1].mu.Lock()
			defer d.nodes[1].mu.Unlock()
			failIf(t, len(d.nodes[1].cleanups.all) > 0, "%s: it is still to be cleaned up", name)
		})
	}
}

// An owner that waits for its Try to begin, and gives up, leaves nothing; the Try under way
// goes on.
func TestTryThatNeverBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		r := asks("k")
		o := d.owners.open(d, r.Claim())
		o.turn <- struct{}{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := contend.Try(ctx, d, r); !errors.Is(err, context.DeadlineExceeded) || d.owners.get(r.Claim()) != o {
			t.Errorf("%v, and the owner of the Try under way is dropped", err)
		}
	})
}

// live counts the owners of a driver.
func (d *Driver) live() int {
	d.owners.mu.Lock()
	defer d.owners.mu.Unlock()
	return len(d.owners.all)
}

// An owner is forgotten when the last node that could not be told of its release has
// heard of it, or needs it no more: a client whose node hangs would keep one for each lock, for two TTLs.
func TestOwnersEndWithTheirCleanUps(t *testing.T) {
	for name, c := range map[string]struct {
		away func(s *spy) (back func())
		left int
	}{
		"the node was away": {func(s *spy) func() {
			s.SetUnreachable(true)
			return func() { s.SetUnreachable(false) }
		}, 3},
		"the node was away for longer than leases last": {func(s *spy) func() {
			s.SetUnreachable(true)
			return func() { time.Sleep(ruleTTL + time.Second); s.SetUnreachable(false) }
		}, 3},
		"the node stays away for longer than leases last": {func(s *spy) func() {
			time.Sleep(time.Second) // it is not busy
			s.SetUnreachable(true)
			return func() { time.Sleep(ruleTTL + time.Second) }
		}, 3},
		"one answer was lost": {func(s *spy) func() {
			lost := map[string]bool{}
			s.onRelease(func(r voting.WithdrawRequest) error {
				if lost[r.Key] {
					return nil
				}
				lost[r.Key] = true
				return context.DeadlineExceeded
			})
			return func() {}
		}, 0}, // it is told again at once
	} {
		bubbled(t, name, func(t *testing.T) {
			d, nodes := spies(t, 3)
			var rs []contend.Owner
			for _, key := range []string{"a", "b", "c"} {
				r := asks(key)
				granted(t, d, r)
				rs = append(rs, r)
			}
			synctest.Wait()
			back := c.away(nodes[2])
			for _, r := range rs {
				r.Settled = true
				release(t, d, r)
			}
			synctest.Wait()
			n := d.live()
			stopIf(t, n != c.left, "%d owners while a node has yet to hear of %d releases", n, c.left)
			back()
			time.Sleep(time.Second)
			synctest.Wait()
			n = d.live()
			failIf(t, n != 0, "%d owners stay, and nothing of them is in the nodes", n)
			nodes[2].SetUnreachable(false)
			for _, r := range rs {
				owner, _ := nodes[2].holder(t, r.Key)
				failIf(t, owner != "", "%q is still held at the node that was away", r.Key)
			}
		})
	}
}

// A release that could not be delivered while an older one of the same owner is being delivered is
// delivered, too.
func TestCleanUpAfterACleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		n, r := d.nodes[2], asks("k")
		old, later := r, r
		old.UpTo, later.UpTo = 10, 20
		first := true
		nodes[2].onRelease(func(voting.WithdrawRequest) error {
			if first {
				first = false
				n.cleanUpLater(nil, later.Withdrawal())
			}
			return nil
		})
		n.cleanUpLater(nil, old.Withdrawal())
		time.Sleep(time.Second)
		synctest.Wait()
		last := nodes[2].lastRelease()
		failIf(t, last.UpTo != later.UpTo, "the last release takes votes up to %d, want %d", last.UpTo, later.UpTo)
	})
}
