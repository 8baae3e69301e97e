// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// forgets makes a node grant fences above its clock only, as a node does whose clock was ahead and that lost its data.
func (s *spy) forgets(t *testing.T, ahead time.Duration) {
	t.Helper()
	s.step(ahead)
	s.Restart(nil)
	rec, err := s.Record(t.Context())
	if err := errors.Join(err, s.Admit(t.Context(), rec, ruleTTL)); err != nil {
		t.Fatal(err)
	}
}

// Nodes whose clocks are too far apart grant no fence together. That is said, of each of them, and not that somebody
// holds a key that nobody holds.
func TestNodesThatAcceptNoCommonFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[1].forgets(t, time.Hour)
		nodes[2].forgets(t, -time.Hour)
		for _, queue := range []bool{false, true} {
			r := asks("k")
			r.Queue = queue
			res, err := contend.Try(t.Context(), d, r)
			var votes *VoteError
			if !errors.As(err, &votes) || d.Classify(err) != driver.ClassUnreachable {
				t.Fatalf("%+v, %v, want too few votes", res, err)
			}
			for _, want := range []string{"it refuses the fence", "its clock"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		}
	})
}

// The same node refuses alone, and nobody is kept waiting. Refusals and Admit say which it is.
func TestNodeThatRefusesAlone(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(t *testing.T, s *spy)
		want string
	}{
		"its clock is ahead":  {func(t *testing.T, s *spy) { s.forgets(t, time.Hour) }, "all up to"},
		"its clock is behind": {func(t *testing.T, s *spy) { s.forgets(t, -time.Hour) }, "ahead of its clock"},
		"its clock was ahead": {func(t *testing.T, s *spy) { s.forgets(t, time.Hour); s.step(-time.Hour) }, "all up to"},
		"it forgot":           {func(t *testing.T, s *spy) { s.forgets(t, 0) }, ""},
		"it is well":          {func(*testing.T, *spy) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, nodes := spies(t, 3)
				c.set(t, nodes[1])
				granted(t, d, asks("k"))
				for i, err := range d.Refusals(t.Context()) {
					if refuses := i == 1 && c.want != ""; (err != nil) != refuses || refuses && !strings.Contains(err.Error(), c.want) {
						t.Errorf("node %d: %v", i, err)
					}
				}
				err := d.Admit(t.Context())
				if (err == nil) != (c.want == "") || err != nil && (!strings.HasPrefix(err.Error(), "node 2: ") || strings.Contains(err.Error(), "\n")) {
					t.Errorf("Admit says %v", err)
				}
				synctest.Wait()
				for i, n := range nodes {
					for info, err := range n.List(t.Context(), probeKey) {
						t.Errorf("node %d still has %+v, %v", i, info, err)
					}
				}
			})
		})
	}
}

// All nodes forgot which fences they granted, and each tells another floor. All three vote for a client whose clock is behind,
// in one Try: with two, no other may fail.
func TestAllNodesVoteAfterTheyForgot(t *testing.T) {
	for _, behind := range []time.Duration{0, 3 * time.Second, 90 * time.Second, 13 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d, nodes := spies(t, 3)
			for i, n := range nodes {
				n.forgets(t, behind+time.Duration(i)*300*time.Millisecond)
			}
			for range 3 {
				r := asks("k")
				granted(t, d, r)
				synctest.Wait()
				for i, n := range nodes {
					if owner, _ := n.holder(t, "k"); owner != r.Owner {
						t.Errorf("%v behind: node %d did not vote", behind, i)
					}
				}
				if err := contend.Release(t.Context(), d, r); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
		})
	}
}
