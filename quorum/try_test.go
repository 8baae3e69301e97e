// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/ballot"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/memdriver"
)

// Which TTLs a quorum takes: those that every node takes, and that a slow node leaves
// something of. Nothing is sent for another.
func TestTTLsOfAQuorum(t *testing.T) {
	for _, longest := range []time.Duration{0, ruleTTL} {
		for ttl, takes := range map[time.Duration]bool{
			minTTL - 1: false, minTTL: true, ruleTTL: true, ruleTTL + 1: longest == 0,
		} {
			synctest.Test(t, func(t *testing.T) {
				d, all := stubs(t)
				d.traits.MaxTTL = longest
				if longest == 0 {
					for _, s := range all {
						s.vote = func(_ context.Context, r voting.VoteRequest) (driver.Result, error) {
							return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil
						}
					}
				}
				r := asks("k")
				r.TTL = ttl
				res, err := contend.Try(t.Context(), d, r)
				if takes != (err == nil && res.Granted) || !takes && all[0].votes.Load() > 0 {
					t.Errorf("TTL %v, at most %v: %+v, %v", ttl, longest, res, err)
				}
			})
		}
	}
}

// After one Try that every node had the time to answer, it is known who they are.
func TestFirstTryMeetsTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		other := New([]voting.Node{all[0], all[1], all[2]}, nil)
		granted(t, other, asks("warm")) // what a node minted first is above the first proposal
		other.end()
		time.Sleep(time.Second)
		before := all[0].votes.Load()
		stopIf(t, d.met.Load(), "before anything was asked")
		if granted(t, d, asks("k")); !d.met.Load() || all[0].votes.Load() != before+1 {
			t.Errorf("met: %v, after %d rounds", d.met.Load(), all[0].votes.Load()-before)
		}
	})
}

// What an answer to a Vote says of its node: whether it writes, and whether it votes. What
// comes with an error says nothing.
func TestWhatAnAnswerSaysOfItsNode(t *testing.T) {
	granted, held := driver.Result{Granted: true, Fence: 7}, driver.Result{Why: driver.WhyHeld}
	notVoting, low := driver.Result{Why: voting.NotVoting}, driver.Result{Why: voting.FenceTooLow}
	for name, c := range map[string]struct {
		res    driver.Result
		err    error
		queue  bool
		writes bool // it is known to, who was known not to
		out    bool
	}{
		"granted":                         {granted, nil, false, true, false},
		"granted, with an error":          {granted, errDenied, false, false, false},
		"a place":                         {held, nil, true, true, false},
		"a place, with an error":          {held, errDenied, true, false, false},
		"refused without a place":         {held, nil, false, false, false},
		"too low, with a place in mind":   {low, nil, true, false, false},
		"it does not vote":                {notVoting, nil, true, false, true},
		"it does not vote, with an error": {notVoting, errDenied, false, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, all := stubs(t)
			all[1].record = func(context.Context) (voting.Record, error) { return voting.Record{}, errGone }
			n, r := d.nodes[1], asks("k")
			n.readOnly.Store(true)
			o := d.owners.open(d, r.Claim())
			asked := voting.VoteRequest{TryRequest: driver.TryRequest{Claim: r.Claim(), TTL: ruleTTL, Queue: c.queue}}
			o.Sends(1)
			err := n.voted(o, ballot.Reply{Asked: asked, Answer: ballot.Answer{Result: c.res}}, c.err, func(error) {})
			if n.readOnly.Load() == c.writes || n.serving() == c.out {
				t.Errorf("%s: it writes: %v, out of service: %v", name, !n.readOnly.Load(), n.why())
			}
			if want := c.err; c.out {
				failIf(t, !errors.Is(err, voting.ErrNotVoting), "%s: %v, want ErrNotVoting", name, err)
			} else if err != want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		})
	}
}

// Which errors mean that a node does not write.
func TestWhichErrorsAreTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, all := stubs(t)
		all[0].class = func(err error) driver.Class {
			if errors.Is(err, errFull) {
				return driver.ClassImpossible
			}
			return driver.ClassUnknown
		}
		for err, want := range map[error]bool{
			nil: false, errDenied: true, errFull: false, voting.ErrNotVoting: false,
			context.DeadlineExceeded: false, fmt.Errorf("vote: %w", context.Canceled): false,
		} {
			got := d.nodes[0].refuses(err)
			failIf(t, got != want, "%v: %v, want %v", err, got, want)
		}
	})
}

// Why nodes said nothing of the key: their errors, or that they were admitted for less. Of a
// lease in doubt also that they do not have it.
func TestWhyNodesSaidNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := stubs(t)
		a := &attempt{d: d, o: d.owners.open(d, asks("k").Claim()), r: driver.TryRequest{TTL: time.Minute}}
		long := driver.Result{Why: voting.TTLTooLong, TTL: time.Second}
		a.errs[0] = errDenied
		said := [maxNodes]driver.Result{long, long}
		step := ballot.Step{Said: &said, Votes: setOf(0)}
		isLong := func(err error) bool { return errors.As(err, new(*tooLong)) }
		errs := a.reasons(step)
		failIf(t, errs[0] != errDenied || !isLong(errs[1]) || errs[2] != nil, "%v", errs)
		if errs := a.inDoubt(step); errs[0] != errDenied || !isLong(errs[1]) || errs[2] != errVoteGone {
			t.Errorf("in doubt: %v", errs)
		}
		step.Votes = setOf(2)
		if errs := a.inDoubt(step); errs[2] != nil {
			t.Errorf("with a vote of node 3: %v", errs)
		}
	})
}

