// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Wrappers of nodes, each of which undoes a safeguard.

// around turns a wrapper into a rule that is the same for all nodes and clients.
func around(f func(n member) member) func(*world, member, int, int) member {
	return func(_ *world, n member, _, _ int) member { return f(n) }
}

// loose grants the proposals that which selects, though the node refuses their fences:
// it asks the node with a larger one, and hides that.
type loose struct {
	member
	which func(r driver.VoteRequest) bool
}

func (l loose) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := l.member.Vote(ctx, r)
	if err != nil || res.Granted || res.Why != driver.FenceTooLow || !l.which(r) {
		return res, err
	}
	summary := r.Proposal
	r.Proposal, r.Restore, r.Raise = res.Fence+1, false, false
	if res, err = l.member.Vote(ctx, r); res.Granted {
		res.Fence, res.Fences = summary, max(r.Fences, 1)
	}
	return res, err
}

func anyFence(n member) member {
	return loose{n, func(r driver.VoteRequest) bool { return r.Key == key }}
}

func anyRestore(n member) member {
	return loose{n, func(r driver.VoteRequest) bool { return r.Restore }}
}

// echo answers a holder with the fence it proposes, which the node does not keep.
type echo struct{ member }

func (e echo) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
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

func (l lowered) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	n := loose{l.member, func(r driver.VoteRequest) bool { return *l.memory != 0 && r.Proposal > *l.memory }}
	res, err := n.Vote(ctx, r)
	if res.Granted && res.Fence > r.Proposal {
		*l.memory = r.Proposal
	}
	return res, err
}

// fullRow answers with as many fences as were requested.
type fullRow struct{ member }

func (f fullRow) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := f.member.Vote(ctx, r)
	res.Fences = r.Fences
	return res, err
}

// eager makes a node vote once it was up for least, whatever it lost.
type eager struct {
	member
	up     func() time.Duration
	least  time.Duration
	maxTTL time.Duration
}

func (e eager) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	if _, err := e.Record(ctx); err != nil {
		return driver.Result{}, err
	}
	return e.member.Vote(ctx, r)
}

func (e eager) Record(ctx context.Context) (driver.Record, error) {
	rec, err := e.member.Record(ctx)
	if err != nil || rec.Voting || e.up() < e.least {
		return rec, err
	}
	if err := e.Admit(ctx, rec, e.maxTTL); err != nil {
		return rec, err
	}
	return e.member.Record(ctx)
}

// atOnce makes restarted nodes vote; byUptime those that are up for long enough.
func atOnce(w *world, n member, _, i int) member {
	return eager{n, w.nodes[i].uptime, 0, w.maxTTL(0)}
}

func byUptime(w *world, n member, _, i int) member {
	return eager{n, w.nodes[i].uptime, w.maxTTL(0), w.maxTTL(0)}
}

// lowers makes nodes accept a lower fence.
func lowers(w *world, n member, _, i int) member { return lowered{n, &w.memory[i]} }

// forgetful remembers no release.
type forgetful struct{ member }

func (f forgetful) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.Settled = true
	return f.member.Withdraw(ctx, r)
}

// anonymous hides which store it is.
type anonymous struct{ member }

func (n anonymous) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := n.member.Vote(ctx, r)
	res.Node = ""
	return res, err
}

func (n anonymous) Record(ctx context.Context) (driver.Record, error) {
	rec, err := n.member.Record(ctx)
	rec.Node = ""
	return rec, err
}

// anyFenceWithdraw withdraws a vote whatever its fence.
type anyFenceWithdraw struct{ member }

func (b anyFenceWithdraw) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.UpTo = 0
	return b.member.Withdraw(ctx, r)
}

// ownRecord makes B's client see its own longest lease on all nodes.
type ownRecord struct {
	member
	maxTTL time.Duration
}

func (m ownRecord) Record(ctx context.Context) (driver.Record, error) {
	rec, err := m.member.Record(ctx)
	rec.MaxTTL = m.maxTTL
	return rec, err
}

func ownMaxTTL(w *world, n member, owner, _ int) member { return ownRecord{n, w.maxTTL(owner)} }

func echoed(n member) member      { return echo{n} }
func full(n member) member        { return fullRow{n} }
func noTomb(n member) member      { return forgetful{n} }
func withdrawAny(n member) member { return anyFenceWithdraw{n} }

// hidden hides from A's client which store a node is.
func hidden(_ *world, n member, owner, _ int) member {
	if owner == 0 {
		return anonymous{n}
	}
	return n
}
