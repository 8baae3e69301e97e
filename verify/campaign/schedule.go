// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hasplock/hasp/verify/engines"
)

const (
	nodes   = 5
	keys    = 2
	clients = 4

	// commandLimit bounds a command of the campaign itself.
	commandLimit = 10 * time.Second
	// hangLimit is how long a run waits for an event that may never happen.
	hangLimit = 40 * time.Second
	// shortHold is the longest of most holds.
	shortHold = 40 * time.Millisecond
)

// Store is the kind of store that keeps the locks: an engine, or Redis on nodes that keep something, or have a clock, of their own.
type Store = engines.Kind

// The stores beside the engines.
const (
	Redlock   Store = "five servers"
	Redis     Store = "one server"
	RedisNode Store = "one server with a node record"
)

// Persistence is what a node writes to its disk.
type Persistence string

// The ways to persist.
const (
	KeepNothing  Persistence = "nothing"
	KeepEverySec Persistence = "AOF everysec"
	KeepAlways   Persistence = "AOF always"
)

// Part is a part of a fault.
type Part string

// The parts of a fault. Not each kind has all.
const (
	Prepare Part = "prepare" // what has to be done before, without effect on a client
	Begin   Part = "begin"
	End     Part = "end"
)

// Action begins or ends one fault at a moment.
type Action struct {
	At     time.Duration // since the faults began
	Kind   Kind
	Part   Part
	Nodes  []int // from 0
	Client int   // from 0; -1: none in particular
	// By is a clock's step, a link's delay, how late a request arrives, or for how long at most replicas receive nothing before their master is killed.
	By  time.Duration
	How string // of RefuseWrites: how the errors begin; of Split: guarded, or not; of KillLagging: overtaken, or not
}

func (a Action) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5dms  %-7s %s", a.At.Milliseconds(), a.Part, a.Kind)
	if len(a.Nodes) > 0 {
		fmt.Fprintf(&b, "; nodes %v", a.Nodes)
	}
	if a.Client >= 0 {
		fmt.Fprintf(&b, "; client %d", a.Client)
	}
	if a.By != 0 {
		fmt.Fprintf(&b, "; by %v", a.By)
	}
	if a.How != "" {
		fmt.Fprintf(&b, "; %s", a.How)
	}
	return b.String()
}

// Schedule is everything that is decided before a run. It is derived from Seed.
type Schedule struct {
	Seed    uint64
	Store   Store
	MaxTTL  time.Duration
	Keep    [nodes]Persistence
	Skew    [clients]time.Duration // of the clients' clocks, as far as fences go
	Shared  bool                   // clients share the file of waits
	Strict  bool                   // the clients' go-redis never sends a command twice, and obeys contexts
	Long    int                    // one hold in so many is long
	Longest time.Duration          // of those; 0: one and a half TTLs
	Hasty   bool                   // waiters give up within a second
	Polls   bool                   // no client waits: each asks once, and again later
	Wired   bool                   // the links are real, between namespaces; otherwise proxies
	Agent   string                 // the command through whose agents the clients lock; empty: they do it by themselves
	Alone   bool                   // and hold each key alone, for Longest
	Linger  time.Duration          // of those locks
	Alive   time.Duration          // for how long their clients may be silent; 0: without a bound
	Heirs   [clients]time.Duration // for how long a child with its connection outlives a client; 0: there is none
	Actions []Action
	// AfterRecovery is what happens once all nodes that lost data vote again. Its times are counted from then.
	AfterRecovery []Action
}

// String describes the schedule. Equal texts mean equal schedules.
func (s *Schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s; TTL %v; nodes keep %v; clients' clocks off by %v; waits shared: %v; strict connections: %v; one hold in %d is long; hasty: %v; polls: %v; links in namespaces: %v\n",
		s.Seed, s.Store, s.MaxTTL, s.Keep[:min(s.on(), nodes)], s.Skew, s.Shared, s.Strict, s.Long, s.Hasty, s.Polls, s.Wired)
	if s.Agent != "" {
		fmt.Fprintf(&b, "  through agents; linger %v; silent for %v at most; children outlive clients by %v\n", s.Linger, s.Alive, s.Heirs)
	}
	for _, a := range s.Actions {
		fmt.Fprintf(&b, "  %v\n", a)
	}
	for _, a := range s.AfterRecovery {
		fmt.Fprintf(&b, "  once all nodes vote again, %v\n", a)
	}
	for _, why := range s.MayOverlap() {
		fmt.Fprintf(&b, "  exclusion may break: %s\n", why)
	}
	for _, why := range s.MayRepeat() {
		fmt.Fprintf(&b, "  fences may fall: %s\n", why)
	}
	return b.String()
}

// on returns the number of nodes.
func (s *Schedule) on() int {
	switch s.Store {
	case Redlock:
		return nodes
	case Redis, RedisNode:
		return 1
	}
	return s.Store.Servers()
}

// engine reports whether the store is an engine.
func (s *Schedule) engine() bool {
	return slices.Contains(engines.Kinds, s.Store) || slices.Contains(engines.Replicated, s.Store)
}

// lingers returns how long the store may keep a lease or a place that is not renewed.
func (s *Schedule) lingers() time.Duration {
	return s.MaxTTL + s.Store.Lingers()
}

// beside is how much longer a client may have to wait: for the long holds of others, and for a store that is held back.
func (s *Schedule) beside() time.Duration { return clients*s.Longest + s.Store.Lingers() }

// records reports whether the nodes keep a record, and do not vote after they may have lost data.
func (s *Schedule) records() bool { return s.Store == Redlock || s.Store == RedisNode }

