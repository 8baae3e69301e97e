// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package replay

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// What undoes a safeguard of a node, by what stands around it.

// around makes a rule of a wrapper that is the same for all.
func around(f func(n member) member) func(*world, member, int, int) member {
	return func(_ *world, n member, _, _ int) member { return f(n) }
}

// loose grants proposals that the node refuses for their fences, where which says
// so: for a larger one, of which nobody hears.
type loose struct {
	member
	which func(r driver.VoteRequest) bool
}

func (l loose) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := l.member.Vote(ctx, r)
	if err != nil || res.Granted || res.Why != driver.FenceTooLow || !l.which(r) {
		return res, err
	}
	told := r.Proposal
	r.Proposal, r.Restore, r.Raise = res.Fence+1, false, false
	if res, err = l.member.Vote(ctx, r); res.Granted {
		res.Fence, res.Fences = told, max(r.Fences, 1)
	}
	return res, err
}

func anyFence(n member) member {
	return loose{n, func(r driver.VoteRequest) bool { return r.Key == key }}
}

func anyRestore(n member) member {
	return loose{n, func(r driver.VoteRequest) bool { return r.Restore }}
}

// echo answers a holder with what it proposes, which the node does not keep.
type echo struct{ member }

func (e echo) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	told := r.Proposal
	r.Raise = false
	res, err := e.member.Vote(ctx, r)
	if res.Granted {
		res.Fence = told
	}
	return res, err
}

// lowered takes a lower fence of the holder for all that is remembered.
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

// fullRow answers with as many fences as were asked for.
type fullRow struct{ member }

func (f fullRow) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := f.member.Vote(ctx, r)
	res.Fences = r.Fences
	return res, err
}

// eager has a node vote once it was up for so long, whatever it forgot.
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

// atOnce has restarted nodes vote; byUptime those that are up for long enough.
func atOnce(w *world, n member, _, i int) member {
	return eager{n, w.nodes[i].uptime, 0, w.maxTTL(0)}
}

func byUptime(w *world, n member, _, i int) member {
	return eager{n, w.nodes[i].uptime, w.maxTTL(0), w.maxTTL(0)}
}

// lowers has nodes take a lower fence.
func lowers(w *world, n member, _, i int) member { return lowered{n, &w.memory[i]} }

// forgetful remembers no release.
type forgetful struct{ member }

func (f forgetful) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.Settled = true
	return f.member.Withdraw(ctx, r)
}

// nameless hides which store it is.
type nameless struct{ member }

func (n nameless) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := n.member.Vote(ctx, r)
	res.Node = ""
	return res, err
}

func (n nameless) Record(ctx context.Context) (driver.Record, error) {
	rec, err := n.member.Record(ctx)
	rec.Node = ""
	return rec, err
}

// blunt gives a vote back whatever its fence.
type blunt struct{ member }

func (b blunt) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.UpTo = 0
	return b.member.Withdraw(ctx, r)
}

// mine has B's client see its own longest lease on all nodes.
type mine struct {
	member
	maxTTL time.Duration
}

func (m mine) Record(ctx context.Context) (driver.Record, error) {
	rec, err := m.member.Record(ctx)
	rec.MaxTTL = m.maxTTL
	return rec, err
}

func ownMaxTTL(w *world, n member, owner, _ int) member { return mine{n, w.maxTTL(owner)} }

func echoed(n member) member  { return echo{n} }
func full(n member) member    { return fullRow{n} }
func noTomb(n member) member  { return forgetful{n} }
func bluntly(n member) member { return blunt{n} }

// hidden hides from A's client which store a node is.
func hidden(_ *world, n member, owner, _ int) member {
	if owner == 0 {
		return nameless{n}
	}
	return n
}
