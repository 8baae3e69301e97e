// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/verify/broken"
)

// sabotage is a variant, and where it shows.
type sabotage struct {
	name     string
	breaks   Promise  // what it breaks in schedules of the scenario
	scenario string   // may be empty
	stories  []string // each breaks a promise

	prepare func(p *Plan) // further changes to the schedule of the scenario
	without Variant
}

// sabotages are all of them.
var sabotages = []*sabotage{
	{
		name: "restarted nodes vote", scenario: "all at once", without: Variant{node: broken.VotesAfter(0)}, stories: []string{
			twoSides + "b locks; b releases; 1s; a locks; empty 2; b asks",
			twoSides + "b locks; b releases; 1s; a reads; empty 2; b asks",
		},
	},
	{
		name: "the time that a node is up counts, not its record", without: Variant{node: broken.VotesAfter(storyTTL)},
		stories: []string{twoSides + "b locks; b releases; 1s; a locks; flush 2; b asks"},
	},
	{
		name: "a minority counts", scenario: "partitions", without: Variant{link: broken.SilenceCounts},
		stories: []string{"a reaches 01; b reaches 234; a asks; b locks"},
	},
	{
		name: "a node listed twice", scenario: "calm", stories: []string{"a reaches 0; a asks"},
		without: Variant{link: broken.Anonymous, lists: func(client int) []int { return []int{client % 3, client % 3, (client + 1) % 3} }},
	},
	{
		name: "fences are not compared", scenario: "calm", breaks: Fences, without: Variant{node: broken.AnyFence},
		prepare: func(p *Plan) { p.Skews[0] = 2 * time.Second },
		stories: []string{
			"c locks; 11s; b is 10s behind; a locks; a releases; 1s; b locks; b releases", // c has the nodes know a fence
			"c locks; 11s; b is 10s behind; a reads; a releases; 1s; b locks; b releases",
		},
	},
	{
		name: "a reader's vote beside a writer's", scenario: "calm", without: Variant{node: broken.ReadersIgnoreMode},
		stories: []string{twoSides + "a locks; b asks to read"},
	},
	{
		name: "a writer's vote beside readers'", scenario: "calm", without: Variant{node: broken.WritersIgnoreMode},
		stories: []string{twoSides + "a reads; b asks"},
	},
	{
		name: "drift and the time that a call takes are ignored", scenario: "clocks within bounds", prepare: (*Plan).fastClocks,
		without: Variant{whole: broken.All(broken.NoDrift, broken.LateTry, broken.LateRenew)},
	},
	{name: "drift is ignored", without: Variant{whole: broken.NoDrift}, stories: []string{"fast 0.009; a locks; 9.95s; b locks"}},
	{
		name: "the time that a Try takes is not subtracted", without: Variant{whole: broken.LateTry},
		stories: []string{"a hears 500ms late; a locks; 9.6s; b locks"},
	},
	{
		name: "the time that a Renew takes is not subtracted", without: Variant{whole: broken.LateRenew},
		stories: []string{"a locks; a hears 500ms late; a renews; 9.6s; b locks"},
	},
	{
		name: "votes of a failed attempt are kept", without: Variant{both: broken.KeepVotes},
		stories: []string{"a reaches 01; b reaches 012; a is refused; 1s; b must lock"},
	},
	{name: "a vote is withdrawn whatever its fence", scenario: "messages", prepare: (*Plan).duplicate, without: Variant{node: broken.AnyWithdrawn}},
	{
		name: "a release deletes whatever is there", scenario: "clients", without: Variant{node: broken.BlindRelease},
		stories: []string{"a locks; 11s; b locks; a releases; c asks"},
	},
	{
		name: "a reader's release takes the others' votes", without: Variant{node: broken.ReleaseAll},
		stories: []string{"a reads; b reads; 1s; a releases; c asks"},
	},
	{
		name: "released owners are not remembered", without: Variant{node: broken.NoTombstones},
		stories: []string{"alone; a sends 3s late; a gives up; 3s; free"},
	},
	{name: "a waiter that enters counts from when the message came", scenario: "lone, clients", prepare: (*Plan).pauses, without: Variant{whole: broken.LateEnter}},
	{name: "a waiter that enters does not look at fences", scenario: "lone, clocks within bounds", prepare: (*Plan).backAndLate, without: Variant{node: broken.NoNewest}},
	{name: "a waiter that enters is not told of a holder that did not finish", scenario: "lone, clients", breaks: Told, without: Variant{whole: broken.EnterUntold}},
	{
		name: "a node tells a floor and forgets it", scenario: "calm", breaks: Progress, without: Variant{node: broken.ForgetsFloor},
		prepare: func(p *Plan) { p.Gaps = []time.Duration{13 * time.Hour} },
	},
	{name: "waiters get no hints, and see nothing", scenario: "calm", breaks: Free, without: Variant{link: broken.All(broken.NoHints, broken.SeesNothing)}},
}

// twoSides have one node in common.
const twoSides = "a reaches 012; b reaches 234; "

// Prepare makes a plan in which the variant breaks a promise.
func (v *sabotage) plan(seed uint64) *Plan {
	p := NewPlan(seed, v.scenario)
	if v.prepare != nil {
		v.prepare(p)
		p.judge()
	}
	return p
}

// fastClocks makes all nodes' clocks as fast as leases allow for, and cuts clients off, so that leases expire.
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

// TestBroken checks that every broken variant is caught, by each of its stories, and by a schedule of its scenario;
// in those the unbroken one keeps all promises.
func TestBroken(t *testing.T) {
	for _, v := range sabotages {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			for _, story := range v.stories {
				failOn(t, play(t, storyPlan(story), nil))
				r := play(t, storyPlan(story), &v.without)
				if len(r.Violations) == 0 || len(r.Found[Reached]) > 0 {
					t.Errorf("%q: found %q", story, r.Violations)
				}
				t.Logf("%q: %q", story, r.Violations)
			}
			if v.scenario != "" {
				explore(t, v)
			}
		})
	}
}

// explore plays seeds until one catches a variant.
func explore(t *testing.T, v *sabotage) {
	for n := range uint64(mostSeeds) {
		r := play(t, v.plan(n+1), &v.without)
		if found := r.Found[v.breaks]; len(found) > 0 && r.Plan.May[v.breaks] == "" {
			t.Logf("seed %d: %s", n+1, found[0])
			failOn(t, play(t, v.plan(n+1), nil))
			return
		}
	}
	t.Errorf("nothing found in %d seeds", mostSeeds)
}

// mostSeeds is within how many seeds a broken variant must be caught.
const mostSeeds = 300
