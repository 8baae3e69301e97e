// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/internal/fault"
	"github.com/hasplock/hasp/memdriver"
)

func hintless(context.Context, driver.Claim) (<-chan driver.Hint, error) {
	return make(chan driver.Hint), nil
}

var brokenQueues = []brokenEngine{
	{"last come, first served", "QueueIsInOrder LockIsFirstComeFirstServed RandomMix", ownQueued(func(n int) int { return n - 1 })},
	{"a queue without order", "QueueIsInOrder NobodyOvertakesALivePlace DeadHolderHandsOn LimitedQueueIsInOrder", ownQueued(func(int) int { return -1 })},
	{"no handoff before the first asks", "HandoffIsAtOnce SharedHandoffIsAtOnce", ownQueued(func(int) int { return 0 })},
	{"asking again goes to the end of the queue", "TryAgainKeepsThePlace", reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		if n := looked(s, r.Key).Waiters; r.Queue && !res.Granted && res.Ahead < n-1 {
			res.Ahead = n - 1
		}
	})},
	{"a handed-off key is free for anybody", "NobodyOvertakesALivePlace", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		if info := looked(s, r.Key); info.Holder.Owner != r.Owner && handedOff(info) {
			s.Lose(r.Key)
		}
	})},
	{"places without patience", "DeadPlaceIsSkipped ManyDeadPlacesAreSkipped PatienceIsEachPlacesOwn DeadWaitingWriterLetsReadersIn", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Patience *= 1000 })},
	{"one patience for the whole queue", "PatienceIsEachPlacesOwn", remembering(func(longest *memo[string, time.Duration]) engine {
		return reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
			r.Patience = max(longest.get(r.Key), r.Patience)
			longest.set(r.Key, r.Patience)
		})
	})},
	{"a sign of life by Try is ignored", "TryIsASignOfLife", remembering(func(seen *memo[string, bool]) engine {
		return reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
			r.Queue = r.Queue && !seen.get(r.Owner)
			seen.set(r.Owner, true)
		})
	})},
	{"the first in the queue does not learn when to ask", "FirstInTheQueueKnowsWhenToAsk", reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.RetryIn = 0 })},
	{"a refusal is remembered", "ReleasedBeforeWatch", one(func(s *memdriver.Store, p *patched) {
		var refused memo[string, driver.Result]
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
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
		withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
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
		p.release = func(ctx context.Context, r voting.WithdrawRequest) error {
			err := s.Withdraw(ctx, r)
			if info := looked(s, r.Key); handedOff(info) {
				handed.set(r.Key, info.Holder)
				handed.set(info.Holder.Owner, info.Holder)
			}
			return err
		}
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			h := handed.get(r.Key)
			if !h.Since.IsZero() && time.Since(h.Since) >= memClaim {
				_ = s.Release(ctx, driver.ReleaseRequest{Claim: as(r.Claim, h), TTL: r.TTL})
			}
			return s.Vote(ctx, r)
		}
	})},
	{"hints get lost", "HintReachesTheNext JoinRacesWithRelease HintAfterAPlaceWasGivenUp WatchersAreIndependent WriterJoinsWhileReadersRelease ConvertRacesWithJoin WriterGivesUpWhileReadersRelease UnclaimedKeyWakesTheNext ExpiryAfterAHandoffWakesTheFirst ExpiryAfterAnExpiryWakesTheFirst EarlierExpiryWakesTheFirst RandomMix", one(func(_ *memdriver.Store, p *patched) { p.watch = hintless })},
	{"a sign of life grants nothing", "StoppedWaitersDelayForTheirClaims SignOfLifeTellsTheTurn", one(func(s *memdriver.Store, p *patched) {
		p.watch = hintless
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
			t.Queue, t.Tells = driver.QueueHint, t.Tells&^driver.TellsFree
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
	{"a queue in an engine that has none", "QueueIsIgnored", traits(func(t *driver.Traits) { t.Queue, t.Tells = driver.QueueNone, t.Tells&^driver.TellsFree })},
	{"a watch that begins when it is asked for", "WatchAfterTheJoin", traits(func(t *driver.Traits) { t.Tells |= driver.TellsEarlier })},
	{"hints go to all waiters", "HintWakesNobodyElse", one(func(s *memdriver.Store, p *patched) {
		var mu sync.Mutex
		var all []chan driver.Hint
		p.watch = func(context.Context, driver.Claim) (<-chan driver.Hint, error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, make(chan driver.Hint, 1))
			return all[len(all)-1], nil
		}
		p.release = func(ctx context.Context, r voting.WithdrawRequest) error {
			mu.Lock()
			defer mu.Unlock()
			for _, ch := range all {
				driver.Hint{}.Send(ch)
			}
			return s.Withdraw(ctx, r)
		}
	})},
	{"the end of one watch ends all", "WatchersAreIndependent", one(func(s *memdriver.Store, p *patched) {
		all, end := context.WithCancel(context.Background())
		p.watch = func(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
			context.AfterFunc(ctx, end)
			return s.Watch(all, r)
		}
		p.release = func(ctx context.Context, r voting.WithdrawRequest) error {
			time.Sleep(time.Millisecond) // the end is seen by now
			return s.Withdraw(ctx, r)
		}
	})},
}

// tellsLast returns an open function of an engine that tells, for each key, the last that asked. when says whether
// a refused request is told of, before which so many waited; forget: a Renew without Wanted takes an earlier one back.
func tellsLast(when func(s *memdriver.Store, r voting.VoteRequest, before int) bool, forget bool) engine {
	return one(func(s *memdriver.Store, p *patched) {
		var last memo[string, func()] // of each key, which asked to be told of a join
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			if !r.Queue && (r.Wanted != nil || forget) {
				last.set(r.Key, r.Wanted)
			}
			r.Wanted = nil
			return renewOne(ctx, s, r)
		}
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			before := looked(s, r.Key).Waiters
			res, err := s.Vote(ctx, r)
			if told := last.get(r.Key); told != nil && err == nil && !res.Granted && when(s, r, before) {
				told()
			}
			return res, err
		}
	})
}

