// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// ms is a moment of a schedule in milliseconds: seeds give whole ones, which
// are easier to read.
type ms int

// faultsLast is for how long faults are injected.
const faultsLast ms = 4500

// afterRecoveryLasts is how long the actions of AfterRecovery last.
const afterRecoveryLasts = time.Second

// generator makes a schedule.
type generator struct {
	*rand.Rand
	s     *Schedule
	on    int              // how many nodes there are
	busy  [nodes][][2]ms   // when a node already has another fault
	taken [clients][][2]ms // when a client's process has one
	bad   [clients][][2]ms // when its links have one
	reach [clients][]int   // the nodes that it is not permanently cut off from
	pivot int              // the node whose vote every grant needs; -1: none
	fixed [nodes]bool      // its persistence is already chosen
	fakes int              // nodes whose clocks are stepped
}

// Generate returns the schedule of a seed, always the same. Over successive seeds
// every kind of fault comes first in turn.
func Generate(seed uint64) *Schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x6861737063616d70)), s: &Schedule{Seed: seed, Store: Redlock}, on: nodes}
	g.s.MaxTTL = []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second}[g.IntN(3)]
	for i := range g.s.Skew {
		g.s.Skew[i] = []time.Duration{0, 0, 3 * time.Second, -time.Second, -10 * time.Second, -time.Hour}[g.IntN(6)]
	}
	g.s.Shared, g.s.Strict = g.IntN(2) == 0, g.IntN(2) == 0
	for i := range g.s.Keep {
		g.s.Keep[i] = []Persistence{KeepNothing, KeepNothing, KeepEverySec, KeepAlways}[g.IntN(4)]
	}
	g.split()
	g.fill(catalogue)
	if !slices.ContainsFunc(g.s.Actions, Action.forgets) {
		g.s.AfterRecovery = nil
	}
	return g.s
}

