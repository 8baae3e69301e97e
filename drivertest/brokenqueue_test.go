// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

var brokenQueues = []brokenEngine{
	{"last come, first served", "QueueIsInOrder LockIsFirstComeFirstServed RandomMix", func(s *memdriver.Store) func() driver.Driver {
		o := newOwnQueue(s, func(n int) int { return n - 1 })
		return func() driver.Driver { return o }
	}},
	{"a queue without order", "QueueIsInOrder NobodyOvertakesALivePlace DeadHolderHandsOn LimitedQueueIsInOrder", func(s *memdriver.Store) func() driver.Driver {
		o := newOwnQueue(s, func(int) int { return -1 })
		return func() driver.Driver { return o }
	}},
	{"no handoff before the first asks", "HandoffIsAtOnce SharedHandoffIsAtOnce", func(s *memdriver.Store) func() driver.Driver {
		o := newOwnQueue(s, func(int) int { return 0 })
		return func() driver.Driver { return o }
	}},
	{"asking again goes to the end of the queue", "TryAgainKeepsThePlace", reply(func(s *memdriver.Store, r driver.VoteRequest, res *driver.Result) {
		if n := looked(s, r.Key).Waiters; r.Queue && !res.Granted && res.Ahead < n-1 {
			res.Ahead = n - 1
		}
	})},
	{"a handed-off key is free for anybody", "NobodyOvertakesALivePlace", reask(func(s *memdriver.Store, r *driver.VoteRequest) {
		if info := looked(s, r.Key); info.Holder.Owner != r.Owner && handedOff(info) {
			s.Lose(r.Key)
		}
	})},
	{"places without patience", "DeadPlaceIsSkipped ManyDeadPlacesAreSkipped PatienceIsEachPlacesOwn DeadWaitingWriterLetsReadersIn", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Patience *= 1000 })},
	{"one patience for the whole queue", "PatienceIsEachPlacesOwn", one(func(s *memdriver.Store, p *patched) {
		var mu sync.Mutex
		var longest time.Duration
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			mu.Lock()
			defer mu.Unlock()
			longest = max(longest, r.Patience)
			r.Patience = longest
			return s.Vote(ctx, r)
		}
	})},
	{"a sign of life by Try is ignored", "TryIsASignOfLife", one(func(s *memdriver.Store, p *patched) {
		var seen memo[string, bool]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			r.Queue = r.Queue && !seen.get(r.Owner)
			seen.set(r.Owner, true)
			return s.Vote(ctx, r)
		}
	})},
	{"the first in the queue does not learn when to ask", "FirstInTheQueueKnowsWhenToAsk", reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) { res.RetryIn = 0 })},
	{"a refusal is remembered", "ReleasedBeforeWatch", one(func(s *memdriver.Store, p *patched) {
		var refused memo[string, driver.Result]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			if res := refused.get(r.Owner); res.Holder.Owner != "" {
				refused.set(r.Owner, driver.Result{})
				return res, nil
			}
			res, err := s.Vote(ctx, r)
			if !res.Granted {
				refused.set(r.Owner, res)
			}
			return res, err
		}
	})},
	{"a handed-off key waits for ever", "UnclaimedKeyGoesOn UnclaimedKeyGoesFree WatcherThatIsGone VanishedWaiterDelaysForItsPatience UnclaimedSharesGoOn",
		withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
			err := s.Withdraw(ctx, r)
			if info := looked(s, r.Key); handedOff(info) {
				c := as(r.Claim, info.Holder)
				c.Mode = info.Holder.Mode
				_, _ = s.Try(ctx, driver.TryRequest{Claim: c, TTL: 1000 * time.Hour})
			}
			return err
		})},
	{"a lapsed claim costs the place", "LapsedClaimKeepsThePlaceOnce OutageAtTheTurn LapsedSharesKeepTheirPlacesOnce", one(func(s *memdriver.Store, p *patched) {
		var handed memo[string, driver.Holder]
		p.release = func(ctx context.Context, r driver.WithdrawRequest) error {
			err := s.Withdraw(ctx, r)
			if info := looked(s, r.Key); handedOff(info) {
				handed.set(r.Key, info.Holder)
				handed.set(info.Holder.Owner, info.Holder)
			}
			return err
		}
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			h := handed.get(r.Key)
			if !h.Since.IsZero() && time.Since(h.Since) >= memClaim {
				_ = s.Release(ctx, driver.ReleaseRequest{Claim: as(r.Claim, h), TTL: r.TTL})
			}
			return s.Vote(ctx, r)
		}
	})},
	{"hints get lost", "HintReachesTheNext JoinRacesWithRelease HintAfterAPlaceWasGivenUp WatchersAreIndependent WriterJoinsWhileReadersRelease ConvertRacesWithJoin WriterGivesUpWhileReadersRelease UnclaimedKeyWakesTheNext ExpiryAfterAHandoffWakesTheFirst ExpiryAfterAnExpiryWakesTheFirst EarlierExpiryWakesTheFirst RandomMix", one(func(s *memdriver.Store, p *patched) {
		p.watch = func(context.Context, driver.Claim) (<-chan struct{}, error) {
			return make(chan struct{}), nil
		}
	})},
	{"a sign of life grants nothing", "StoppedWaitersDelayForTheirClaims SignOfLifeTellsTheTurn", one(func(s *memdriver.Store, p *patched) {
		p.watch = func(context.Context, driver.Claim) (<-chan struct{}, error) {
			return make(chan struct{}), nil
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			a := renewOne(ctx, s, r)
			if r.Queue {
				a = driver.Renewal{}
			}
			return a
		}
	})},
	{"a queue that is polled, with signs of life that say nothing", "SignOfLifeTellsTheTurn", one(func(s *memdriver.Store, p *patched) {
		p.traits = func(t driver.Traits) driver.Traits {
			t.Queue, t.Hints = driver.QueueHint, false
			return t
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			a := renewOne(ctx, s, r)
			if r.Queue && a.Err == nil {
				a.RetryIn = 0
			} else if r.Queue {
				a = driver.Renewal{}
			}
			return a
		}
	})},
	{"a queue in an engine that has none", "QueueIsIgnored", traits(func(t *driver.Traits) { t.Queue, t.Hints = driver.QueueNone, false })},
	{"a watch that begins when it is asked for", "WatchAfterTheJoin", traits(func(t *driver.Traits) { t.JoinFirst = true })},
	{"hints go to all waiters", "HintWakesNobodyElse", one(func(s *memdriver.Store, p *patched) {
		var mu sync.Mutex
		var all []chan struct{}
		p.watch = func(context.Context, driver.Claim) (<-chan struct{}, error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, make(chan struct{}, 1))
			return all[len(all)-1], nil
		}
		p.release = func(ctx context.Context, r driver.WithdrawRequest) error {
			mu.Lock()
			defer mu.Unlock()
			for _, ch := range all {
				select {
				case ch <- struct{}{}:
				default:
				}
			}
			return s.Withdraw(ctx, r)
		}
	})},
	{"the end of one watch ends all", "WatchersAreIndependent", one(func(s *memdriver.Store, p *patched) {
		all, end := context.WithCancel(context.Background())
		p.watch = func(ctx context.Context, r driver.Claim) (<-chan struct{}, error) {
			context.AfterFunc(ctx, end)
			return s.Watch(all, r)
		}
		p.release = func(ctx context.Context, r driver.WithdrawRequest) error {
			time.Sleep(time.Millisecond) // the end is seen by now
			return s.Withdraw(ctx, r)
		}
	})},
}
