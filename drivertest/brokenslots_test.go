// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

var brokenSlots = []brokenEngine{
	{"limits are not counted, and not refused", "NoLimitWithoutSlots", traits(func(t *driver.Traits) { t.Slots = false })},
	{"one more than the limit", "LimitIsKept LimitIsKeptAtOnce SmallestLimitCounts LimitOfOne",
		reask(func(_ *memdriver.Store, r *driver.VoteRequest) {
			if r.Limit > 0 {
				r.Limit++
			}
		})},
	{"only the limit of the request counts", "SmallestLimitCounts", reply(func(s *memdriver.Store, r driver.VoteRequest, res *driver.Result) {
		info := looked(s, r.Key)
		if !res.Granted && r.Mode == driver.Shared && info.Holder.Mode == driver.Shared && (r.Limit == 0 || info.Holds < r.Limit) {
			*res = letIn(r)
		}
	})},
	{"slots are counted up", "SlotIsTheSmallestThatIsFree SlotOfADeadHolderComesBack SemaphoreNumbersItsSlots", one(func(s *memdriver.Store, p *patched) {
		var slots memo[string, int]
		var next memo[string, int]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted && r.Limit > 0 {
				if slots.get(r.Owner) == 0 {
					next.set(r.Key, next.get(r.Key)+1)
					slots.set(r.Owner, next.get(r.Key))
				}
				res.Slot = slots.get(r.Owner) - 1
			}
			return res, err
		}
	})},
	{"a slot is a rank", "SlotIsKept", reply(func(s *memdriver.Store, r driver.VoteRequest, res *driver.Result) {
		res.Slot = max(0, slices.IndexFunc(looked(s, r.Key).Holders, func(l driver.Lease) bool { return l.Holder.Owner == r.Owner }))
	})},
	{"no limit is a large one", "ReaderHasNoSlot ReadersAbandonNothing ConvertFinishes",
		reask(func(_ *memdriver.Store, r *driver.VoteRequest) {
			if r.Mode == driver.Shared && r.Limit == 0 {
				r.Limit = 1 << 20
			}
		})},
}

var brokenMarks = []brokenEngine{
	{"no key is ever abandoned", "ExpiryAbandons UnfinishedAbandons AbandonedOverTheQueue AbandonedIsRepeated ReadersLeaveTheMark VanishedHolderAbandons",
		reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) { res.Abandoned = false })},
	{"an abandoned key stays abandoned", "ExpiryAbandons UnfinishedAbandons", one(func(s *memdriver.Store, p *patched) {
		var marked memo[string, bool]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			marked.set(r.Key, marked.get(r.Key) || res.Abandoned)
			res.Abandoned = marked.get(r.Key)
			return res, err
		}
	})},
	{"the end of a lease is ignored", "UnfinishedAbandons", rewithdraw(func(_ *memdriver.Store, r *driver.WithdrawRequest) { r.End = driver.Finished })},
	{"waiters do not see the mark", "AbandonedOverTheQueue QueuedReadersSeeTheMark",
		reply(func(_ *memdriver.Store, r driver.VoteRequest, res *driver.Result) {
			res.Abandoned = res.Abandoned && !r.Queue
		})},
	{"the mark is reported once", "AbandonedIsRepeated", one(func(s *memdriver.Store, p *patched) {
		var seen memo[string, bool]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			res.Abandoned = res.Abandoned && !seen.get(r.Owner)
			seen.set(r.Owner, res.Granted)
			return res, err
		}
	})},
	{"any holder has repaired the key", "UnusedPutsTheMarkBack", rewithdraw(func(_ *memdriver.Store, r *driver.WithdrawRequest) {
		if r.End == driver.Unused {
			r.End = driver.Finished
		}
	})},
	{"a claim that lapses abandons the key", "UnclaimedKeyStaysAbandoned", withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
		err := s.Withdraw(ctx, r)
		if info := looked(s, r.Key); handedOff(info) {
			_, _ = s.Try(ctx, driver.TryRequest{Claim: as(r.Claim, info.Holder), TTL: time.Second})
		}
		return err
	})},
	{"a reader takes the mark", "ReadersLeaveTheMark QueuedReadersSeeTheMark", one(func(s *memdriver.Store, p *patched) {
		var taken memo[string, string]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if by := taken.get(r.Key); by != "" && by != r.Owner {
				res.Abandoned = false
			}
			if res.Abandoned && r.Mode == driver.Shared && r.Limit == 0 {
				taken.set(r.Key, r.Owner)
			}
			return res, err
		}
	})},
	{"those with a limit abandon nothing", "LimitedHoldersAbandon", reply(func(_ *memdriver.Store, r driver.VoteRequest, res *driver.Result) {
		res.Abandoned = res.Abandoned && r.Limit == 0
	})},
}
