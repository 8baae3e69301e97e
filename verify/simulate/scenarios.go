// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math/rand/v2"
	"slices"
	"time"
)

// scenario is one kind of schedule: it adds faults to a plan.
type scenario struct {
	name   string
	weight int // how often it is chosen
	write  func(g *generator)
}

// scenarios are the kinds of schedule. Those from "clock forward" on break an assumption; Plan.judge determines which.
var scenarios = []scenario{
	{"calm", 1, func(*generator) {}},
	{"messages", 3, func(g *generator) { g.storm() }},
	{"partitions", 2, func(g *generator) { g.some(6, g.cut) }},
	{"restarts", 4, func(g *generator) { g.some(5, g.restart) }},
	{"rolling restart", 1, func(g *generator) { g.rolling() }},
	{"all at once", 1, func(g *generator) { g.together(g.p.Nodes) }},
	{"stops", 2, func(g *generator) { g.some(6, g.stop) }},
	{"clocks within bounds", 3, func(g *generator) { g.slew(); g.some(3, g.stepBack); g.some(2, g.stepLittle) }},
	{"clients", 3, func(g *generator) { g.some(5, g.pause); g.some(2, g.crash) }},
	{"mixed", 8, func(g *generator) { g.mixed() }},
	{"clock forward", 3, func(g *generator) { g.some(4, g.stepForward); g.some(3, g.pause); g.some(2, g.cut) }},
	{"clocks forward together", 1, func(g *generator) { g.allForward(); g.allForward() }},
	{"clock fast", 1, func(g *generator) { g.fast(); g.some(3, g.pause); g.some(3, g.cut) }},
	{"forward and restarts", 2, func(g *generator) { g.mixed(); g.some(3, g.stepForward) }},
	{"wrong clocks that forget", 2, func(g *generator) { g.far(); g.some(5, g.restart) }},
	{"clocks set back that forget", 1, func(g *generator) { g.setBack() }},
	{"everything", 3, func(g *generator) { g.mixed(); g.far(); g.some(3, g.stepForward); g.fast() }},
}

// lones are the kinds of schedule for one store alone. The last two break an assumption.
var lones = []scenario{
	{"lone, calm", 1, func(*generator) {}},
	{"lone, messages", 3, func(g *generator) { g.storm() }},
	{"lone, partitions", 2, func(g *generator) { g.some(6, g.cut) }},
	{"lone, clients", 3, func(g *generator) { g.some(5, g.pause); g.some(2, g.crash) }},
	{"lone, clocks within bounds", 3, func(g *generator) { g.slew(); g.some(3, g.stepBack); g.some(2, g.stepLittle) }},
	{"lone, restarts kept", 3, func(g *generator) { g.some(5, g.restartKept); g.some(2, g.stop) }},
	{"lone, mixed", 6, func(g *generator) { g.mixed() }},
	{"lone, clock forward", 2, func(g *generator) { g.mixed(); g.some(4, g.stepForward) }},
	{"lone, restarts", 2, func(g *generator) { g.mixed(); g.some(4, g.restart) }},
}

// NewPlan generates the schedule of a seed. With an empty name the seed chooses the scenario: one
// in six is of one store alone, by numbers of its own, so that the others do not depend on them.
func NewPlan(seed uint64, name string) *Plan {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))}
	s := g.choose(scenarios, name)
	l := &generator{Rand: rand.New(rand.NewPCG(seed, 1<<62))}
	if alone, one := l.choose(lones, name), l.oneIn(6); alone.name == name || one && s.name != name {
		return l.plan(seed, alone, true).pauseUse()
	}
	return g.plan(seed, s, false).pauseUse()
}

// plan generates a plan of a scenario.
func (g *generator) plan(seed uint64, s scenario, alone bool) *Plan {
	g.p = &Plan{Seed: seed, Scenario: s.name, Nodes: 3, MaxTTL: 2 * time.Second}
	p := g.p
	if g.oneIn(4) {
		p.Nodes = 5
	}
	if p.Lone = alone; alone {
		p.Nodes = 1
	}
	p.Admitted = !g.oneIn(6)
	p.Eager = g.oneIn(2)
	for range 2 + g.IntN(3) {
		p.TTLs = append(p.TTLs, g.between(p.MaxTTL/2, p.MaxTTL))
		p.Skews = append(p.Skews, g.skew())
	}
	if alone {
		clear(p.Skews) // no fence is a client's
	}
	for range p.Nodes {
		p.Offsets = append(p.Offsets, g.between(-time.Second, time.Second))
		p.Rates = append(p.Rates, 0)
	}
	p.Network = Network{Slow: 0.01, SlowBy: 30 * time.Millisecond}
	g.length = g.between(6*time.Second, 16*time.Second)
	if g.oneIn(3) { // long enough for nodes to vote again
		g.length += 16 * time.Second
	}
	p.FaultsEnd = g.length
	s.write(g)
	if g.oneIn(3) {
		g.storm()
	}
	p.judge()
	return p
}

