// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// Variant breaks a part of the algorithm, to show that the oracles notice. The zero
// value and nil are hasp as it is.
type Variant struct {
	Name     string
	Scenario string // the scenario in which it shows
	Fences   bool   // it breaks the order of fences
	Marks    bool   // it does not tell that a holder did not finish
	Stuck    bool   // it lets clients acquire nothing
	Free     bool   // it lets a key be free beside waiters; otherwise it breaks exclusion
	// AtOnce: a node that lost its data is admitted at once.
	AtOnce bool

	prepare func(p *Plan) // further changes to the schedule
	doTry   func(s *memdriver.Store, r driver.VoteRequest) (driver.Result, error)
	doFree  func(s *memdriver.Store, r driver.WithdrawRequest) error
	nodes   func(client int, links []driver.Node) []driver.Node
	longer  func(ttl, took time.Duration) time.Duration
	handed  func(to driver.Handover, came time.Duration) driver.Handover
}

// Broken lists the variants.
var Broken = []*Variant{
	{Name: "restarted nodes vote", Scenario: "all at once", AtOnce: true},
	{
		Name: "a minority counts", Scenario: "calm",
		prepare: func(p *Plan) { p.five() },
		nodes: func(client int, links []driver.Node) []driver.Node {
			return []driver.Node{links[client%5], links[(client+1)%5], links[(client+2)%5]}
		},
	},
	{
		Name: "a node listed twice", Scenario: "calm",
		nodes: func(client int, links []driver.Node) []driver.Node {
			a, b := links[client%3], links[(client+1)%3]
			return []driver.Node{anonymous{a.(member), 1}, anonymous{a.(member), 2}, anonymous{b.(member), 3}}
		},
	},
	{
		Name: "fences are not compared", Scenario: "calm", Fences: true,
		prepare: func(p *Plan) { p.Skews[0] = 2 * time.Second },
		doTry: func(s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
			proposed := r.Proposal
			r.Proposal, r.Raise, r.Restore = 0, false, false
			res, err := s.Vote(context.Background(), r)
			if res.Granted {
				res.Fence = proposed
			}
			return res, err
		},
	},
	{Name: "a reader's vote beside a writer's", Scenario: "calm", doTry: ignoreMode(driver.Shared)},
	{Name: "a writer's vote beside readers'", Scenario: "calm", doTry: ignoreMode(driver.Exclusive)},
	{
		Name: "drift and the time that a call takes are ignored", Scenario: "clocks within bounds",
		prepare: func(p *Plan) { p.fastClocks() },
		longer:  func(ttl, took time.Duration) time.Duration { return took + ttl/100 + 2*time.Millisecond },
	},
	{
		Name: "a vote is withdrawn whatever its fence", Scenario: "messages",
		prepare: func(p *Plan) { p.duplicate() },
		doFree: func(s *memdriver.Store, r driver.WithdrawRequest) error {
			r.UpTo = 0
			return s.Withdraw(context.Background(), r)
		},
	},
	{
		Name: "a release deletes whatever is there", Scenario: "clients",
		doFree: func(s *memdriver.Store, r driver.WithdrawRequest) error {
			s.Lose(r.Key)
			return nil
		},
	},
	{
		Name: "who enters counts from when the message came", Scenario: "lone, clients",
		prepare: func(p *Plan) { p.pauses() },
		handed: func(to driver.Handover, came time.Duration) driver.Handover {
			to.At = came
			return to
		},
	},
	{
		Name: "who enters does not look at fences", Scenario: "lone, clocks within bounds",
		prepare: func(p *Plan) { p.backAndLate() },
		doTry: func(s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(context.Background(), r)
			if !res.Granted {
				res.Fence = 0
			}
			return res, err
		},
	},
	{
		Name: "who enters is not told of one that did not finish", Scenario: "lone, clients", Marks: true,
		handed: func(to driver.Handover, _ time.Duration) driver.Handover {
			to.Abandoned = false
			return to
		},
	},
	{
		Name: "a node tells a floor and forgets it", Scenario: "calm", Stuck: true,
		prepare: func(p *Plan) { p.Gaps = []time.Duration{13 * time.Hour} },
		doTry:   forgetful(),
	},
	{
		Name: "waiters get no hints, and see nothing", Scenario: "calm", Free: true,
		nodes: func(_ int, links []driver.Node) []driver.Node {
			for i, l := range links {
				links[i] = noHints{l.(member)}
			}
			return links
		},
	},
}

