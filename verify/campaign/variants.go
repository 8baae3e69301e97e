// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/quorum"
	"github.com/hasplock/hasp/verify/engines"
)

// variant is Redlock with one safeguard removed, by wrappers around its nodes or
// around the quorum, and the scenario in which that shows. In the same scenario,
// Redlock as it is must have no violation.
type variant struct {
	name     string
	node     func(n member, share any) member               // around each node of an actor
	whole    func(d driver.Driver, share any) driver.Driver // around their quorum
	share    func() any                                     // state that the wrappers of one actor share
	lists    []int                                          // the store behind each node, if not its own
	rate     float64                                        // of the nodes' clocks; 0 means 1
	scenario func(ctx context.Context, w *world) error

	opens engines.Kind // instead of the engine that the schedule names

	// For one real server: the schedule in which it shows, and the oracle that notices.
	plan   func() *Schedule
	oracle string
}

var variants = []*variant{
	{name: "DEL without compare", node: func(n member, _ any) member { return blindRelease{n} }, scenario: lateRelease},
	{name: "no drift", whole: func(d driver.Driver, _ any) driver.Driver { return noDrift{d} }, rate: 1.009, scenario: atTheEnd},
	{name: "the time of the acquisition not subtracted", whole: func(d driver.Driver, _ any) driver.Driver { return lateTry{d} }, scenario: slowGrant},
	{name: "deadline from receipt", whole: func(d driver.Driver, _ any) driver.Driver { return lateRenew{d} }, scenario: slowRenewal},
	{name: "no release after a failed majority", node: keepVotes, whole: noteGrants, share: func() any { return &grants{} }, scenario: splitVote},
	{name: "restarted nodes vote", node: func(n member, _ any) member { return &eager{member: n} }, scenario: restartBetween},
	{name: "uptime instead of the record", node: func(n member, _ any) member {
		return &eager{member: n, uptime: worldTTL, since: map[string]time.Time{}}
	}, scenario: flushBetween},
	{name: "fences not compared", node: func(n member, _ any) member { return anyFence{n} }, scenario: clockBehind},
	{name: "a minority counts", node: func(n member, _ any) member { return silenceCounts{n} }, scenario: twoSides},
	{name: "a reader's vote beside a writer's", node: func(n member, _ any) member { return ignoreMode{n, driver.Shared} }, scenario: readerBesideWriter},
	{name: "a writer's vote beside readers'", node: func(n member, _ any) member { return ignoreMode{n, driver.Exclusive} }, scenario: writerBesideReader},
	{name: "a reader's release takes the others' votes", node: func(n member, _ any) member { return releaseAll{n} }, scenario: readersLeave},
	{name: "readers' fences not compared", node: func(n member, _ any) member { return anyFence{n} }, scenario: writerBehindReader},
	{name: "restarted nodes vote, and readers are forgotten", node: func(n member, _ any) member { return &eager{member: n} }, scenario: restartBesideReader},
	{name: "no tombstones, one server", node: func(n member, _ any) member { return noTombstones{n} }, scenario: overtakenTry},
	{name: "one node listed twice", node: func(n member, _ any) member { return anonymous{n} }, lists: []int{0, 1, 2, 2, 2}, scenario: onlyOne},
}

// named returns the variant with a name; nil for an empty name.
func named(name string) (*variant, error) {
	for _, v := range slices.Concat(variants, loneVariants, engineVariants, replicaVariants) {
		if v.name == name {
			return v, nil
		}
	}
	if name == "" {
		return nil, nil
	}
	return nil, fmt.Errorf("no variant is called %q", name)
}

// shared returns the state that the wrappers of one client share.
func (v *variant) shared() any {
	if v == nil || v.share == nil {
		return nil
	}
	return v.share()
}

// alone makes the driver of one server, with a safeguard removed; nil leaves it as it
// is.
func (v *variant) alone(n member, seen *witness) driver.Driver {
	share := v.shared()
	if v != nil && v.node != nil {
		n = v.node(n, share)
	}
	if v != nil && v.whole != nil {
		return v.whole(seen.around(asOne{n}), share)
	}
	return witnessed{seen.around(asOne{n}), n}
}

// over makes the driver of another engine, with a safeguard removed; nil leaves it as it is.
func (v *variant) over(d driver.Driver, seen *witness) driver.Driver {
	if d = seen.around(d); v != nil && v.whole != nil {
		return v.whole(d, v.shared())
	}
	return d
}

// compose makes a quorum of nodes, with a safeguard removed; nil leaves Redlock as it
// is.
func (v *variant) compose(all []member, skew time.Duration, o *quorum.Options, seen *witness) driver.Driver {
	share := v.shared()
	var ds []driver.Node
	for i, n := range all {
		if v != nil && v.lists != nil {
			n = all[v.lists[i]]
		}
		if v != nil && v.node != nil {
			n = v.node(n, share)
		}
		ds = append(ds, &skewed{member: n, by: skew})
	}
	q := seen.around(quorum.New(ds, o))
	if v != nil && v.whole != nil {
		return v.whole(q, share)
	}
	return q
}

// member is a server that can be a node of a quorum.
type member interface {
	driver.Node
	driver.Recorded
}

// asOne uses a member as a store of its own, without a quorum.
type asOne struct{ member }

func (s asOne) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return s.Vote(ctx, driver.VoteRequest{TryRequest: r})
}

func (s asOne) Handed(c driver.Claim) (driver.Handover, bool) { return handed(s.member, c) }

