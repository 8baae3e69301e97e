// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// A fence that a node refuses for being too large, or too small, says nothing of the
// vote that the owner has there for an earlier one: it goes back when the round is
// lost. Here one node's clock is a minute ahead, so that no fence suits it and the
// line node.
func TestVoteBelowARefusedFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[2].step(time.Minute)
		nodes[2].Restart(nil)
		rec, err := nodes[2].Record(t.Context())
		if err := errors.Join(err, nodes[2].Admit(t.Context(), rec, ruleTTL)); err != nil {
			t.Fatal(err)
		}
		nodes[1].Hold("k", ruleTTL, driver.Label{})
		r := asks("k")
		r.Queue = true
		refused(t, d, r)
		synctest.Wait()
		if asked := nodes[0].asked("k"); len(asked) < 2 || asked[0].Proposal >= asked[1].Proposal {
			t.Fatalf("the line node was not asked for a larger fence: %+v", asked)
		}
		for _, i := range []int{0, 2} {
			if owner, _ := nodes[i].holder(t, "k"); owner == r.Owner {
				t.Errorf("node %d still has its vote", i)
			}
		}
	})
}

// What an owner may have at a node, after what the node said last.
func TestWhatARefusalSaysOfEarlierVotes(t *testing.T) {
	type reply struct {
		fence uint64
		res   driver.Result
		err   error
	}
	granted := reply{10, driver.Result{Granted: true, Fence: 10}, nil}
	silent := reply{10, driver.Result{}, errSilent}
	low := reply{20, driver.Result{Why: driver.FenceTooLow, Fence: 20}, nil}
	far := func(above uint64) reply { return reply{20, driver.Result{Why: driver.FenceTooLow, Fence: above}, nil} }
	for name, c := range map[string]struct {
		replies []reply
		has     bool
	}{
		"too low, and nothing before":            {[]reply{low}, false},
		"granted, and then too low":              {[]reply{granted, low}, true},
		"no answer, and then too low":            {[]reply{silent, low}, true},
		"no answer, and then too far above that": {[]reply{silent, far(10)}, true},
		"no answer, and then too far above less": {[]reply{silent, far(8)}, false},
		"granted, and then held back":            {[]reply{granted, {20, driver.Result{}, &admission.HeldBack{}}}, true},
		"granted, and then of another":           {[]reply{granted, {20, driver.Result{Why: driver.Held}, nil}}, false},
		"no answer, and then of another":         {[]reply{silent, {20, driver.Result{Why: driver.Held}, nil}}, false},
		"granted, and then a TTL too long":       {[]reply{granted, {20, driver.Result{Why: driver.TTLTooLong}, nil}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, nodes := spies(t, 3)
				b, n := d.bids.open(asks("k").Vote().TryRequest), d.nodes[1]
				b.begin(b.req)
				for _, a := range c.replies {
					b.sends(n)
					b.returned(n, a.fence, a.res, a.err)
				}
				if b.has.has(n) != c.has {
					t.Fatalf("the owner may have the vote: %v, want %v", b.has.has(n), c.has)
				}
				if !c.has {
					return
				}
				b.mu.Lock()
				done := b.giveBack(n)
				b.mu.Unlock()
				<-done
				nodes[1].mu.Lock()
				defer nodes[1].mu.Unlock()
				if last := nodes[1].releases[len(nodes[1].releases)-1]; last.UpTo != 10 {
					t.Errorf("votes up to %d are given back, want 10", last.UpTo)
				}
			})
		})
	}
}
