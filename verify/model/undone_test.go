// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
	"github.com/hasplock/hasp/verify/broken"
)

type member = broken.Node

// node is a node in memory, and its faults.
type node struct {
	*memdriver.Store
	off    time.Duration // of its clock
	old    time.Time     // what its clock shows while it is admitted; zero: the true time
	fixed  time.Time     // what its clock shows; zero: the time
	up     time.Time
	saved  *memdriver.Snapshot
	memory uint64 // see lowered
}

func newNode(maxTTL time.Duration) *node {
	n := &node{up: time.Now().Add(-time.Hour)}
	n.Store = memdriver.NewNode(memdriver.NodeOptions{MaxTTL: maxTTL, Now: n.now})
	return n
}

func (n *node) now() time.Time {
	if !n.fixed.IsZero() {
		return n.fixed
	}
	return time.Now().Add(n.off)
}

func (n *node) restart(from *memdriver.Snapshot) {
	n.Restart(from)
	n.up = n.now()
}

func (n *node) uptime() time.Duration { return n.now().Sub(n.up) }

// Admit admits the node. The stories of leases are not about fences: there its clock is set back
// meanwhile, so that no proposal is refused for the time since it was made.
func (n *node) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	n.fixed = n.old
	defer func() { n.fixed = time.Time{} }()
	return n.Store.Admit(ctx, r, maxTTL)
}

// vanish frees the key, as a Release by somebody else.
func (n *node) vanish() {
	info, err := n.Inspect(context.Background(), key)
	if err == nil && info.Held {
		_ = n.Release(context.Background(), driver.ReleaseRequest{Settled: true,
			Claim: driver.Claim{Key: key, Owner: info.Holder.Owner, Label: info.Holder.Label}})
	}
}

// Wrappers of nodes, each of which undoes a safeguard.

// around turns a wrapper into a rule that is the same for all nodes and clients.
func around(f func(n member) member) func(*player, member, int, int) member {
	return func(_ *player, n member, _, _ int) member { return f(n) }
}

func anyFence(n member) member { return broken.New(n, broken.AnyFence) }

func anyRestore(n member) member {
	return broken.New(n, broken.LowFences(func(r voting.VoteRequest) bool { return r.Restore }))
}

// echo answers a holder with the fence it proposes, which the node does not keep.
type echo struct{ member }

func (e echo) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	summary := r.Proposal
	r.Raise = false
	res, err := e.member.Vote(ctx, r)
	if res.Granted {
		res.Fence = summary
	}
	return res, err
}

// lowered makes a lower fence of the holder all that is remembered.
type lowered struct {
	member
	memory *uint64
}

func (l lowered) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	n := broken.New(l.member, broken.LowFences(func(r voting.VoteRequest) bool { return *l.memory != 0 && r.Proposal > *l.memory }))
	res, err := n.Vote(ctx, r)
	if res.Granted && res.Fence > r.Proposal {
		*l.memory = r.Proposal
	}
	return res, err
}

// fullRow answers with as many fences as were requested.
type fullRow struct{ member }

func (f fullRow) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	res, err := f.member.Vote(ctx, r)
	res.Fences = r.Fences
	return res, err
}

// atOnce makes restarted nodes vote; byUptime those that are up for long enough by their own clock.
func atOnce(_ *player, n member, _, _ int) member { return broken.New(n, broken.VotesAfter(0)) }

func byUptime(p *player, n member, _, i int) member {
	return broken.New(n, broken.VotesOnce(func(string) bool { return p.nodes[i].uptime() >= p.maxTTL(0) }))
}

// lowers makes nodes accept a lower fence.
func lowers(p *player, n member, _, i int) member { return lowered{n, &p.nodes[i].memory} }

func echoed(n member) member      { return echo{n} }
func full(n member) member        { return fullRow{n} }
func noTomb(n member) member      { return broken.New(n, broken.NoTombstones) }
func withdrawAny(n member) member { return broken.New(n, broken.AnyWithdrawn) }

// hidden hides from A's client which store a node is.
func hidden(_ *player, n member, owner, _ int) member {
	if owner == 0 {
		return broken.New(n, broken.Anonymous)
	}
	return n
}
