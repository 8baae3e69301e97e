// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
)

// lags makes a node take so long for what changes it.
func (l *link) lags(by time.Duration) {
	l.onTry(func(context.Context, voting.VoteRequest) error { time.Sleep(by); return nil })
	l.onRelease(func(context.Context, voting.WithdrawRequest) error { time.Sleep(by); return nil })
}

// lags returns a driver whose nodes take a millisecond each, and its links.
func lags(t *testing.T) (*Driver, []*link) {
	t.Helper()
	d, links := connect(t, newStores(t, 3))
	for _, l := range links {
		l.lags(time.Millisecond)
	}
	return d, links
}

func TestOwnersDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		for i := range 4000 {
			r := asks("k")
			granted(t, d, r)
			if i == 0 { // a node that is not the queue's is a bit slower
				for j, n := range d.nodes {
					if n != d.queue.Load() {
						ls[j].lags(2 * time.Millisecond)
						break
					}
				}
			}
			r.Settled = true
			release(t, d, r)
		}
		time.Sleep(10 * time.Second)
		if n := d.live(); n > 100 {
			t.Errorf("%d owners stay", n)
		}
	})
}

func TestCleanUpsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		for _, l := range ls {
			l.fail(errGone)
		}
		for range 2000 { // over 20 minutes, far above TTL and patience
			r := asks("k")
			fails(t, d, r)
			_ = contend.Release(t.Context(), d, r) // as hasp does after an error
			time.Sleep(600 * time.Millisecond)
		}
		d.nodes[0].mu.Lock()
		defer d.nodes[0].mu.Unlock()
		n := len(d.nodes[0].cleanups.all)
		failIf(t, n > 200, "%d clean-ups stay that are over", n)
	})
}

// A node that comes back while calls are given up all the time is soon in service.
func TestCleanUpEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, ls := lags(t)
		r := asks("w")
		granted(t, d, r)
		n := d.nodes[0]
		ls[0].fail(errGone)
		n.leave(errGone)
		time.Sleep(time.Second)
		ls[0].fail(nil)
		ls[0].delay(time.Millisecond) // of its probes, too
		begun := time.Now()
		for i := 0; i < 5000 && !n.serving(); i++ { // 1000 calls a second whose contexts ended
			x := asks("x")
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			_, _ = contend.Try(ctx, d, x)
			cancel()
			go func() { _ = contend.Release(context.Background(), d, x) }()
			time.Sleep(time.Millisecond)
		}
		t.Log("out for", time.Since(begun))
		failIf(t, time.Since(begun) > 2*time.Second, "it does not come back into service")
		time.Sleep(time.Minute)
	})
}

// forgets makes a node grant fences above its clock only, as a node does whose clock was ahead and that lost its data.
func (s *spy) forgets(t *testing.T, ahead time.Duration) {
	t.Helper()
	s.step(ahead)
	s.restarted(t)
}

// Nodes whose clocks are too far apart grant no fence together. That is said, of each of them, and not that another
// owner holds a key that is free.
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
				failIf(t, !strings.Contains(err.Error(), want), "%q does not say %q", err, want)
			}
		}
	})
}

// The same node refuses alone, and no client is kept waiting. Refusals and Admit say which it is.
func TestNodeThatRefusesAlone(t *testing.T) {
	same := (&outOfStep{5, 5}).Error()
	failIf(t, !strings.Contains(same, "all up to 5 "), "of a fence that was granted before: %s", same)
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
		bubbled(t, name, func(t *testing.T) {
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
	}
}

// A node that takes no word of the operator is named, with its error.
func TestNodeThatIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		all[1].Restart(nil)
		all[1].admit = func() error { return errDenied }
		if err := d.Admit(t.Context()); !errors.Is(err, errDenied) || !strings.HasPrefix(err.Error(), "node 2: ") {
			t.Error(err)
		}
	})
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
				check(t, contend.Release(t.Context(), d, r))
				synctest.Wait()
			}
		})
	}
}
