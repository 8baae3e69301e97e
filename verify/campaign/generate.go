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

// faultsLast is how long the faults go on.
const faultsLast ms = 4500

// encoreLasts is how long the encore goes on.
const encoreLasts = time.Second

// generator makes a schedule.
type generator struct {
	*rand.Rand
	s     *Schedule
	on    int              // how many nodes there are
	busy  [nodes][][2]ms   // when something else happens to a node
	taken [clients][][2]ms // to a client's process
	bad   [clients][][2]ms // to its links
	reach [clients][]int   // the nodes that it is not cut off from all the time
	pivot int              // the node that every grant hangs on; -1: none
	fixed [nodes]bool      // its persistence is decided
	fakes int              // nodes whose clocks are stepped
}

// Generate returns the schedule of a seed, always the same. Successive seeds
// put every kind of fault first in turn.
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
		g.s.Encore = nil
	}
	return g.s
}

// fill takes incidents of a catalogue: the first by the seed, so that successive
// ones put each first in turn.
func (g *generator) fill(from []incident) {
	g.add(from[g.s.Seed%uint64(len(from))])
	for range []int{0, 1, 1, 2, 2, 3}[g.IntN(6)] {
		g.add(from[g.IntN(len(from))])
	}
	slices.SortStableFunc(g.s.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
}

// split cuts half of the clients off from two nodes, and the others from two
// others, in half of the schedules: then a majority has only just enough votes,
// and what happens to the node between them decides.
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
		g.s.Encore = append(g.s.Encore,
			Action{Kind: Partition, Part: Begin, Nodes: away, Client: c},
			Action{At: encoreLasts, Kind: Partition, Part: End, Nodes: away, Client: c})
	}
	slices.SortStableFunc(g.s.Encore, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
}

// add adds an incident at a moment when there is room for it, if there is one.
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

// overlaps says whether a span is not free. Two that touch are in each other's way:
// what begins and what ends at one moment has no order.
func overlaps(busy [][2]ms, from, to ms) bool {
	return slices.ContainsFunc(busy, func(b [2]ms) bool { return from <= b[1] && b[0] <= to })
}

// node takes a node to which nothing else happens in a span, or returns -1.
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

// client takes a client of which nothing else happens to the same, its process
// or its links, in a span, or returns -1.
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

// step leaves the clock where it stepped to. It steps the clocks of two nodes
// at most, so that a majority has its fences within bounds of each other.
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
		if g.on == 1 { // with no other to decide, everybody waits for as long
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

// link does something to the links of one client to some nodes; most is the
// largest amount in ms, 0 when there is none.
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