// generator generates a plan.
type generator struct {
	*rand.Rand
	p      *Plan
	length time.Duration
}

// choose draws a scenario, unless there is one of that name. It draws in either case,
// so that a seed gives the same plan whether its scenario is named or not.
func (g *generator) choose(scenarios []scenario, name string) scenario {
	total := 0
	for _, s := range scenarios {
		total += s.weight
	}
	n := g.IntN(total)
	if i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name }); i >= 0 {
		return scenarios[i]
	}
	for _, s := range scenarios {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("unreachable")
}

// oneIn returns true with probability 1/n.
func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g *generator) between(a, b time.Duration) time.Duration {
	return a + time.Duration(g.Int64N(int64(b-a)+1))
}

// some calls do at least once and at most n times.
func (g *generator) some(n int, do func()) {
	for range 1 + g.IntN(n) {
		do()
	}
}

func (g *generator) add(f Fault) {
	if f.At == 0 {
		f.At = g.between(0, g.length-time.Second)
	}
	g.p.Faults = append(g.p.Faults, f)
}

func (g *generator) node() int   { return g.IntN(g.p.Nodes) }
func (g *generator) client() int { return g.IntN(len(g.p.TTLs)) }

// skew draws how far a client's wall clock is ahead.
func (g *generator) skew() time.Duration {
	switch {
	case g.oneIn(2):
		return g.between(-20*time.Millisecond, 20*time.Millisecond)
	case g.oneIn(6):
		return g.between(-time.Hour, time.Hour)
	}
	return g.between(-3*time.Second, 3*time.Second)
}

// storm makes the network unreliable.
func (g *generator) storm() {
	g.p.Network = Network{
		Slow: 0.2 * g.Float64(), SlowBy: g.between(10*time.Millisecond, 300*time.Millisecond),
		Lost: 0.1 * g.Float64(), Reset: 0.05 * g.Float64(),
		Twice: 0.2 * g.Float64(), Late: 0.05 * g.Float64(),
		LateBy: g.between(50*time.Millisecond, 5*time.Second),
	}
	if g.oneIn(8) {
		g.p.Network.LateBy = 20 * time.Second
	}
	if g.p.Lone && g.oneIn(3) { // spurious hints
		g.p.Network.Hints = g.between(20*time.Millisecond, 500*time.Millisecond)
	}
}

func (g *generator) cut() {
	kind := CutOut
	if g.oneIn(2) {
		kind = CutIn
	}
	f := Fault{At: g.between(0, g.length-time.Second), Kind: kind, Client: g.client(), For: g.between(50*time.Millisecond, 5*time.Second)}
	for range 1 + g.IntN(g.p.Nodes) {
		f.Node = g.node()
		g.add(f)
		if g.oneIn(2) { // both ways
			f.Kind = CutOut + CutIn - f.Kind
			g.add(f)
		}
	}
}

// restart kills or flushes a node, in one of several ways.
func (g *generator) restart() { g.restartAt(g.node(), g.between(0, g.length-time.Second)) }

func (g *generator) restartAt(n int, at time.Duration) {
	f := Fault{At: at, Kind: []FaultKind{RestartEmpty, RestartSaved, RestartSaved, RestartKept, Flush}[g.IntN(5)], Node: n}
	if f.Kind == RestartSaved {
		age := g.between(0, time.Second) // AOF everysec
		if g.oneIn(2) {
			age = g.between(0, at) // RDB
		}
		g.add(Fault{At: max(at-age, 1), Kind: Save, Node: n})
	}
	if f.Kind != Flush {
		f.For = g.between(time.Millisecond, 800*time.Millisecond)
		if g.oneIn(4) { // the host reboots, and its clock is set
			f.By = g.between(-2*time.Second, 2*time.Second)
		}
	}
	g.add(f)
	if g.oneIn(4) { // again while it is held back
		again := at + f.For + g.between(0, 4*time.Second)
		if again < g.length-time.Second {
			g.restartAt(n, again)
		}
	}
}

