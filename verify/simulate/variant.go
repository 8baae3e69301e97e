// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/verify/broken"
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

	prepare           func(p *Plan)          // further changes to the schedule
	node, link, whole broken.Fault           // of the nodes, of what a client reaches of each, and of a client's quorum or lone store
	lists             func(client int) []int // the nodes that a client takes for all
}

// Broken lists the variants.
var Broken = []*Variant{
	{Name: "restarted nodes vote", Scenario: "all at once", node: broken.VotesAfter(0)},
	{Name: "a minority counts", Scenario: "partitions", link: broken.SilenceCounts},
	{
		Name: "a node listed twice", Scenario: "calm", link: broken.Anonymous,
		lists: func(client int) []int { return []int{client % 3, client % 3, (client + 1) % 3} },
	},
	{
		Name: "fences are not compared", Scenario: "calm", Fences: true, node: broken.AnyFence,
		prepare: func(p *Plan) { p.Skews[0] = 2 * time.Second },
	},
	{Name: "a reader's vote beside a writer's", Scenario: "calm", node: broken.ReadersIgnoreMode},
	{Name: "a writer's vote beside readers'", Scenario: "calm", node: broken.WritersIgnoreMode},
	{
		Name: "drift and the time that a call takes are ignored", Scenario: "clocks within bounds", prepare: (*Plan).fastClocks,
		whole: broken.All(broken.NoDrift, broken.LateTry, broken.LateRenew),
	},
	{Name: "a vote is withdrawn whatever its fence", Scenario: "messages", prepare: (*Plan).duplicate, node: broken.AnyWithdrawn},
	{Name: "a release deletes whatever is there", Scenario: "clients", node: broken.BlindRelease},
	{Name: "who enters counts from when the message came", Scenario: "lone, clients", prepare: (*Plan).pauses, whole: broken.LateEnter},
	{Name: "who enters does not look at fences", Scenario: "lone, clocks within bounds", prepare: (*Plan).backAndLate, node: broken.NoNewest},
	{Name: "who enters is not told of one that did not finish", Scenario: "lone, clients", Marks: true, whole: broken.EnterUntold},
	{
		Name: "a node tells a floor and forgets it", Scenario: "calm", Stuck: true, node: broken.ForgetsFloor,
		prepare: func(p *Plan) { p.Gaps = []time.Duration{13 * time.Hour} },
	},
	{Name: "waiters get no hints, and see nothing", Scenario: "calm", Free: true, link: broken.All(broken.NoHints, broken.SeesNothing)},
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
