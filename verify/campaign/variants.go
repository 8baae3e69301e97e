// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
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
	redsync     bool // instead of hasp
	node, whole broken.Fault
	opens       engines.Kind // instead of the engine that the schedule names
	on          engines.Kind // instead of the server that the schedule names
	plan        Schedule
	oracle      string
}

// loneVariants are hasp on one server with a safeguard removed.
var loneVariants = []*variant{
	{
		name: "renewals counted from the answer", whole: broken.LateRenew, oracle: TimelyEnd, // with holds of several renewals
		plan: Schedule{Long: 1, Actions: linkFault(Delay, 2*time.Second, 200*time.Millisecond)},
	},
	{name: "leases without drift", whole: broken.NoDrift, oracle: TimelyEnd},
	{
		name: "a waiter that enters counts from when the message came", whole: broken.LateEnter, oracle: TimelyEnd,
		plan: Schedule{Actions: linkFault(Delay, 6*time.Second, 50*time.Millisecond)},
	},
	{name: "renewals without an answer count", whole: broken.AssumeRenewed, oracle: TimelyEnd, plan: cutOff},
	{
		name: "a release that compares nothing", node: broken.BlindRelease, oracle: Exclusion, // with waiters that give up
		plan: Schedule{Long: 3, Hasty: true, Actions: []Action{noop(6 * time.Second)}},
	},
	{name: "no hints", whole: broken.NoHints, oracle: Idle, plan: unheard},
}

// engineVariants are hasp on another engine with a safeguard removed.
var engineVariants = []*variant{
	{name: "everybody shares", whole: broken.EverybodyShares, on: engines.Etcd, oracle: Exclusion},
	{name: "fences that fall", whole: broken.FallingFences, on: engines.Etcd, oracle: Fences},
	{name: "hints that are dropped", whole: broken.NoHints, on: engines.Etcd, oracle: Idle, plan: unheard},
	{
		name: "a lost lease that is not told", whole: broken.Untold, on: engines.Etcd, oracle: Told, // before the next renewal, which must be far
		plan: Schedule{MaxTTL: 6 * time.Second, Long: 1, Longest: 6 * time.Second, Actions: breaks()},
	},
	{name: "renewals that are assumed", whole: broken.AssumeRenewed, on: engines.Etcd, oracle: TimelyEnd, plan: cutOff},
}

// replicaVariants are hasp on Redis with replicas, with a safeguard removed.
var replicaVariants = []*variant{
	{name: "the replicas of a master are not asked", opens: engines.Sentinel, on: engines.SentinelReplicas, oracle: Kept, plan: lagging},
	{name: "the replica of a cluster's master is not asked", opens: engines.Cluster, on: engines.ClusterReplicas, oracle: Kept, plan: lagging},
}

// redsyncVariants are redsync, which lacks all safeguards of a node that forgets.
var redsyncVariants = []*variant{
	{name: "redsync, nodes restart empty", redsync: true, oracle: Exclusion, plan: again(RestartEmpty, 0, 0, 1, 2)},
	{name: "redsync, nodes are flushed", redsync: true, oracle: Exclusion, plan: again(Flush, 0, 0, 1, 2)},
	{name: "redsync, one node restarts empty", redsync: true, oracle: Exclusion, plan: apart(again(RestartEmpty, 0, 2))},
	{name: "redsync, one node is flushed", redsync: true, oracle: Exclusion, plan: apart(again(Flush, 0, 2))},
}

var (
	// unheard: a waiter that hears nothing asks once in a third of its TTL, and that must be long beside what a slow machine
	// takes, which the oracle subtracts.
	unheard = Schedule{MaxTTL: 6 * time.Second, Longest: 3 * time.Second, Actions: []Action{noop(3 * time.Second)}}
	// cutOff: holders of long leases are cut off.
	cutOff = Schedule{Long: 1, Actions: linkFault(Partition, 1500*time.Millisecond, 0)}
	// lagging: a master that is killed right after a grant that its replicas lack. The lease must outlast the failover; no event takes
	// longer than a busy machine needs for it, and if the replicas confirm each lease, the master is killed after By.
	lagging = Schedule{Seed: 1, MaxTTL: 24 * time.Second, Long: 1e6, Longest: 9 * time.Second, Actions: []Action{
		{At: 500 * time.Millisecond, Kind: KillLagging, Part: Begin, Client: -1, By: 20 * time.Second, How: overtaken},
		{At: time.Second, Kind: KillLagging, Part: End, Client: -1, How: overtaken},
	}}
)

// schedule returns the schedule in which the variant shows, of at least two seconds on one Redis if it says nothing else.
func (v *variant) schedule() *Schedule {
	s := v.plan
	s.Store, s.Actions = cmp.Or(s.Store, v.on, Redis), slices.Clone(s.Actions)
	if v.opens != "" {
		return &s
	}
	s.MaxTTL, s.Long, s.Keep[0], s.Strict = cmp.Or(s.MaxTTL, time.Second), cmp.Or(s.Long, 12), KeepNothing, true
	s.Actions = append(s.Actions, noop(2*time.Second))
	return &s
}

// again is a schedule of Redlock in which some nodes have a fault, again and again.
func again(k Kind, by time.Duration, on ...int) Schedule {
	g := &generator{s: &Schedule{Store: Redlock, MaxTTL: 2 * time.Second, Long: 1, Strict: true}}
	for at := ms(700); at < faultsLast; at += 700 {
		if g.act(at, k, Begin, on, -1, by); k == RestartEmpty {
			g.act(at+20, k, End, on, -1, 0)
		}
	}
	return *g.s
}

// apart is a schedule in which some clients reach the nodes of the left side only and the others those of the right, so that node
// 2, which both sides have, decides.
func apart(s Schedule) Schedule {
	g := &generator{s: &s}
	for c := range clients {
		away := [][]int{{3, 4}, {0, 1}}[c%2]
		g.act(0, Partition, Begin, away, c, 0)
		g.act(faultsLast, Partition, End, away, c, 0)
	}
	byTime(s.Actions)
	return s
}

// noop is an action without effect.
func noop(at time.Duration) Action { return Action{At: at, Kind: ResetLinks, Part: Prepare} }

// breaks are leases that an operator breaks, now and then.
func breaks() (all []Action) {
	for at := 2500 * time.Millisecond; at < 10*time.Second; at += 2500 * time.Millisecond {
		all = append(all, Action{At: at, Kind: Break, Part: Begin, Client: -1})
	}
	return all
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

// named returns the variant with a name; an empty one is of hasp as it is.
func named(name string) (*variant, error) {
	for _, v := range slices.Concat([]*variant{{}}, loneVariants, engineVariants, replicaVariants, redsyncVariants) {
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

// compose makes a quorum of nodes, for a client with a clock that is ahead.
func (v *variant) compose(all []member, skew time.Duration, o *quorum.Options, seen *witness) driver.Driver {
	var ds []voting.Node
	for _, n := range all {
		ds = append(ds, broken.New(n, v.node, broken.Ahead(func() time.Duration { return skew })))
	}
	return v.over(quorum.New(ds, o), seen)
}