func joined(s *memdriver.Store, r voting.VoteRequest, before int) bool {
	return looked(s, r.Key).Waiters > before
}

var brokenWanted = []brokenEngine{
	{"nobody is told of a join", "JoinIsTold JoinIsToldOnce JoinIsToldToSharers JoinIsToldToSlots JoinIsToldToWhoAsks JoinRacesWithAsking",
		prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Wanted = nil })},
	{"only the last of those who share a key is told", "JoinIsToldToSharers JoinIsToldToSlots", tellsLast(joined, true)},
	{"whoever is refused is told of", "JoinIsToldOnce",
		tellsLast(func(*memdriver.Store, voting.VoteRequest, int) bool { return true }, true)},
	{"whoever asks again is told of", "JoinIsToldOnce",
		tellsLast(func(_ *memdriver.Store, r voting.VoteRequest, _ int) bool { return r.Queue }, true)},
	{"who asked once is told of later holders' waiters", "JoinIsToldToWhoAsks", tellsLast(joined, false)},
	{"a join is told of to the holders of all keys", "JoinIsToldToWhoAsks", one(func(s *memdriver.Store, p *patched) {
		var all memo[string, func()]
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			if r.Wanted != nil {
				all.set(r.Key+r.Owner, r.Wanted)
			}
			return renewOne(ctx, s, r)
		}
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if r.Queue && !res.Granted {
				all.each(func(wanted func()) { wanted() })
			}
			return res, err
		}
	})},
	{"whoever asks keeps", "KeeperIsNamed", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Keeps = r.Wanted != nil })},
	{"no keeper is named", "KeeperIsNamed", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Keeps = false })},
	{"the renewal that asks does not say that somebody waits", "JoinRacesWithAsking", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		for r.Wanted != nil && looked(s, r.Key).Waiters == 0 { // the join comes first
			runtime.Gosched()
		}
		a := renewOne(ctx, s, r)
		a.Wanted = a.Wanted && r.Wanted == nil
		return a
	})},
}

// hands returns an open function of an engine whose hints tell of handovers what f makes of them.
func hands(f func(to driver.Handover) driver.Handover) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.watch = func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
			hints, err := s.Watch(ctx, c)
			return fault.Relay(ctx, hints, func(h driver.Hint) (driver.Hint, bool) {
				h.Handover = f(h.Handover)
				return h, true
			}), err
		}
	})
}

