// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// votes admits a store as it is.
func votes(s *memdriver.Store) {
	rec, _ := s.Record(context.Background())
	_ = s.Admit(context.Background(), rec, s.Traits().MaxTTL)
}

// rerecord is an engine that shows a different record, and is admitted with it.
func rerecord(f func(driver.Record) driver.Record) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.record = func(ctx context.Context) (driver.Record, error) {
			rec, err := s.Record(ctx)
			return f(rec), err
		}
		p.admit = func(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
			rec, err := s.Record(ctx)
			if err != nil || f(rec) != r {
				return driver.ErrNotHeld
			}
			return s.Admit(ctx, rec, maxTTL)
		}
	})
}

var brokenNodes = []brokenEngine{
	{"a node that votes at once", "NewNodeIsHeldBack RestartedNodeIsHeldBack FlushedNodeIsHeldBack HeldBackNodeHandsNothingOn HeldBackNodeSharesNothing",
		asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Why == driver.NotVoting {
				votes(s)
				return s.Vote(ctx, r)
			}
			return res, err
		})},
	{"a proposal is granted by a node that is held back", "NewNodeIsHeldBack FlushedNodeIsHeldBack", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Why == driver.NotVoting && r.Restore {
			return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil
		}
		return res, err
	})},
	{"a node that is held back keeps a queue", "FlushedNodeIsHeldBack", one(func(s *memdriver.Store, p *patched) {
		places := 0
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Why == driver.NotVoting && r.Queue {
				places++
			}
			return res, err
		}
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			info.Waiters += places
			return info, err
		}
	})},
	{"a node that is held back says that it is not held", "RestartedNodeIsHeldBack FlushedNodeIsHeldBack HeldBackNodeProlongsNothing",
		prolonged(func(_ *memdriver.Store, _ driver.RenewRequest, a *driver.Renewal) {
			if errors.Is(a.Err, driver.ErrNotVoting) {
				a.Err = driver.ErrNotHeld
			}
		})},
	{"a node that is held back prolongs what it has", "HeldBackNodeProlongsNothing", prolonged(func(s *memdriver.Store, r driver.RenewRequest, a *driver.Renewal) {
		if info := looked(s, r.Key); errors.Is(a.Err, driver.ErrNotVoting) && info.Held {
			s.Hold(r.Key, r.TTL, info.Holder.Describe())
		}
	})},
	{"a release at a node that is held back hands off", "HeldBackNodeHandsNothingOn", withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
		err := s.Withdraw(ctx, r)
		if info := looked(s, r.Key); !info.Held && info.Waiters > 0 {
			s.Hold(r.Key, time.Second, driver.Label{})
		}
		return err
	})},
	{"any waiting record admits", "AdmitComparesTheRecord RecordOfAnotherRun", one(func(s *memdriver.Store, p *patched) {
		p.admit = func(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
			rec, err := s.Record(ctx)
			if err != nil {
				return err
			}
			return s.Admit(ctx, rec, maxTTL)
		}
	})},
	{"an admission that is refused begins a new wait", "AdmitComparesTheRecord", one(func(s *memdriver.Store, p *patched) {
		p.admit = func(ctx context.Context, r driver.Record, maxTTL time.Duration) error {
			err := s.Admit(ctx, r, maxTTL)
			if err != nil {
				s.Flush()
			}
			return err
		}
	})},
	{"a record names the run, but no nonce", "RecordsAreNew AdmitComparesTheRecord", rerecord(func(r driver.Record) driver.Record {
		if !r.Voting {
			r.Text = "wait " + r.Node
		}
		return r
	})},
	{"all records that wait are the same", "RecordsAreNew AdmitComparesTheRecord", rerecord(func(r driver.Record) driver.Record {
		if !r.Voting {
			r.Text = "wait"
		}
		return r
	})},
	{"fences are counted from the first again", "FencesRiseOverDataLoss", one(func(s *memdriver.Store, p *patched) {
		start := time.Now().Add(-time.Hour)
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			rec, _ := s.Record(ctx)
			if rec.Voting && rec.Node != "" && r.Proposal != 0 && !looked(s, r.Key).Held {
				return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil
			}
			res, err := s.Vote(ctx, r)
			if res.Granted {
				res.Fence -= uint64(start.UnixMicro())
			}
			return res, err
		}
	})},
	{"any TTL is granted", "TTLAboveTheRecord", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Why == driver.TTLTooLong {
			r.TTL = res.TTL
			return s.Vote(ctx, r)
		}
		return res, err
	})},
	{"the bound on TTLs does not apply to renewals", "TTLAboveTheRecord", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		a := renewOne(ctx, s, r)
		if a.Err != nil && looked(s, r.Key).Holder.Owner == r.Owner {
			return driver.Renewal{TTL: r.TTL}
		}
		return a
	})},
	{"a node is named after its address", "ResultsNameTheRun", reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) { res.Node = "127.0.0.1:6379" })},
	{"a node is not named", "ResultsNameTheRun", reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) { res.Node = "" })},
}
