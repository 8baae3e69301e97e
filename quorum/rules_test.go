// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// Each rule of the count and of what is given back has a test of its own here:
// many of them have a second rule behind them, which the tests of whole stories
// would meet first.

const ruleTTL = 30 * time.Second

// spy is a node in memory that notes what it is asked for, and whose clock can be
// stepped.
type spy struct {
	*memdriver.Store
	mu       sync.Mutex
	ahead    time.Duration
	votes    []voting.VoteRequest
	releases []voting.WithdrawRequest
	before   func(r voting.VoteRequest) error     // of a Vote
	answer   func(r voting.VoteRequest) error     // after a Vote
	after    func(r voting.WithdrawRequest) error // of a Withdraw
}

func (s *spy) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	s.mu.Lock()
	s.votes = append(s.votes, r)
	before, answer := s.before, s.answer
	s.mu.Unlock()
	if before != nil {
		if err := before(r); err != nil {
			return driver.Result{}, err
		}
	}
	res, err := s.Store.Vote(ctx, r)
	if answer != nil && err == nil {
		err = answer(r)
	}
	return res, err
}

func (s *spy) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	s.mu.Lock()
	s.releases = append(s.releases, r)
	after := s.after
	s.mu.Unlock()
	err := s.Store.Withdraw(ctx, r)
	if after != nil {
		if err := after(r); err != nil {
			return err
		}
	}
	return err
}

// on sets what happens before each Vote.
func (s *spy) on(before func(r voting.VoteRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// loses sets what happens after each Vote; its error is an answer that is lost.
func (s *spy) loses(answer func(r voting.VoteRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// onRelease sets what happens after each Withdraw, one at a time; its error is an
// answer that is lost.
func (s *spy) onRelease(after func(r voting.WithdrawRequest) error) {
	var one sync.Mutex
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = func(r voting.WithdrawRequest) error {
		one.Lock()
		defer one.Unlock()
		return after(r)
	}
}

// step moves the clock of the node.
func (s *spy) step(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

func (s *spy) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

// all returns all Votes.
func (s *spy) all() []voting.VoteRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.votes)
}

// asked returns the Votes for a key.
func (s *spy) asked(key string) []voting.VoteRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.votes), func(r voting.VoteRequest) bool { return r.Key != key })
}

func (s *spy) lastRelease() voting.WithdrawRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.releases[len(s.releases)-1]
}

// holder returns who has a key, and its fence.
func (s *spy) holder(t *testing.T, key string) (owner string, fence uint64) {
	t.Helper()
	info, err := s.Inspect(t.Context(), key)
	need(t, err)
	return info.Holder.Owner, info.Fence
}

// spies returns a driver that has heard its nodes, the queue node first.
func spies(t *testing.T, n int) (*Driver, []*spy) {
	t.Helper()
	all := make([]*spy, n)
	for i := range all {
		s := &spy{}
		s.Store = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL, Now: s.now})
		all[i] = s
	}
	all = admitted(t, ruleTTL, all)
	d := over(t, all, nil)
	warm := asks("warm")
	granted(t, d, warm)
	release(t, d, warm)
	synctest.Wait()
	stopIf(t, d.queue.Load() != d.nodes[0], "the queue is not where it should be")
	return d, all
}

func asks(key string) contend.Owner {
	return contend.Owner{Key: key, Owner: rand.Text(), Label: "{}", TTL: ruleTTL, Patience: ruleTTL}
}

func granted(t *testing.T, d driver.Driver, r contend.Owner) driver.Result {
	t.Helper()
	res, err := contend.Try(t.Context(), d, r)
	stopIf(t, err != nil || !res.Granted, "%+v, %v, want a grant", res, err)
	return res
}

func refused(t *testing.T, d driver.Driver, r contend.Owner) {
	t.Helper()
	if res, err := contend.Try(t.Context(), d, r); err != nil || res.Granted {
		t.Fatalf("%+v, %v, want a refusal", res, err)
	}
}

// fails is for a Try that too few nodes answer.
func fails(t *testing.T, d driver.Driver, r contend.Owner) {
	t.Helper()
	res, err := contend.Try(t.Context(), d, r)
	stopIf(t, err == nil, "%+v, want an error", res)
}

