// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"time"

	"github.com/hasplock/hasp/verify/broken"
	"github.com/hasplock/hasp/verify/engines"
)

// engineVariants are hasp on another engine with a safeguard removed.
var engineVariants = []*variant{
	{name: "everybody shares", whole: broken.EverybodyShares, plan: calmEngine, oracle: Exclusion},
	{name: "fences that fall", whole: broken.FallingFences, plan: calmEngine, oracle: Fences},
	{name: "hints that are dropped", whole: broken.NoHints, plan: func() *Schedule { return onEtcd(unheard()) }, oracle: Idle},
	{name: "a lost lease that is not told", whole: broken.Untold, plan: brokenLeases, oracle: Told},
	{name: "renewals that are assumed", whole: broken.AssumeRenewed, plan: cutOffEngine, oracle: TimelyEnd},
}

// replicaVariants are hasp on Redis with replicas, with a safeguard removed.
var replicaVariants = []*variant{
	{name: "the replicas of a master are not asked", opens: engines.Sentinel, plan: func() *Schedule { return lagging(engines.SentinelReplicas, 1) }, oracle: Kept},
	{name: "the replica of a cluster's master is not asked", opens: engines.Cluster, plan: func() *Schedule { return lagging(engines.ClusterReplicas, 1) }, oracle: Kept},
}

// lagging: a master that is killed right after a grant that its replicas lack. Its holder is to renew the lease only when another
// may have been granted the key.
func lagging(k engines.Kind, seed uint64) *Schedule {
	return &Schedule{Seed: seed, Store: Store(k), MaxTTL: 18 * time.Second, Long: 3, Longest: 9 * time.Second, Actions: []Action{
		{At: 500 * time.Millisecond, Kind: KillLagging, Part: Begin, Client: -1, By: 9 * time.Second},
		{At: 8 * time.Second, Kind: KillLagging, Part: End, Client: -1},
	}}
}

func onEtcd(s *Schedule) *Schedule {
	s.Store = Store(engines.Etcd)
	return s
}

func calmEngine() *Schedule { return onEtcd(calm()) }

func cutOffEngine() *Schedule { return onEtcd(cutOff()) }

// brokenLeases: holds of several renewals, whose leases are broken now and then.
func brokenLeases() *Schedule {
	s := onEtcd(scripted(noop(4 * time.Second)))
	s.Actions = nil
	for at := 500 * time.Millisecond; at < 4*time.Second; at += 500 * time.Millisecond {
		s.Actions = append(s.Actions, Action{At: at, Kind: Break, Part: Begin, Client: -1})
	}
	s.Long, s.Longest = 1, 4*time.Second
	return s
}