// What a quorum promises is what each of its nodes does.
func TestQuorumPromisesWhatEachNodeDoes(t *testing.T) {
	const tells = driver.TellsFree | driver.TellsWanted
	for name, c := range map[string]struct {
		lacks func(*driver.Traits) // node 2
		want  func(driver.Traits) bool
	}{
		"nothing":      {func(*driver.Traits) {}, func(t driver.Traits) bool { return t.Tells == tells && t.Shared && t.Queue == driver.QueueHint }},
		"hints":        {func(t *driver.Traits) { t.Tells &^= driver.TellsFree }, func(t driver.Traits) bool { return !t.Tells.Has(driver.TellsFree) }},
		"telling":      {func(t *driver.Traits) { t.Tells &^= driver.TellsWanted }, func(t driver.Traits) bool { return !t.Tells.Has(driver.TellsWanted) }},
		"shared locks": {func(t *driver.Traits) { t.Shared = false }, func(t driver.Traits) bool { return !t.Shared }},
		"marks":        {func(t *driver.Traits) { t.MarksAbandoned = false }, func(t driver.Traits) bool { return !t.MarksAbandoned }},
		"a queue":      {func(t *driver.Traits) { t.Queue = driver.QueueNone }, func(t driver.Traits) bool { return t.Queue == driver.QueueNone }},
		"short leases": {func(t *driver.Traits) { t.MinTTL = time.Second }, func(t driver.Traits) bool { return t.MinTTL == time.Second }},
	} {
		var nodes []voting.Node
		for i := range 3 {
			s := &stub{Store: memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL})}
			s.traits = func(t driver.Traits) driver.Traits {
				if i == 1 {
					c.lacks(&t)
				}
				return t
			}
			nodes = append(nodes, s)
		}
		d := New(nodes, nil)
		failIf(t, d.Check() != nil || !c.want(d.Traits()), "without %s: %+v, %v", name, d.Traits(), d.Check())
	}
}

// unequal is a node that cannot be compared.
type unequal struct {
	voting.Node
	_ []int
}

// checked is a node that says whether it can work.
type checked struct {
	voting.Node
	err error
}

func (c checked) Check() error { return c.err }

// Which nodes make a quorum, besides what TestCheck tries.
func TestNodesOfAQuorum(t *testing.T) {
	node := func() voting.Node { return memdriver.NewNode(memdriver.NodeOptions{MaxTTL: ruleTTL}) }
	if err := New([]voting.Node{unequal{Node: node()}, unequal{Node: node()}, unequal{Node: node()}}, nil).Check(); err != nil {
		t.Errorf("nodes that cannot be compared: %v", err)
	}
	if err := New([]voting.Node{node(), checked{node(), nil}, checked{node(), nil}}, &Options{Names: []string{"a", "b", "c"}}).Check(); err != nil {
		t.Errorf("nodes that can work, with names: %v", err)
	}
	if err := New([]voting.Node{node(), checked{node(), errDenied}, node()}, nil).Check(); !errors.Is(err, errDenied) {
		t.Errorf("%v, want what the second node says", err)
	}
	if err := New([]voting.Node{node(), node(), node(), node(), node(), node(), node()}, nil).Check(); err != nil {
		t.Errorf("seven nodes: %v", err)
	}
}

// A fence that a node refuses for being too large, or too small, says nothing of the
// vote that the owner has there for an earlier one: it goes back when the round is
// lost. Here one node's clock is a minute ahead, so that no fence suits it and the
// queue node.
func TestVoteBelowARefusedFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		nodes[2].forgets(t, time.Minute)
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

// A Try that no node was sent says so, and leaves no owner: no client releases it. The
// silence of one node is enough to say nothing, whatever the others say.
func TestNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := spies(t, 3)
		before := d.live()
		for _, s := range nodes {
			s.SetUnreachable(true)
		}
		for range 10 { // at first they are asked, then they are out of service
			if _, err := contend.Try(t.Context(), d, asks("k")); !driver.IsNotSent(err) {
				t.Errorf("no node was asked: %v, want one that says not sent", err)
			}
		}
		n := d.live() - before
		failIf(t, n != 0, "%d owners are left", n)
		for _, s := range nodes {
			s.SetUnreachable(false)
		}
		time.Sleep(time.Second) // back in service
		nodes[0].loses(func(r voting.VoteRequest) error {
			if r.Key == "k" {
				return context.DeadlineExceeded
			}
			return nil
		})
		nodes[1].SetUnreachable(true)
		nodes[2].SetUnreachable(true)
		r := asks("k")
		if _, err := contend.Try(t.Context(), d, r); err == nil || driver.IsNotSent(err) {
			t.Errorf("a node may have it: %v, which must not say that nothing was sent", err)
		}
		_ = contend.Release(t.Context(), d, r)
		time.Sleep(time.Minute)
		if owner, _ := nodes[0].holder(t, "k"); owner != "" {
			t.Errorf("%s has the key", owner)
		}
	})
}

// Proposals keep up with clocks that are ahead of ours, but not with one that is so far
// ahead that nodes refuse its fences: ours would be refused, too.
func TestProposalsKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p proposals
		first := p.next()
		failIf(t, p.next() != first+1, "two proposals of one instant are the same")
		p.saw(first)
		got := p.next()
		failIf(t, got != first+2, "after a smaller fence: %d, want %d", got, first+2)
		limit := p.limit()
		p.saw(limit + 1)
		got = p.next()
		failIf(t, got != first+3, "after a fence above the limit: %d, want %d", got, first+3)
		p.saw(limit)
		got = p.next()
		failIf(t, got != limit+1, "after the limit: %d, want %d", got, limit+1)
	})
}
