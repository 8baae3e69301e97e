// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
)

// A fence that a node refuses for being too large, or too small, says nothing of the
// vote that the owner has there for an earlier one: it goes back when the round is
// lost. Here one node's clock is a minute ahead, so that no fence suits it and the
// queue node.
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
			t.Fatalf("the queue node was not asked for a larger fence: %+v", asked)
		}
		for _, i := range []int{0, 2} {
			if owner, _ := nodes[i].holder(t, "k"); owner == r.Owner {
				t.Errorf("node %d still has its vote", i)
			}
		}
	})
}