// FakesClocks reports whether the run needs libfaketime.
func (s *Schedule) FakesClocks() bool {
	return s.any(Action.steps)
}

// canBeWired reports whether real links can have all faults of the schedule.
func (s *Schedule) canBeWired() bool {
	return !slices.ContainsFunc(s.Actions, func(a Action) bool {
		switch a.Kind {
		case Delay, Duplicate, Late, ResetLinks, CutAll, Promote, Split: // the last two need proxies that can be redirected
			return true
		}
		return false
	})
}

// steps reports whether the action steps a node's clock.
func (a Action) steps() bool {
	return a.Kind == ClockForward || a.Kind == ClockBack || a.Kind == ClockHeldBack
}

// replaces reports whether the action may have another master replace the current master.
func (a Action) replaces() bool {
	switch a.Kind {
	case KillLeader, StopLeader, KillLagging, CutMaster, Switch:
		return a.Part == Begin
	}
	return false
}

// silences reports whether the action keeps a client from talking to the servers.
func (a Action) silences() bool {
	switch a.Kind {
	case Partition, LoseRequests, LoseReplies, Hold, Expire, Delay, CutAll, ResetLinks, ClientStop:
		return true
	}
	return false
}

// forgets reports whether the action makes a node lose data in a way that its record shows.
func (a Action) forgets() bool {
	switch a.Kind {
	case RestartEmpty, RestartRDB, RestartTorn, RestartAOF, AllEmpty, Promote, ClockHeldBack:
		return a.Part == End
	case Split:
		return a.Part == Begin
	case Flush, FlushHeldBack:
		return a.Part != Prepare
	}
	return false
}

// any reports whether some action fits.
func (s *Schedule) any(fits func(Action) bool) bool { return slices.ContainsFunc(s.Actions, fits) }

// breaks lists what the actions break, as of says of each; empty: nothing.
func (s *Schedule) breaks(of func(Action) string) (broken []string) {
	for _, a := range s.Actions {
		if what := of(a); what != "" {
			broken = append(broken, what)
		}
	}
	return broken
}

// MayOverlap names the assumptions of exclusion that the schedule breaks. Where there are none, two holders are a violation.
func (s *Schedule) MayOverlap() []string {
	return s.breaks(func(a Action) string {
		switch {
		case a.Kind == ClockForward:
			return fmt.Sprintf("the clock of node %v steps forward by %v while it votes", a.Nodes, a.By)
		case a.Kind == Delete:
			return fmt.Sprintf("somebody deletes the lock's key on nodes %v", a.Nodes)
		case a.Kind == Evict && a.Part == Begin:
			return fmt.Sprintf("node %v evicts leases", a.Nodes)
		case a.Kind == Split && a.Part == Begin && !(s.records() && a.How == guarded):
			return "the old master of a promoted replica continues to run"
		case a.Kind == Break || a.Kind == Revoke:
			return "a lease is taken away from its holder"
		case s.Store == engines.ZooKeeper3 && a.Kind == StopLeader && a.Part == Begin && s.any(Action.silences):
			return "the sessions are short, the leader stands still and goes on, and holders are cut off or stopped"
		case a.replaces() && (s.Store == engines.Sentinel || s.Store == engines.Cluster):
			return unreplicated
		case s.Store == Redis && a.forgets() && a.Kind != RestartAOF:
			return "the server forgets leases, and keeps no record"
		}
		return ""
	})
}

const unreplicated = "the replica that is promoted may not have the lease yet"

// MayLose names what the schedule does that may lose a lease before its deadline, beside those that an operator takes away.
// Where there is nothing, a lease that is lost so is a violation.
func (s *Schedule) MayLose() []string {
	return s.breaks(func(a Action) string {
		if a.replaces() && s.Store.Confirming() == 0 {
			return unreplicated
		}
		return ""
	})
}

// clockError is how wrong a node's clock may be when it has lost its fences (internal/admission).
const clockError = 3 * time.Second

// MayRepeat names the assumptions of rising fences that the schedule breaks. Where there are none, a fence that does not rise is a
// violation. One server mints its fences above those that it remembers and above its clock.
func (s *Schedule) MayRepeat() []string {
	bears := time.Duration(0)
	if s.records() {
		bears = clockError
	}
	return s.breaks(func(a Action) string {
		forgets := func(b Action) bool {
			return b.forgets() && (s.Store != Redlock || slices.Contains(b.Nodes, a.Nodes[0]))
		}
		evicts := func(b Action) bool { return b.Kind == Evict }
		switch {
		case s.Store == Redlock && a.Kind == Evict && a.Part == Begin:
			return fmt.Sprintf("node %v evicts what it knows of fences", a.Nodes)
		case a.Kind != ClockBack:
		case s.Store == Redlock && -a.By > bears && s.any(forgets):
			return fmt.Sprintf("node %v forgets, and its clock is behind by %v", a.Nodes, -a.By)
		case s.Store != Redlock && (s.any(evicts) || -a.By > bears && s.any(forgets)):
			return fmt.Sprintf("the server forgets, and its clock is behind by %v", -a.By)
		}
		return ""
	})
}

// MayWait names what the schedule does to the times that the server keeps. If there is
// nothing, a key that is free beside a waiter is a violation.
func (s *Schedule) MayWait() []string {
	return s.breaks(func(a Action) string {
		if a.Kind == ClockBack {
			return fmt.Sprintf("the clock steps back by %v, and leases and claims last for as much longer", -a.By)
		}
		return ""
	})
}

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
