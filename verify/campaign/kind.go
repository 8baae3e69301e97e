// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"

	"github.com/hasplock/hasp/verify/engines"
)

// Kind is a kind of fault.
type Kind string

// The kinds of fault.
const (
	RestartEmpty  Kind = "restart, empty"
	RestartRDB    Kind = "restart from an old RDB snapshot"
	RestartTorn   Kind = "restart from an AOF that lost its tail (everysec)"
	RestartAOF    Kind = "restart from a whole AOF (always)"
	AllEmpty      Kind = "all five restarted empty within one TTL"
	Flush         Kind = "FLUSHALL"
	FlushHeldBack Kind = "FLUSHALL, and again while held back"
	Delete        Kind = "DEL of the lock's key by hand"
	Evict         Kind = "eviction of all that expires"
	Promote       Kind = "replica promoted at the same address"
	ClockForward  Kind = "clock of a voting node steps forward"
	ClockBack     Kind = "clock of a voting node steps back"
	ClockHeldBack Kind = "restart, empty, then its clock steps forward"
	StopNode      Kind = "node stopped (SIGSTOP), then continued"
	RefuseWrites  Kind = "node refuses writes (OOM, NOREPLICAS, MISCONF, READONLY)"
	Partition     Kind = "partition of a client from nodes"
	LoseRequests  Kind = "requests lost, replies not"
	LoseReplies   Kind = "replies lost, requests not"
	Delay         Kind = "slow link"
	Duplicate     Kind = "requests delivered twice, the second time late"
	Late          Kind = "requests delivered late, nobody waits for the reply"
	ResetLinks    Kind = "connections reset"
	ClientStop    Kind = "client stopped beyond its deadline"
	ClientKill    Kind = "client killed (kill -9)"

	// Faults of one server only.
	Split  Kind = "replica promoted, and the old master goes on"
	CutAll Kind = "partition of all clients from the server"

	// Faults of the other engines only.
	RestartKept  Kind = "server killed (kill -9), and started again with its data"
	KillLeader   Kind = "leader killed, and started again"
	KillFollower Kind = "follower killed, and started again"
	StopLeader   Kind = "leader stopped (SIGSTOP), then continued"
	StopFollower Kind = "follower stopped (SIGSTOP), then continued"
	CutLeader    Kind = "leader cut off from the other members"
	CutFollower  Kind = "follower cut off from the other members"
	Hold         Kind = "requests held back on a half-open link, then delivered"
	Expire       Kind = "session expires: a client is cut off for longer"
	Terminate    Kind = "all connections ended by the database (pg_terminate_backend, KILL)"
	Break        Kind = "leases broken by an operator (hasp break)"
	Revoke       Kind = "etcd's leases revoked"

	// Faults of Redis with replicas only.
	KillLagging Kind = "master killed right after a grant that its replicas lack, and started again"
	CutMaster   Kind = "partition, with the master and half of the clients on one side"
	Switch      Kind = "failover by an operator"
	Reshard     Kind = "hash slot moves to another master"
)

// incident adds one kind of fault to a schedule.
type incident struct {
	kind Kind
	make func(g *generator, at ms) bool
}

// catalogue lists every kind of fault of Redlock once.
var catalogue = []incident{
	{RestartEmpty, func(g *generator, at ms) bool { return g.restart(at, RestartEmpty, KeepNothing) }},
	{RestartRDB, func(g *generator, at ms) bool { return g.restart(at, RestartRDB, KeepNothing) }},
	{RestartTorn, func(g *generator, at ms) bool { return g.restart(at, RestartTorn, KeepEverySec) }},
	{RestartAOF, func(g *generator, at ms) bool { return g.restart(at, RestartAOF, KeepAlways) }},
	{AllEmpty, (*generator).allEmpty},
	{Flush, (*generator).flush},
	{FlushHeldBack, (*generator).flushTwice},
	{Delete, (*generator).delete},
	{Evict, (*generator).evict},
	{Promote, func(g *generator, at ms) bool { return g.restart(at, Promote, KeepNothing) }},
	{ClockForward, func(g *generator, at ms) bool { return g.step(at, ClockForward) }},
	{ClockBack, func(g *generator, at ms) bool { return g.step(at, ClockBack) }},
	{ClockHeldBack, (*generator).stepHeldBack},
	{StopNode, (*generator).stopNode},
	{RefuseWrites, (*generator).refuseWrites},
	{Partition, func(g *generator, at ms) bool { return g.link(at, Partition, 0) }},
	{LoseRequests, func(g *generator, at ms) bool { return g.link(at, LoseRequests, 0) }},
	{LoseReplies, func(g *generator, at ms) bool { return g.link(at, LoseReplies, 0) }},
	{Delay, func(g *generator, at ms) bool { return g.link(at, Delay, 300) }},
	{Duplicate, func(g *generator, at ms) bool { return g.link(at, Duplicate, 2500) }},
	{Late, func(g *generator, at ms) bool { return g.link(at, Late, 2500) }},
	{ResetLinks, (*generator).reset},
	{ClientStop, (*generator).stopClient},
	{ClientKill, (*generator).killClient},
}

// loneCatalogue lists the kinds of fault of one server.
var loneCatalogue = slices.Concat(
	slices.DeleteFunc(slices.Clone(catalogue), func(i incident) bool { return i.kind == AllEmpty }),
	[]incident{{Split, (*generator).splitMaster}, {CutAll, (*generator).cutAll}})

func catalogueOf(s Store) []incident {
	switch s {
	case Redlock:
		return catalogue
	case Redis, RedisNode:
		return loneCatalogue
	}
	return engineCatalogue(engines.Kind(s))
}
