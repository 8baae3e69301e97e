// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package broken has each safeguard that locks rely on, removed: what a store, or a client of it, would do without.
// Every proving ground takes them from here, and each needs a schedule in which it notices.
package broken

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// Node is a store that can be a node of a quorum.
type Node interface {
	voting.Node
	voting.Recorded
}

// Fault removes a safeguard.
type Fault func(*store)

// store has the functions that faults replace. A Try is a vote, a Release a withdrawal.
type store struct {
	driver.Driver
	vote     func(ctx context.Context, r voting.VoteRequest) (driver.Result, error)
	renew    func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal))
	withdraw func(ctx context.Context, r voting.WithdrawRequest) error
	watch    func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error)
	inspect  func(ctx context.Context, key string) (driver.Info, error)
	record   func(ctx context.Context) (voting.Record, error)
	admit    func(ctx context.Context, r voting.Record, maxTTL time.Duration) error
}

// New returns a driver with faults. It is a node, even if d is none: then no fence is proposed to it, and it has no record. It is
// neither a driver.Teller nor a quorum.Async.
func New(d driver.Driver, faults ...Fault) Node {
	s := &store{
		Driver: d, renew: d.Renew, watch: d.Watch, inspect: d.Inspect,
		vote: func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			return d.Try(ctx, r.TryRequest)
		},
		withdraw: func(ctx context.Context, r voting.WithdrawRequest) error { return d.Release(ctx, r.ReleaseRequest) },
		record:   func(context.Context) (voting.Record, error) { return voting.Record{}, driver.ErrUnsupported },
		admit:    func(context.Context, voting.Record, time.Duration) error { return driver.ErrUnsupported },
	}
	if n, ok := d.(voting.Node); ok {
		s.vote, s.withdraw = n.Vote, n.Withdraw
	}
	if n, ok := d.(voting.Recorded); ok {
		s.record, s.admit = n.Record, n.Admit
	}
	All(faults...)(s)
	return s
}

// Around is New; without a fault it is d itself.
func Around(d driver.Driver, f Fault) driver.Driver {
	if f == nil {
		return d
	}
	return New(d, f)
}

// All is several faults at once; nil is none.
func All(faults ...Fault) Fault {
	return func(s *store) {
		for _, f := range faults {
			if f != nil {
				f(s)
			}
		}
	}
}

func (s *store) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	return s.vote(ctx, voting.VoteRequest{TryRequest: r})
}

func (s *store) Vote(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
	return s.vote(ctx, r)
}

func (s *store) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	s.renew(ctx, rs, done)
}

func (s *store) Release(ctx context.Context, r driver.ReleaseRequest) error {
	return s.withdraw(ctx, voting.WithdrawRequest{ReleaseRequest: r})
}

func (s *store) Withdraw(ctx context.Context, r voting.WithdrawRequest) error {
	return s.withdraw(ctx, r)
}

func (s *store) Watch(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
	return s.watch(ctx, c)
}

func (s *store) Inspect(ctx context.Context, key string) (driver.Info, error) {
	return s.inspect(ctx, key)
}

func (s *store) Record(ctx context.Context) (voting.Record, error) { return s.record(ctx) }

func (s *store) Admit(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
	return s.admit(ctx, r, maxTTL)
}

// answer is that to a vote.
type answer struct {
	driver.Result
	err  error
	took time.Duration
}

// changing alters what a vote is asked, and its answer; nil leaves it as it is.
func changing(ask func(r *voting.VoteRequest), hear func(r voting.VoteRequest, a *answer)) Fault {
	return func(s *store) {
		vote := s.vote
		s.vote = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			if ask != nil {
				ask(&r)
			}
			sent := time.Now()
			res, err := vote(ctx, r)
			a := answer{res, err, time.Since(sent)}
			if hear != nil {
				hear(r, &a)
			}
			return a.Result, a.err
		}
	}
}

func asking(ask func(r *voting.VoteRequest)) Fault { return changing(ask, nil) }

func answering(hear func(r voting.VoteRequest, a *answer)) Fault { return changing(nil, hear) }

// renewing changes the answers to renewals; took is how long one took.
func renewing(hear func(r driver.RenewRequest, a *driver.Renewal, took time.Duration)) Fault {
	return func(s *store) {
		renew := s.renew
		s.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
			sent := time.Now()
			renew(ctx, rs, func(i int, a driver.Renewal) {
				hear(rs[i], &a, time.Since(sent))
				done(i, a)
			})
		}
	}
}

// withdrawing changes what a withdrawal asks; it may use s.
func withdrawing(ask func(ctx context.Context, s *store, r *voting.WithdrawRequest)) Fault {
	return func(s *store) {
		withdraw := s.withdraw
		s.withdraw = func(ctx context.Context, r voting.WithdrawRequest) error {
			ask(ctx, s, &r)
			return withdraw(ctx, r)
		}
	}
}
