// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
)

// member is a server that can be a node of a quorum.
type member = broken.Node

// variant is hasp with one safeguard removed, around a server or around the whole, the schedule in which that shows,
// and the oracle that notices. In the same schedule, hasp as it is must have no violation. The zero value is hasp as it
// is. Those of Redlock are in verify/simulate.
type variant struct {
	name        string
	node, whole broken.Fault
	opens       engines.Kind // instead of the engine that the schedule names
	on          engines.Kind // instead of the server that the schedule names
	plan        func() *Schedule
	oracle      string
}

// loneVariants are hasp on one server with a safeguard removed.
var loneVariants = []*variant{
	{name: "renewals counted from the answer", whole: broken.LateRenew, plan: slowLinks, oracle: TimelyEnd},
	{name: "leases without drift", whole: broken.NoDrift, plan: calm, oracle: TimelyEnd},
	{name: "who enters counts from when the message came", whole: broken.LateEnter, plan: slowHandoffs, oracle: TimelyEnd},
	{name: "renewals without an answer count", whole: broken.AssumeRenewed, plan: cutOff, oracle: TimelyEnd},
	{name: "a release that compares nothing", node: broken.BlindRelease, plan: impatient, oracle: Exclusion},
	{name: "no hints", whole: broken.NoHints, plan: unheard, oracle: Idle},
}

// engineVariants are hasp on another engine with a safeguard removed.
var engineVariants = []*variant{
	{name: "everybody shares", whole: broken.EverybodyShares, on: engines.Etcd, plan: calm, oracle: Exclusion},
	{name: "fences that fall", whole: broken.FallingFences, on: engines.Etcd, plan: calm, oracle: Fences},
	{name: "hints that are dropped", whole: broken.NoHints, on: engines.Etcd, plan: unheard, oracle: Idle},
	{name: "a lost lease that is not told", whole: broken.Untold, on: engines.Etcd, plan: brokenLeases, oracle: Told},
	{name: "renewals that are assumed", whole: broken.AssumeRenewed, on: engines.Etcd, plan: cutOff, oracle: TimelyEnd},
}

// replicaVariants are hasp on Redis with replicas, with a safeguard removed.
var replicaVariants = []*variant{
	{name: "the replicas of a master are not asked", opens: engines.Sentinel, plan: func() *Schedule { return lagging(engines.SentinelReplicas, 1) }, oracle: Kept},
	{name: "the replica of a cluster's master is not asked", opens: engines.Cluster, plan: func() *Schedule { return lagging(engines.ClusterReplicas, 1) }, oracle: Kept},
}

// named returns the variant with a name; an empty one is of hasp as it is.
func named(name string) (*variant, error) {
	for _, v := range slices.Concat([]*variant{{}}, loneVariants, engineVariants, replicaVariants) {
		if v.name == name {
			return v, nil
		}
	}
	return nil, fmt.Errorf("no variant is called %q", name)
}

// alone makes the driver of one server.
func (v *variant) alone(d driver.Driver, seen *witness) driver.Driver {
	n := broken.New(d, v.node)
	return broken.Around(witnessed{seen.around(n), n}, v.whole)
}

// over makes the driver of another engine, or of a quorum.
func (v *variant) over(d driver.Driver, seen *witness) driver.Driver {
	return broken.Around(seen.around(d), v.whole)
}

// compose makes a quorum of nodes, for a client whose clock is ahead.
func (v *variant) compose(all []member, skew time.Duration, o *quorum.Options, seen *witness) driver.Driver {
	var ds []driver.Node
	for _, n := range all {
		ds = append(ds, broken.New(n, v.node, broken.Ahead(func() time.Duration { return skew })))
	}
	return v.over(quorum.New(ds, o), seen)
}

// scripted returns a schedule of some faults, of at least two seconds.
func scripted(actions ...Action) *Schedule {
	return &Schedule{Store: Redis, MaxTTL: time.Second, Keep: [nodes]Persistence{KeepNothing}, Strict: true, Long: 12,
		Actions: append(actions, noop(2*time.Second))}
}

// noop is an action without effect.
func noop(at time.Duration) Action { return Action{At: at, Kind: ResetLinks, Part: Prepare} }

func calm() *Schedule { return scripted() }

// unheard: a waiter that hears nothing asks once in a third of its TTL, and that must be long beside what a slow machine
// takes, which the oracle subtracts.
func unheard() *Schedule {
	s := scripted(noop(3 * time.Second))
	s.MaxTTL, s.Longest = 6*time.Second, 3*time.Second
	return s
}

// linkFault returns the actions of a fault of all clients' links, from the beginning to a time.
func linkFault(k Kind, to, by time.Duration) (all []Action) {
	for c := range 2 * clients {
		a := Action{Kind: k, Part: Begin, Nodes: []int{0}, Client: c % clients, By: by}
		if c >= clients {
			a.At, a.Part, a.By = to, End, 0
		}
		all = append(all, a)
	}
	return all
}

// slowLinks: round trips of 200 ms, and holds of several renewals.
func slowLinks() *Schedule {
	s := scripted(linkFault(Delay, 2*time.Second, 200*time.Millisecond)...)
	s.Long = 1
	return s
}

// slowHandoffs: round trips of 100 ms, and short holds of many waiters.
func slowHandoffs() *Schedule {
	return scripted(linkFault(Delay, 6*time.Second, 50*time.Millisecond)...)
}

// cutOff: holders of long leases are cut off.
func cutOff() *Schedule {
	s := scripted(linkFault(Partition, 1500*time.Millisecond, 0)...)
	s.Long = 1
	return s
}

// impatient: long holds, and waiters that give up.
func impatient() *Schedule {
	s := scripted(noop(6 * time.Second))
	s.Long, s.Hasty = 3, true
	return s
}

// lagging: a master that is killed right after a grant that its replicas lack. Its holder is to renew the lease only when another
// may have been granted the key.
func lagging(k engines.Kind, seed uint64) *Schedule {
	return &Schedule{Seed: seed, Store: Store(k), MaxTTL: 18 * time.Second, Long: 3, Longest: 9 * time.Second, Actions: []Action{
		{At: 500 * time.Millisecond, Kind: KillLagging, Part: Begin, Client: -1, By: 9 * time.Second},
		{At: 8 * time.Second, Kind: KillLagging, Part: End, Client: -1},
	}}
}

// brokenLeases: holds of several renewals, whose leases are broken now and then.
func brokenLeases() *Schedule {
	s := scripted()
	s.Actions = nil
	for at := 500 * time.Millisecond; at < 4*time.Second; at += 500 * time.Millisecond {
		s.Actions = append(s.Actions, Action{At: at, Kind: Break, Part: Begin, Client: -1})
	}
	s.Long, s.Longest = 1, 4*time.Second
	return s
}