// fill draws incidents from a catalogue. The seed determines the first, so that over
// successive seeds each comes first in turn.
func (g *generator) fill(from []incident) {
	g.add(from[g.s.Seed%uint64(len(from))])
	for range []int{0, 1, 1, 2, 2, 3}[g.IntN(6)] {
		g.add(from[g.IntN(len(from))])
	}
	slices.SortStableFunc(g.s.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
}

// split cuts half of the clients off from two nodes, and the others from two
// others, in half of the schedules: then each majority has just enough votes, and
// both need the vote of the one common node.
func (g *generator) split() {
	on := g.Perm(nodes)
	g.pivot, g.s.Long = on[0], 3
	if g.IntN(2) == 0 {
		g.pivot, g.s.Long = -1, 12
	}
	for c := range clients {
		if g.pivot < 0 {
			g.reach[c] = on
			continue
		}
		away := slices.Clone(on[1+c%2*2:][:2])
		slices.Sort(away)
		g.reach[c] = slices.DeleteFunc(slices.Clone(on), func(n int) bool { return slices.Contains(away, n) })
		g.act(0, Partition, Begin, away, c, 0)
		g.act(faultsLast, Partition, End, away, c, 0)
		g.s.AfterRecovery = append(g.s.AfterRecovery,
			Action{Kind: Partition, Part: Begin, Nodes: away, Client: c},
			Action{At: afterRecoveryLasts, Kind: Partition, Part: End, Nodes: away, Client: c})
	}
	slices.SortStableFunc(g.s.AfterRecovery, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
}

// add adds an incident at a moment when nothing is in its way, if it finds one.
func (g *generator) add(i incident) {
	for range 20 {
		if i.make(g, g.between(500, faultsLast-2500)) {
			return
		}
	}
}

func (g *generator) between(from, to ms) ms { return from + ms(g.IntN(int(to-from))) }

func (g *generator) act(at ms, k Kind, p Part, on []int, client int, by time.Duration) {
	g.s.Actions = append(g.s.Actions, Action{At: time.Duration(at) * time.Millisecond, Kind: k, Part: p, Nodes: on, Client: client, By: by})
}

// overlaps reports whether a span is not free. Spans that touch overlap, because the
// end of one and the beginning of the other would have no order.
func overlaps(busy [][2]ms, from, to ms) bool {
	return slices.ContainsFunc(busy, func(b [2]ms) bool { return from <= b[1] && b[0] <= to })
}

// node reserves a node without another fault in a span, or returns -1.
func (g *generator) node(from, to ms) int {
	n := g.IntN(g.on)
	if g.pivot >= 0 && g.IntN(3) > 0 {
		n = g.pivot
	}
	if overlaps(g.busy[n], from, to) {
		return -1
	}
	g.busy[n] = append(g.busy[n], [2]ms{from, to})
	return n
}

// client reserves a client whose process, or whose links, have no other fault in a
// span, or returns -1.
func (g *generator) client(of *[clients][][2]ms, from, to ms) int {
	c := g.IntN(clients)
	if overlaps(of[c], from, to) {
		return -1
	}
	of[c] = append(of[c], [2]ms{from, to})
	return c
}

// some returns n nodes in order.
func (g *generator) some(n int) []int {
	on := g.Perm(g.on)[:min(n, g.on)]
	slices.Sort(on)
	return on
}

func (g *generator) restart(at ms, k Kind, keep Persistence) bool {
	from, to := at, at+g.between(50, 900)
	if k == RestartRDB || k == Promote {
		from -= g.between(200, 450) // for the snapshot, or the replica
	}
	n := g.node(from, to)
	if n < 0 {
		return false
	}
	if g.fixed[n] && g.s.Keep[n] != keep {
		return false
	}
	g.fixed[n], g.s.Keep[n] = true, keep
	if from < at {
		g.act(from, k, Prepare, []int{n}, -1, 0)
	}
	g.act(at, k, Begin, []int{n}, -1, 0)
	g.act(to, k, End, []int{n}, -1, 0)
	return true
}

func (g *generator) allEmpty(at ms) bool {
	gap := ms(g.s.MaxTTL.Milliseconds()) / nodes
	for n := range nodes {
		if overlaps(g.busy[n], at, at+nodes*gap) {
			return false
		}
	}
	for i, n := range g.Perm(nodes) {
		g.busy[n] = append(g.busy[n], [2]ms{at, at + nodes*gap})
		from := at + ms(i)*gap
		g.act(from, AllEmpty, Begin, []int{n}, -1, 0)
		g.act(from+g.between(10, gap-10), AllEmpty, End, []int{n}, -1, 0)
	}
	return true
}

func (g *generator) flush(at ms) bool {
	n := g.node(at, at+1)
	if n < 0 {
		return false
	}
	g.act(at, Flush, Begin, []int{n}, -1, 0)
	return true
}

func (g *generator) flushTwice(at ms) bool {
	again := at + g.between(200, 2000)
	n := g.node(at, again+1)
	if n < 0 {
		return false
	}
	g.act(at, FlushHeldBack, Begin, []int{n}, -1, 0)
	g.act(again, FlushHeldBack, End, []int{n}, -1, 0)
	return true
}

func (g *generator) delete(at ms) bool {
	on := g.some(1 + g.IntN(3))
	for _, n := range on {
		if overlaps(g.busy[n], at, at+1) {
			return false
		}
	}
	for _, n := range on {
		g.busy[n] = append(g.busy[n], [2]ms{at, at + 1})
	}
	g.act(at, Delete, Begin, on, -1, 0)
	return true
}

func (g *generator) evict(at ms) bool {
	to := at + g.between(100, 500)
	n := g.node(at, to)
	if n < 0 {
		return false
	}
	g.act(at, Evict, Begin, []int{n}, -1, 0)
	g.act(to, Evict, End, []int{n}, -1, 0)
	return true
}

// step does not step the clock back at the end. It steps the clocks of two nodes at
// most, so that a majority's fences stay close enough to each other.
func (g *generator) step(at ms, k Kind) bool {
	if g.fakes == 2 {
		return false
	}
	n := g.node(at, faultsLast)
	if n < 0 {
		return false
	}
	g.fakes++
	by := []time.Duration{time.Second, 2500 * time.Millisecond, time.Minute, time.Hour}[g.IntN(4)]
	if k == ClockBack {
		by = -by
		if g.on == 1 { // with no other node to decide, everybody would wait for as long
			by = max(by, -2500*time.Millisecond)
		}
	}
	g.act(at, k, Begin, []int{n}, -1, by)
	return true
}

func (g *generator) stepHeldBack(at ms) bool {
	if g.fakes == 2 {
		return false
	}
	n := g.node(at, faultsLast)
	if n < 0 {
		return false
	}
	g.fakes++
	up := at + g.between(50, 500)
	g.act(at, ClockHeldBack, Begin, []int{n}, -1, 0)
	g.act(up, ClockHeldBack, End, []int{n}, -1, []time.Duration{2 * time.Minute, time.Hour}[g.IntN(2)])
	return true
}

func (g *generator) stopNode(at ms) bool {
	to := at + g.between(100, 2400)
	n := g.node(at, to)
	if n < 0 {
		return false
	}
	g.act(at, StopNode, Begin, []int{n}, -1, 0)
	g.act(to, StopNode, End, []int{n}, -1, 0)
	return true
}

// link adds a fault of the links of one client to some nodes; most is the largest
// amount in ms, 0 if the fault has none.
func (g *generator) link(at ms, k Kind, most ms) bool {
	to := at + g.between(300, 2400)
	c := g.client(&g.bad, at, to)
	if c < 0 {
		return false
	}
	on := slices.Clone(g.reach[c])
	g.Shuffle(len(on), func(i, j int) { on[i], on[j] = on[j], on[i] })
	on = on[:1+g.IntN(len(on))]
	slices.Sort(on)
	var by time.Duration
	if most > 0 {
		by = time.Duration(g.between(20, most)) * time.Millisecond
	}
	g.act(at, k, Begin, on, c, by)
	g.act(to, k, End, on, c, 0)
	return true
}

func (g *generator) reset(at ms) bool {
	c := g.client(&g.bad, at, at+1)
	if c < 0 {
		return false
	}
	g.act(at, ResetLinks, Begin, g.some(1+g.IntN(g.on)), c, 0)
	return true
}

func (g *generator) stopClient(at ms) bool {
	ttl := ms(g.s.MaxTTL.Milliseconds())
	to := at + ttl*11/10 + g.between(0, 300)
	c := g.client(&g.taken, at, to)
	if c < 0 {
		return false
	}
	g.act(at, ClientStop, Begin, nil, c, 0)
	g.act(to, ClientStop, End, nil, c, 0)
	return true
}

func (g *generator) killClient(at ms) bool {
	to := at + g.between(50, 1500)
	c := g.client(&g.taken, at, to)
	if c < 0 {
		return false
	}
	g.act(at, ClientKill, Begin, nil, c, 0)
	g.act(to, ClientKill, End, nil, c, 0)
	return true
}
