// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/verify/engines"
)

// engineVariants are hasp on another engine with a safeguard removed.
var engineVariants = []*variant{
	{name: "everybody shares", whole: func(d driver.Driver, _ any) driver.Driver { return everybodyShares{d} }, plan: calmEngine, oracle: Exclusion},
	{name: "fences that fall", whole: func(d driver.Driver, _ any) driver.Driver { return mirrored{d} }, plan: calmEngine, oracle: Fences},
	{name: "hints that are dropped", whole: func(d driver.Driver, _ any) driver.Driver { return noHints{d} }, plan: func() *Schedule { return onEtcd(unheard()) }, oracle: Idle},
	{name: "a lost lease that is not told", whole: func(d driver.Driver, _ any) driver.Driver { return quiet{d} }, plan: brokenLeases, oracle: Told},
	{name: "renewals that are assumed", whole: func(d driver.Driver, _ any) driver.Driver { return assumeRenewed{d} }, plan: cutOffEngine, oracle: TimelyEnd},
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

// everybodyShares asks for every key as a reader does.
type everybodyShares struct{ driver.Driver }

func (d everybodyShares) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	r.Mode, r.Convert, r.Fence = driver.Shared, false, 0
	return d.Driver.Try(ctx, r)
}

// mirrored has fences fall that rise.
type mirrored struct{ driver.Driver }

func mirror(fence uint64) uint64 {
	if fence == 0 {
		return 0
	}
	return 1<<62 - fence
}

func (d mirrored) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	r.Fence = mirror(r.Fence)
	res, err := d.Driver.Try(ctx, r)
	res.Fence = mirror(res.Fence)
	return res, err
}

func (d mirrored) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	for i := range rs {
		rs[i].Fence = mirror(rs[i].Fence)
	}
	d.Driver.Renew(ctx, rs, done)
}

// quiet tells nothing, and says of a renewal that was refused that it has no answer.
type quiet struct{ driver.Driver }

func (d quiet) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	d.Driver.Renew(ctx, rs, func(i int, r driver.Renewal) {
		if !errors.Is(r.Err, driver.ErrNotHeld) || rs[i].Queue {
			done(i, r)
		}
	})
}