// rolling restarts one node after another.
func (g *generator) rolling() {
	at := g.between(0, time.Second)
	step := g.length / time.Duration(g.p.Nodes+1)
	for n := range g.p.Nodes {
		g.restartAt(n, at)
		at += step
	}
}

// together restarts n nodes at nearly the same moment.
func (g *generator) together(n int) {
	at := g.between(0, g.length-2*time.Second)
	for _, n := range g.Perm(g.p.Nodes)[:n] {
		g.restartAt(n, at+g.between(0, 100*time.Millisecond))
	}
}

// restartKept kills a node that loses nothing by it.
func (g *generator) restartKept() {
	f := Fault{Kind: RestartKept, Node: g.node(), For: g.between(time.Millisecond, 800*time.Millisecond)}
	if g.oneIn(4) { // the host reboots, and its clock is set
		f.By = -g.between(0, 2*time.Second)
	}
	g.add(f)
}

// one adds a fault of a node or a client, which lasts, or steps a clock, by a time between two.
func (g *generator) one(kind FaultKind, least, most time.Duration) {
	f := Fault{Kind: kind, For: g.between(least, most)}
	switch kind {
	case Pause, Crash:
		f.Client = g.client()
	case Step:
		f.Node, f.By, f.For = g.node(), f.For, 0
	default:
		f.Node = g.node()
	}
	g.add(f)
}

func (g *generator) stop()        { g.one(Stop, 10*time.Millisecond, 4*time.Second) }
func (g *generator) stepBack()    { g.one(Step, -2*time.Second, -time.Millisecond) }
func (g *generator) stepLittle()  { g.one(Step, time.Millisecond, time.Millisecond) }
func (g *generator) stepForward() { g.one(Step, 50*time.Millisecond, 4*time.Second) }
func (g *generator) pause()       { g.one(Pause, 10*time.Millisecond, 6*time.Second) }
func (g *generator) crash()       { g.one(Crash, 10*time.Millisecond, 3*time.Second) }

// slew gives every node's clock a rate within the drift that leases allow for.
func (g *generator) slew() {
	most := 0.005
	if g.p.Lone {
		most = 0.009
	}
	for n := range g.p.Rates {
		g.p.Rates[n] = 2*most*g.Float64() - most
	}
	g.add(Fault{Kind: Rate, Node: g.node(), Rate: 2*most*g.Float64() - most})
}

// allForward steps most nodes' clocks forward at nearly the same moment.
func (g *generator) allForward() {
	at := g.between(0, g.length-time.Second)
	for _, n := range g.Perm(g.p.Nodes)[:g.p.Nodes/2+1] {
		g.add(Fault{At: at + g.between(0, 10*time.Millisecond), Kind: Step, Node: n, By: g.between(500*time.Millisecond, 4*time.Second)})
	}
}

// setBack restarts all nodes empty. Their clocks are ahead before, and right afterwards.
func (g *generator) setBack() {
	g.p.FaultsEnd += 16 * time.Second
	at := g.between(2*time.Second, g.length-2*time.Second)
	for n := range g.p.Offsets {
		g.p.Offsets[n] = g.between(time.Minute, 2*time.Minute)
		g.add(Fault{At: at + g.between(0, 100*time.Millisecond), Kind: RestartEmpty, Node: n, For: 10 * time.Millisecond, By: -g.p.Offsets[n]})
	}
}

func (g *generator) fast() {
	g.p.Rates[g.node()] = 0.02 + 0.2*g.Float64()
}

// far sets clocks wrong by more than fences tolerate after a node lost its data.
func (g *generator) far() {
	for n := range g.p.Offsets {
		if g.oneIn(2) {
			g.p.Offsets[n] = g.between(-2*time.Minute, 2*time.Minute)
		}
	}
	if g.oneIn(2) {
		g.add(Fault{Kind: Step, Node: g.node(), By: -g.between(time.Second, time.Hour)})
	}
}

// mixed combines many faults, all of which leases and fences tolerate.
func (g *generator) mixed() {
	restart := g.restart
	if g.p.Lone {
		restart = g.restartKept
	}
	g.storm()
	for _, do := range []func(){g.cut, restart, g.stop, g.stepBack, g.pause, g.crash} {
		if !g.oneIn(3) {
			g.some(3, do)
		}
	}
	if g.oneIn(2) {
		g.slew()
	}
	if !g.p.Lone && g.oneIn(4) {
		g.together(1 + g.IntN(g.p.Nodes))
	}
}