func (s asOne) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return s.Withdraw(ctx, driver.WithdrawRequest{ReleaseRequest: r})
}

// blindRelease frees the key whoever holds it.
type blindRelease struct{ member }

func (b blindRelease) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if info, err := b.Inspect(ctx, r.Key); err == nil && info.Held {
		r.Owner, r.Label, r.UpTo = info.Holder.Owner, info.Holder.Label, 0
	}
	return b.member.Withdraw(ctx, r)
}

// noDrift adds what is subtracted because clocks differ.
type noDrift struct{ driver.Driver }

func (n noDrift) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := n.Driver.Try(ctx, r)
	if res.Granted {
		res.TTL = (res.TTL + 2*time.Millisecond) * 100 / 99
	}
	return res, err
}

// lateTry counts a lease from the answer to the Try.
type lateTry struct{ driver.Driver }

func (l lateTry) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	start := time.Now()
	res, err := l.Driver.Try(ctx, r)
	if res.Granted {
		res.TTL += time.Since(start)
	}
	return res, err
}

// lateRenew counts a lease from the answer to the Renew.
type lateRenew struct{ driver.Driver }

func (l lateRenew) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	start := time.Now()
	l.Driver.Renew(ctx, rs, func(i int, r driver.Renewal) {
		if r.Err == nil {
			r.TTL += time.Since(start)
		}
		done(i, r)
	})
}

// grants are the owners that a majority granted the key.
type grants struct{ owners sync.Map }

type voteKeeper struct {
	member
	g *grants
}

// keepVotes does not withdraw the votes of a failed attempt.
func keepVotes(n member, share any) member { return voteKeeper{n, share.(*grants)} }

func (v voteKeeper) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if _, ok := v.g.owners.Load(r.Owner); !ok {
		return nil
	}
	return v.member.Withdraw(ctx, r)
}

type grantNoter struct {
	driver.Driver
	g *grants
}

func noteGrants(d driver.Driver, share any) driver.Driver { return grantNoter{d, share.(*grants)} }

func (n grantNoter) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := n.Driver.Try(ctx, r)
	if res.Granted {
		n.g.owners.Store(r.Owner, true)
	}
	return res, err
}

// eager makes a node vote as soon as it was up for uptime, whatever it lost.
type eager struct {
	member
	uptime time.Duration

	mu    sync.Mutex
	since map[string]time.Time // when each run of the node began
}

func (e *eager) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := e.member.Vote(ctx, r)
	if err != nil {
		return res, err
	}
	if res.Granted || res.Why != driver.NotVoting {
		return res, nil
	}
	if rec, err := e.Record(ctx); err != nil || !rec.Voting {
		return res, nil //nolint:nilerr // the refusal stands
	}
	return e.member.Vote(ctx, r)
}

func (e *eager) Record(ctx context.Context) (driver.Record, error) {
	rec, err := e.member.Record(ctx)
	if err != nil || rec.Voting || e.up(rec.Node) < e.uptime {
		return rec, err
	}
	if err := e.member.Admit(ctx, rec, e.Traits().MaxTTL); err != nil {
		return rec, nil //nolint:nilerr // it does not vote yet
	}
	return e.member.Record(ctx)
}

// up returns how long a run of the node has lasted. The nodes of a world were up for an
// hour before the first request.
func (e *eager) up(life string) time.Duration {
	if e.since == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := e.since[life]; !ok {
		e.since[life] = time.Now().Add(-time.Hour)
		if len(e.since) > 1 {
			e.since[life] = time.Now()
		}
	}
	return time.Since(e.since[life])
}

// anyFence grants any fence that is proposed.
type anyFence struct{ member }

func (a anyFence) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := a.member.Vote(ctx, r)
	if err != nil || res.Granted || res.Why != driver.FenceTooLow {
		return res, err
	}
	want := r.Proposal
	r.Proposal = res.Fence + 1
	if res, err = a.member.Vote(ctx, r); res.Granted {
		res.Fence = want
	}
	return res, err
}

// silenceCounts counts a node that does not answer as a vote.
type silenceCounts struct{ member }

func (s silenceCounts) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := s.member.Vote(ctx, r)
	if err != nil {
		return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil //nolint:nilerr // that is what is broken here
	}
	return res, err
}

// ignoreMode grants requests of one mode even if the key is held in the other.
type ignoreMode struct {
	member
	of driver.Mode
}

func (b ignoreMode) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := b.member.Vote(ctx, r)
	if err == nil && !res.Granted && res.Why == driver.Held && r.Mode == b.of && res.Holder.Mode != b.of {
		return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL, Node: res.Node}, nil
	}
	return res, err
}

// releaseAll frees the key for all that share it.
type releaseAll struct{ member }

func (a releaseAll) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	if info, err := a.Inspect(ctx, r.Key); err == nil && info.Holds > 1 {
		for _, l := range info.Holders {
			_ = a.member.Release(ctx, driver.ReleaseRequest{Claim: driver.Claim{Key: r.Key, Owner: l.Holder.Owner, Label: l.Holder.Label}, TTL: r.TTL})
		}
	}
	return a.member.Withdraw(ctx, r)
}

// anonymous hides which store a node is.
type anonymous struct{ member }

func (n anonymous) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	res, err := n.member.Vote(ctx, r)
	res.Node = ""
	return res, err
}

func (n anonymous) Record(ctx context.Context) (driver.Record, error) {
	r, err := n.member.Record(ctx)
	r.Node = ""
	return r, err
}