// noHints tells a waiter neither that the key is free nor that its place is lost.
type noHints struct{ member }

func (d noHints) Watch(context.Context, driver.Claim) (<-chan struct{}, error) {
	return make(chan struct{}), nil
}

func (d noHints) Renew(ctx context.Context, rs []driver.RenewRequest, done func(i int, r driver.Renewal)) {
	if !rs[0].Queue {
		d.member.Renew(ctx, rs, done)
		return
	}
	d.member.Renew(ctx, rs, func(i int, _ driver.Renewal) { done(i, driver.Renewal{}) })
}

func (d noHints) Inspect(context.Context, string) (driver.Info, error) {
	return driver.Info{Held: true}, nil
}

// ignoreMode grants requests of one mode even if the key is held in the other.
func ignoreMode(of driver.Mode) func(s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
	return func(s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(context.Background(), r)
		if err == nil && !res.Granted && res.Why == driver.Held && r.Mode == of && !r.Convert && res.Holder.Mode != of {
			return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL, Node: res.Node}, nil
		}
		return res, err
	}
}

// Prepare makes a plan in which the variant breaks a promise.
func (v *Variant) Prepare(seed uint64) *Plan {
	p := NewPlan(seed, v.Scenario)
	if v.prepare != nil {
		v.prepare(p)
		p.Exclusion, p.Fences, p.Progress, p.Free = "", "", "", ""
		p.judge()
	}
	return p
}

// five extends the plan to five nodes.
func (p *Plan) five() {
	for p.Nodes < 5 {
		p.Nodes++
		p.Offsets, p.Rates = append(p.Offsets, 0), append(p.Rates, 0)
	}
}

// fastClocks makes all nodes' clocks as fast as leases allow for, and cuts clients off,
// so that leases expire.
func (p *Plan) fastClocks() {
	for n := range p.Rates {
		p.Rates[n] = 0.009
	}
	p.Faults = nil
	for c := range p.TTLs {
		for n := range p.Nodes {
			p.Faults = append(p.Faults, Fault{At: time.Duration(c+1) * time.Second, Kind: CutOut, Client: c, Node: n, For: 3 * time.Second})
		}
	}
}

// pauses suspends one client after the other, each for longer than a claim time, among enough others.
func (p *Plan) pauses() {
	p.FaultsEnd = time.Minute
	p.Faults = nil
	p.TTLs, p.Skews = slices.Repeat([]time.Duration{p.MaxTTL}, 4), make([]time.Duration, 4)
	for at, n := time.Second, 0; at < p.FaultsEnd-2*time.Second; at, n = at+700*time.Millisecond, n+1 {
		p.Faults = append(p.Faults, Fault{At: at, Kind: Pause, Client: n % 4, For: time.Second})
	}
}

// backAndLate sets the store's clock back again and again, and has messages come after another owner got the key.
func (p *Plan) backAndLate() {
	p.Network = Network{Twice: 0.2, Late: 0.1, LateBy: 2 * time.Second, Hints: 100 * time.Millisecond}
	p.FaultsEnd = time.Minute
	p.Faults = nil
	for at := time.Second; at < p.FaultsEnd-time.Second; at += 2500 * time.Millisecond {
		p.Faults = append(p.Faults, Fault{At: at, Kind: Step, By: -time.Second})
	}
	p.TTLs, p.Skews = slices.Repeat([]time.Duration{p.MaxTTL}, 4), make([]time.Duration, 4)
}

// duplicate makes requests arrive twice.
func (p *Plan) duplicate() {
	p.Network = Network{Slow: 0.1, SlowBy: 30 * time.Millisecond, Twice: 0.5, Late: 0.05, LateBy: 200 * time.Millisecond}
}

// anonymous hides which store it is. n makes each a different driver.
type anonymous struct {
	member
	n int
}

func (d anonymous) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := d.member.Vote(ctx, r)
	res.Node = ""
	return res, err
}

func (v *Variant) try(s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
	if v.doTry != nil {
		return v.doTry(s, r)
	}
	return s.Vote(context.Background(), r)
}

func (v *Variant) release(s *memdriver.Store, r driver.WithdrawRequest) error {
	if v.doFree != nil {
		return v.doFree(s, r)
	}
	return s.Withdraw(context.Background(), r)
}

// prolong lengthens the TTL that the quorum reports.
func (v *Variant) prolong(to *time.Duration, ttl, took time.Duration) {
	if v.longer != nil {
		*to += v.longer(ttl, took)
	}
}
