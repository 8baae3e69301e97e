// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"math/rand/v2"
	"time"

	"github.com/hasplock/hasp/internal/admission"
)

// guarded marks a master that is configured to stop soon after it lost its replica.
const guarded = "with min-replicas-to-write"

// GenerateLone returns the schedule of a seed for one server, always the same. Over
// successive seeds every kind of fault comes first in turn, first without a node record
// and then with one.
func GenerateLone(seed uint64) *Schedule {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x6861737072656469)), s: &Schedule{Seed: seed, Store: Redis}, on: 1, pivot: -1}
	if seed/uint64(len(loneCatalogue))%2 == 1 {
		g.s.Store = RedisNode
	}
	g.s.MaxTTL = []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second}[g.IntN(3)]
	g.s.Shared, g.s.Strict = g.IntN(2) == 0, g.IntN(2) == 0
	g.s.Keep[0] = []Persistence{KeepNothing, KeepNothing, KeepEverySec, KeepAlways}[g.IntN(4)]
	g.s.Long, g.s.Hasty = []int{3, 12}[g.IntN(2)], g.IntN(3) == 0
	for c := range g.reach {
		g.reach[c] = []int{0}
	}
	g.fill(loneCatalogue)
	g.s.Polls = g.s.Store == Redis && g.IntN(2) == 0
	return g.s
}

// splitMaster promotes a replica while some clients go on using the old master; with a
// node record until the replica has voted for a while.
func (g *generator) splitMaster(at ms) bool {
	from, to := at-g.between(200, 450), at+g.between(1000, 2500)
	if g.s.records() {
		to += ms(admission.Wait(g.s.MaxTTL).Milliseconds())
	}
	n := g.node(from, to)
	if n < 0 {
		return false
	}
	g.act(from, Split, Prepare, []int{n}, -1, 0)
	g.act(at, Split, Begin, []int{n}, -1, 0)
	g.act(to, Split, End, []int{n}, -1, 0)
	if g.IntN(2) == 0 {
		for i := range 3 {
			g.s.Actions[len(g.s.Actions)-1-i].How = guarded
		}
	}
	return true
}

// cutAll cuts all clients off from the server.
func (g *generator) cutAll(at ms) bool {
	to := at + g.between(100, 2400)
	for c := range clients {
		if overlaps(g.bad[c], at, to) {
			return false
		}
	}
	for c := range clients {
		g.bad[c] = append(g.bad[c], [2]ms{at, to})
	}
	g.act(at, CutAll, Begin, []int{0}, -1, 0)
	g.act(to, CutAll, End, []int{0}, -1, 0)
	return true
}