const allEntered = "HandoverIsTold HandoverIsNotRepeated EnteredLeaseIsClaimed EnteredLeaseIsReleased EnteredLeaseConverts EnteredLeaseAbandons"

var brokenEnter = []brokenEngine{
	{"no handover is told", allEntered, hands(func(driver.Handover) driver.Handover { return driver.Handover{} })},
	{"a handover without its time", allEntered, hands(func(to driver.Handover) driver.Handover { to.At = 0; return to })},
	{"a handover without its length", allEntered, hands(func(to driver.Handover) driver.Handover { to.TTL = 0; return to })},
	{"a handover never says that the key was abandoned", "HandoverIsTold",
		hands(func(to driver.Handover) driver.Handover { to.Abandoned = false; return to })},
	{"a refusal without the time", allEntered, reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.At = 0 })},
	{"a refusal names a fence that is to come", allEntered, reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) {
		if res.At > 0 {
			res.Fence *= 2
		}
	})},
	{"a handover is told to everybody", "HandoverIsNotRepeated", remembering(func(latest *memo[string, driver.Handover]) engine {
		return one(func(s *memdriver.Store, p *patched) {
			p.watch = func(ctx context.Context, c driver.Claim) (<-chan driver.Hint, error) {
				if to := latest.get(""); to.Fence != 0 {
					ch := make(chan driver.Hint, 1)
					driver.Hint{Handover: to}.Send(ch)
					return ch, nil
				}
				hints, err := s.Watch(ctx, c)
				return fault.Relay(ctx, hints, func(h driver.Hint) (driver.Hint, bool) {
					latest.set("", h.Handover)
					return h, true
				}), err
			}
		})
	})},
	{"a claim only prolongs", "EnteredLeaseIsClaimed", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Entered = false })},
	{"a claim that comes first gets another fence", "HandoverIsTold", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Fences = 2 })},
	{"a lease that was not claimed finishes", "EnteredLeaseIsReleased", rewithdraw(func(_ *memdriver.Store, r *voting.WithdrawRequest) { r.End = driver.EndFinished })},
	{"a lease that was not claimed does not convert", "EnteredLeaseConverts", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Fence = 0 })},
	{"nobody is told of one that entered and vanished", "EnteredLeaseAbandons", reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.Abandoned = false })},
}

// telling is a client of a store that says to each client when another released its lease.
type telling struct {
	*patched
	lost func(driver.ID, uint64)
}

func (t *telling) Tell(lost func(driver.ID, uint64)) { t.lost = lost }

// lease is what a client was granted.
type lease struct {
	of    *telling
	fence uint64
}

// tells is an engine that tells. report says whether the client `of` hears that `by` released its lease.
func tells(report func(of, by *telling) bool) engine {
	return remembering(func(leases *memo[driver.ID, lease]) engine {
		return func(s *memdriver.Store) func() driver.Driver {
			return func() driver.Driver { return newTelling(s, leases, report) }
		}
	})
}

func newTelling(s *memdriver.Store, leases *memo[driver.ID, lease], report func(of, by *telling) bool) driver.Driver {
	t := &telling{patched: patch(s), lost: func(driver.ID, uint64) {}}
	t.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Granted {
			leases.set(r.ID(), lease{t, res.Fence})
		}
		return res, err
	}
	t.release = func(ctx context.Context, r voting.WithdrawRequest) error {
		err := s.Withdraw(ctx, r)
		l := leases.get(r.ID())
		leases.set(r.ID(), lease{})
		if l.of != nil && err == nil && report(l.of, t) {
			l.of.lost(r.ID(), l.fence)
		}
		return err
	}
	return t
}

var brokenTellers = []brokenEngine{
	{"a broken lease is not told", "BrokenLeaseIsTold", tells(func(*telling, *telling) bool { return false })},
	{"every release is told", "OnlyEndedLeasesAreTold", tells(func(*telling, *telling) bool { return true })},
}

// The suite passes for an engine that tells.
func TestTeller(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
		return drivertest.Store{Open: tells(func(of, by *telling) bool { return of != by })(memdriver.New())}
	}})
}