// A holder that takes turns has a smaller fence than the one that was granted:
// it is prolonged by nodes that have the latter only, and asks for it again.
func TestRowsAreRenewedByTheirLastFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		time.Sleep(time.Millisecond)
		r := asks("k")
		r.Fences = 5
		res := granted(t, d, r)
		synctest.Wait()
		holder := r
		holder.Fence = res.Fence - 4
		nodes[0].Lose("k")
		if got := renewed(t, d, holder); got.Err != nil {
			t.Fatal(got.Err)
		}
		if owner, fence := nodes[0].holder(t, "k"); owner != r.Owner || fence != res.Fence {
			t.Errorf("the vote that was asked for again is of %q with the fence %d, want %q, %d", owner, fence, r.Owner, res.Fence)
		}
		r2 := asks("k2")
		r2.Fences = 5
		time.Sleep(time.Millisecond)
		res = granted(t, d, r2)
		synctest.Wait()
		for _, n := range nodes[:2] { // what they have is an older vote
			n.restarted(t)
			old := r2
			old.Fence, old.Fences, old.Restore = res.Fence-2, 0, true
			granted(t, n, old)
		}
		holder = r2
		holder.Fence = res.Fence - 4
		if got := renewed(t, d, holder); !errors.Is(got.Err, driver.ErrNotHeld) {
			t.Errorf("one of three nodes has the vote, and the renewal says %v", got.Err)
		}
	})
}

// A queue node whose clock was stepped back while somebody held a key would be in
// the way for as long as the step: it is asked without regard to its queue.
func TestLineNodeWhoseClockWentBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[0].Hold("k", ruleTTL, driver.Label{})
		nodes[0].step(-time.Hour)
		granted(t, d, asks("k"))
	})
}

// A client whose proposals are too far above the clock of one node proposes no
// more than the nodes want: its clock would put the others ahead of that one.
func TestProposalsStayNearANodeBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[2].forgets(t, -time.Minute) // its fences are as old as its clock
		free := []func(){nodes[0].Hold("k", ruleTTL, driver.Label{}), nodes[1].Hold("k", ruleTTL, driver.Label{})}
		r := asks("k")
		r.Queue = true // it goes on asking
		refused(t, d, r)
		last := nodes[2].asked("k")[0].Proposal
		for _, f := range free {
			f()
		}
		time.Sleep(time.Second)
		granted(t, d, r)
		synctest.Wait()
		n := len(nodes[2].asked("k"))
		stopIf(t, n < 2, "it was asked %d times", n)
		next := nodes[2].asked("k")[1].Proposal
		failIf(t, next > last, "after %d was too large it was asked for %d", last, next)
	})
}

// A node that fails its Tries is no place for the queue.
func TestLineLeavesAFailingNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		queueAt := func(at int, why string) {
			t.Helper()
			synctest.Wait()
			failIf(t, d.queue.Load() != d.nodes[at], "the queue is not on node %d: %s", at, why)
		}
		old := asks("old")
		granted(t, d, old)
		queueAt(0, "all is well")
		full := func(r voting.VoteRequest) error { // it answers what it need not write for
			if r.Key != old.Key || r.Queue {
				return errors.New("OOM command not allowed")
			}
			return nil
		}
		nodes[0].on(full)
		granted(t, d, asks("k"))
		queueAt(1, "the first one fails")
		refused(t, d, asks("old"))
		queueAt(1, "that the first one refused is no sign of health")
		d.nodes[0].leave(errSilent) // and comes back at once: it answers
		time.Sleep(time.Second)
		queueAt(1, "the first one was away, and fails as before")
		nodes[0].on(nil)
		granted(t, d, asks("k2"))
		queueAt(0, "the first one granted")
	})
}

// The error of a renewal without a majority names those that did not answer, and
// no others.
func TestRenewalNamesTheSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		r := asks("k")
		granted(t, d, r)
		synctest.Wait()
		nodes[1].SetUnreachable(true)
		nodes[2].SetUnreachable(true)
		got := renewed(t, d, r)
		if got.Err == nil || !strings.Contains(got.Err.Error(), "1 of 3") || strings.Contains(got.Err.Error(), d.nodes[0].name+":") {
			t.Errorf("one node prolonged the lease, two cannot be reached: %v", got.Err)
		}
	})
}

