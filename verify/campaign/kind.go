// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

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
	Late          Kind = "requests delivered late, when no client waits for the reply"
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
