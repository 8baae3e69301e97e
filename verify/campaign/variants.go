// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
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

// variant is Redlock with one safeguard removed, around its nodes or around the quorum,
// and the scenario in which that shows. In the same scenario, Redlock as it is must have
// no violation. The zero value is hasp as it is.
type variant struct {
	name        string
	node, whole broken.Fault                      // around each node of an actor, and around their quorum
	both        func() (node, whole broken.Fault) // instead, what the two of an actor share
	lists       []int                             // the store behind each node, if not its own
	rate        float64                           // of the nodes' clocks; 0 means 1
	scenario    func(ctx context.Context, w *world) error

	opens engines.Kind // instead of the engine that the schedule names

	// For one real server: the schedule in which it shows, and the oracle that notices.
	plan   func() *Schedule
	oracle string
}

var variants = []*variant{
	{name: "DEL without compare", node: broken.BlindRelease, scenario: lateRelease},
	{name: "no drift", whole: broken.NoDrift, rate: 1.009, scenario: atTheEnd},
	{name: "the time of the acquisition not subtracted", whole: broken.LateTry, scenario: slowGrant},
	{name: "deadline from receipt", whole: broken.LateRenew, scenario: slowRenewal},
	{name: "no release after a failed majority", both: broken.KeepVotes, scenario: splitVote},
	{name: "restarted nodes vote", node: broken.VotesAfter(0), scenario: restartBetween},
	{name: "uptime instead of the record", node: broken.VotesAfter(worldTTL), scenario: flushBetween},
	{name: "fences not compared", node: broken.AnyFence, scenario: clockBehind},
	{name: "a minority counts", node: broken.SilenceCounts, scenario: twoSides},
	{name: "a reader's vote beside a writer's", node: broken.ReadersIgnoreMode, scenario: readerBesideWriter},
	{name: "a writer's vote beside readers'", node: broken.WritersIgnoreMode, scenario: writerBesideReader},
	{name: "a reader's release takes the others' votes", node: broken.ReleaseAll, scenario: readersLeave},
	{name: "readers' fences not compared", node: broken.AnyFence, scenario: writerBehindReader},
	{name: "restarted nodes vote, and readers are forgotten", node: broken.VotesAfter(0), scenario: restartBesideReader},
	{name: "no tombstones, one server", node: broken.NoTombstones, scenario: overtakenTry},
	{name: "one node listed twice", node: broken.Anonymous, lists: []int{0, 1, 2, 2, 2}, scenario: onlyOne},
}

// named returns the variant with a name; an empty one is of hasp as it is.
func named(name string) (*variant, error) {
	for _, v := range slices.Concat([]*variant{{}}, variants, loneVariants, engineVariants, replicaVariants) {
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

// over makes the driver of another engine.
func (v *variant) over(d driver.Driver, seen *witness) driver.Driver {
	return broken.Around(seen.around(d), v.whole)
}

// compose makes a quorum of nodes.
func (v *variant) compose(all []member, skew time.Duration, o *quorum.Options, seen *witness) driver.Driver {
	node, whole := v.node, v.whole
	if v.both != nil {
		node, whole = v.both()
	}
	var ds []driver.Node
	for i, n := range all {
		if v.lists != nil {
			n = all[v.lists[i]]
		}
		ds = append(ds, broken.New(n, node, broken.Ahead(func() time.Duration { return skew })))
	}
	return broken.Around(seen.around(quorum.New(ds, o)), whole)
}