// A client whose nodes all failed a Try still has a queue, and one that only waits
// finds out by itself that a node is well again.
func TestLineOfFailingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		other := over(t, nodes, nil)
		held := asks("k")
		granted(t, other, held)
		full := func(r voting.VoteRequest) error {
			if r.Key == "k" && !r.Queue {
				return nil
			}
			return errors.New("OOM command not allowed")
		}
		for _, n := range nodes {
			n.on(full)
		}
		fails(t, d, asks("x")) // of nodes that are full
		synctest.Wait()
		failIf(t, d.queue.Load() != d.nodes[0], "the queue is nowhere, where all nodes fail")
		nodes[1].on(nil)
		nodes[2].on(nil)
		time.Sleep(2 * writePause.Most)
		failIf(t, d.queue.Load() != d.nodes[1], "the queue is at a node that fails, and others are well")
		contend.Renew(t.Context(), other, []contend.Owner{held}, func(_ int, r driver.Renewal) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
		nodes[0].on(nil)
		time.Sleep(2 * writePause.Most)
		r := asks("k")
		r.Queue = true
		refused(t, d, r)
		synctest.Wait()
		failIf(t, d.queue.Load() != d.nodes[0], "the queue is not where all others see it")
		for _, n := range nodes {
			for _, r := range n.all() {
				if owner, _ := n.holder(t, r.Key); owner != "" && r.Key != "k" {
					t.Errorf("%q is held", r.Key)
				}
			}
		}
	})
}

// A key that holds something else on one node says nothing of the node.
func TestKeyOfAnotherTypeLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[0].on(func(r voting.VoteRequest) error {
			if r.Key == "k" {
				return driver.ErrUnsupported // of class Misconfigured
			}
			return nil
		})
		granted(t, d, asks("k"))
		synctest.Wait()
		failIf(t, d.queue.Load() != d.nodes[0], "the queue left the node")
	})
}

// Who has the vote of its queue node, and meets another holder at a node that comes
// before it, gives it back: the other sees another queue node, and both would wait.
func TestTwoLineNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[0].Hold("k", ruleTTL, driver.Label{})
		nodes[2].Hold("k", ruleTTL, driver.Label{})
		d.queue.Store(d.nodes[1]) // the first one was away just now
		r := asks("k")
		r.Queue = true
		refused(t, d, r)
		synctest.Wait()
		if owner, _ := nodes[1].holder(t, "k"); owner != "" {
			t.Errorf("its queue node has the vote of %q", owner)
		}
	})
}

// A node where a Try had no answer remembers the owner that is released.
func TestReleaseIsUnsettledWhereATryIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[2].on(func(r voting.VoteRequest) error {
			if r.Key == "k" {
				return context.DeadlineExceeded // and the request goes on
			}
			return nil
		})
		r := asks("k")
		granted(t, d, r)
		synctest.Wait()
		time.Sleep(time.Second) // and it is in service again
		r.Settled = true
		release(t, d, r)
		synctest.Wait()
		for i, settled := range []bool{true, true, false} {
			last := nodes[i].lastRelease()
			if last.Owner != r.Owner || last.Settled != settled {
				t.Errorf("node %d: the release says settled: %v, want %v", i, last.Settled, settled)
			}
		}
	})
}

// When a look at the time comes late, it is this process that stood still: the
// answers may be there, unread.
func TestProcessThatStoodStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := spies(t, 3)
		gone := 0
		f := d.fanout(d.life, ballot.All(3), ruleTTL, 0, func(*node) { gone++ })
		defer f.cancel()
		time.Sleep(f.limit - 1) // no node has answered
		f.mu.Lock()
		f.timer.Stop()
		f.mu.Unlock()
		time.Sleep(time.Minute)
		f.look()
		f.look() // a Try and its timer may both look, and no answer could be read in between
		for _, n := range d.nodes {
			failIf(t, !n.serving(), "a node is out of service for what the process slept")
		}
		time.Sleep(2 * f.limit) // and now nothing more was to read
		synctest.Wait()
		failIf(t, gone != len(d.nodes) || f.ctx.Err() == nil, "%d silent nodes of %d are given up", gone, len(d.nodes))
	})
}

// A node is admitted after the longest lease that anybody may have had there: a
// client learns from the nodes that vote what others were allowed.
func TestWaitIsThatOfTheLongestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 5)
		allow := func(ttl time.Duration, some ...*spy) {
			for _, n := range some {
				n.Restart(nil)
				admit(t, n, ttl)
			}
		}
		allow(time.Minute, nodes[0])
		if longest, err := d.agreed(d.nodes[4]); err != nil || longest != time.Minute {
			t.Errorf("%v, %v, want the minute of one node", longest, err)
		}
		allow(time.Minute, nodes[1], nodes[2])
		if _, err := d.agreed(d.nodes[4]); err == nil {
			t.Error("a majority allows a minute, and this client goes on with its own")
		}
	})
}
