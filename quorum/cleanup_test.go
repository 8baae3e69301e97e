// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

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
			s.onRelease(func(r driver.WithdrawRequest) error {
				if lost[r.Key] {
					return nil
				}
				lost[r.Key] = true
				return context.DeadlineExceeded
			})
			return func() {}
		}, 0}, // it is told again at once
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
					if err := contend.Release(t.Context(), d, r); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				if n := d.live(); n != c.left {
					t.Fatalf("%d owners while a node has yet to hear of %d releases", n, c.left)
				}
				back()
				time.Sleep(time.Second)
				synctest.Wait()
				if n := d.live(); n != 0 {
					t.Errorf("%d owners stay, and nothing of them is in the nodes", n)
				}
			})
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
		nodes[2].onRelease(func(driver.WithdrawRequest) error {
			if first {
				first = false
				n.cleanUpLater(nil, later.Withdrawal())
			}
			return nil
		})
		n.cleanUpLater(nil, old.Withdrawal())
		time.Sleep(time.Second)
		synctest.Wait()
		nodes[2].mu.Lock()
		defer nodes[2].mu.Unlock()
		if last := nodes[2].releases[len(nodes[2].releases)-1]; last.UpTo != later.UpTo {
			t.Errorf("the last release takes votes up to %d, want %d", last.UpTo, later.UpTo)
		}
	})
}
