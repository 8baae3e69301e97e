// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hasplock/hasp/verify/engines"
)

// engineCatalogue lists the kinds of fault of another engine.
func engineCatalogue(k engines.Kind) []incident {
	all := []incident{
		{ClientStop, (*generator).stopClient},
		{ClientKill, (*generator).killClient},
		{Break, func(g *generator, at ms) bool { return g.once(at, Break) }},
	}
	if k == engines.SQLite { // it has no servers, nor links
		return all
	}
	all = append(all, []incident{
		{Partition, func(g *generator, at ms) bool { return g.link(at, Partition, 0) }},
		{LoseRequests, func(g *generator, at ms) bool { return g.link(at, LoseRequests, 0) }},
		{LoseReplies, func(g *generator, at ms) bool { return g.link(at, LoseReplies, 0) }},
		{Hold, func(g *generator, at ms) bool { return g.link(at, Hold, 0) }},
		{Delay, func(g *generator, at ms) bool { return g.link(at, Delay, 300) }},
		{ResetLinks, (*generator).reset},
		{CutAll, (*generator).cutAll},
	}...)
	down := func(k Kind, most ms) incident {
		return incident{k, func(g *generator, at ms) bool { return g.down(at, k, most) }}
	}
	if k.Servers() == 1 {
		all = append(all, down(RestartKept, 900), down(StopNode, 2400))
	} else {
		last := ms(2000)
		if slices.Contains(engines.Replicated, k) {
			last = 5000 // so that most are replaced meanwhile
		}
		all = append(all, down(KillLeader, last), down(KillFollower, 2000), down(StopLeader, last+400), down(StopFollower, 2400))
	}
	if slices.Contains(engines.Replicated, k) {
		all = append(all, incident{KillLagging, (*generator).killLagging}, incident{CutMaster, (*generator).cutMaster},
			incident{Switch, func(g *generator, at ms) bool { return g.operate(at, Switch) }})
	}
	if k.IsCluster() {
		all = append(all, incident{Reshard, func(g *generator, at ms) bool { return g.operate(at, Reshard) }})
	}
	switch k {
	case engines.Etcd3:
		all = append(all, down(CutLeader, 2400), down(CutFollower, 2400))
	case engines.ZooKeeper, engines.ZooKeeper3:
		all = append(all, incident{Expire, (*generator).expire})
	case engines.Postgres, engines.MariaDB:
		all = append(all, incident{Terminate, func(g *generator, at ms) bool { return g.once(at, Terminate) }})
	}
	if k == engines.Etcd || k == engines.Etcd3 {
		all = append(all, incident{Revoke, func(g *generator, at ms) bool { return g.once(at, Revoke) }})
	}
	return all
}

// GenerateEngine returns the schedule of a seed for another engine, always the same. Over successive
// seeds every kind of fault comes first in turn.
func GenerateEngine(k engines.Kind, seed uint64) *Schedule {
	name := fnv.New64a()
	_, _ = name.Write([]byte(k)) // a hash refuses nothing
	g := &generator{Rand: rand.New(rand.NewPCG(seed, name.Sum64())), s: &Schedule{Seed: seed, Store: Store(k)}, on: k.Servers(), pivot: -1}
	g.s.MaxTTL = []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second}[g.IntN(3)]
	if slices.Contains(engines.Replicated, k) && k != engines.SentinelRecord {
		g.s.MaxTTL = []time.Duration{3 * time.Second, 6 * time.Second}[g.IntN(2)] // most outlive a failover
		g.s.Longest = 6 * time.Second
	}
	g.s.Long, g.s.Hasty = []int{3, 12}[g.IntN(2)], g.IntN(3) == 0
	for c := range g.reach {
		for n := range g.on {
			g.reach[c] = append(g.reach[c], n)
		}
	}
	g.fill(engineCatalogue(k))
	return g.s
}

// down is a fault of one server, which is chosen when it begins. There is one at a time, so that a majority
// is left.
func (g *generator) down(at ms, k Kind, most ms) bool {
	to := at + g.between(100, most)
	if overlaps(g.busy[0], at, to) {
		return false
	}
	g.busy[0] = append(g.busy[0], [2]ms{at, to})
	g.act(at, k, Begin, nil, -1, 0)
	g.act(to, k, End, nil, -1, 0)
	return true
}

// once is what somebody does to the servers.
func (g *generator) once(at ms, k Kind) bool {
	g.act(at, k, Begin, nil, -1, 0)
	return true
}

// expire cuts a client off from all servers for longer than its session lasts.
func (g *generator) expire(at ms) bool {
	to := at + ms(engines.Session.Milliseconds()) + g.between(600, 1500)
	c := g.client(&g.bad, at, to)
	if c < 0 {
		return false
	}
	on := slices.Clone(g.reach[c])
	g.act(at, Expire, Begin, on, c, 0)
	g.act(to, Expire, End, on, c, 0)
	return true
}

// operate is what an operator does to the servers, while none has a fault.
func (g *generator) operate(at ms, k Kind) bool {
	if overlaps(g.busy[0], at, at+1) {
		return false
	}
	g.busy[0] = append(g.busy[0], [2]ms{at, at + 1})
	return g.once(at, k)
}

// killLagging kills a master whose replicas do not have what it granted last.
func (g *generator) killLagging(at ms) bool {
	lag := g.between(200, 2000)
	to := at + lag + g.between(100, 5000)
	if overlaps(g.busy[0], at, to) {
		return false
	}
	g.busy[0] = append(g.busy[0], [2]ms{at, to})
	g.act(at, KillLagging, Begin, nil, -1, time.Duration(lag)*time.Millisecond)
	g.act(to, KillLagging, End, nil, -1, 0)
	return true
}

// cutMaster cuts the master and every other client off from all others.
func (g *generator) cutMaster(at ms) bool {
	to := at + g.between(1500, 6000)
	if overlaps(g.busy[0], at, to) {
		return false
	}
	for c := range clients {
		if overlaps(g.bad[c], at, to) {
			return false
		}
	}
	g.busy[0] = append(g.busy[0], [2]ms{at, to})
	for c := range clients {
		g.bad[c] = append(g.bad[c], [2]ms{at, to})
	}
	g.act(at, CutMaster, Begin, nil, -1, 0)
	g.act(to, CutMaster, End, nil, -1, 0)
	return true
}
