// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

var brokenReleases = []brokenEngine{
	{"release deletes without comparing", "ReleaseIsTheOwnersAlone ReleaseTwice LateReleaseSparesTheSuccessor",
		rewithdraw(func(s *memdriver.Store, r *driver.WithdrawRequest) {
			if info := looked(s, r.Key); info.Held {
				r.Claim = as(r.Claim, info.Holder)
			}
		})},
	{"release does not compare the label", "ReleaseComparesTheLabel", rewithdraw(func(s *memdriver.Store, r *driver.WithdrawRequest) {
		if info := looked(s, r.Key); info.Holder.Owner == r.Owner {
			r.Claim = as(r.Claim, info.Holder)
		}
	})},
	{"release never says that nothing was held", "ReleaseIsTheOwnersAlone ReleaseTwice LateReleaseSparesTheSuccessor",
		withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
			if err := s.Withdraw(ctx, r); !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			return nil
		})},
	{"release does nothing", "ReleaseFreesTheKey LockWaitsItsTurn CancelAtAnyMoment ReleaseNeedsNoContext ClientCloseLeavesNothing",
		withdrawing(func(_ context.Context, _ *memdriver.Store, _ driver.WithdrawRequest) error { return nil })},
	{"a released owner is forgotten", "TryAfterReleaseIsRefused CancelledTryIsCleanedUp", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if !res.Granted && !looked(s, r.Key).Held {
			r.Owner = another // as if it were new
			return s.Vote(ctx, r)
		}
		return res, err
	})},
	{"a released owner is forgotten after its TTL", "TryLongAfterReleaseIsRefused", one(func(s *memdriver.Store, p *patched) {
		var forgets sync.Map // driver.ID -> time.Time
		p.release = func(ctx context.Context, r driver.WithdrawRequest) error {
			forgets.Store(r.ID(), time.Now().Add(r.TTL))
			return s.Withdraw(ctx, r)
		}
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			if at, ok := forgets.Load(r.ID()); ok && time.Now().After(at.(time.Time)) {
				r.Owner = another // as if it were new
			}
			return s.Vote(ctx, r)
		}
	})},
	{"a released owner may take a place", "TryAfterReleaseIsRefused", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if r.Queue && !res.Granted && looked(s, r.Key).Waiters == 0 {
			r.Owner = another
			return s.Vote(ctx, r)
		}
		return res, err
	})},
	{"release leaves a place in the queue", "ReleaseLeavesTheQueue CancelledLockLeavesNothing WriterThatLeavesLetsReadersIn", withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
		if info := looked(s, r.Key); info.Held && info.Holder.Owner != r.Owner && info.Waiters > 0 {
			return nil
		}
		return s.Withdraw(ctx, r)
	})},
	{"a key that was handed off cannot be released", "ReleaseOfAHandedOffKeyHandsItOn GivingUpRacesWithRelease HintAfterAPlaceWasGivenUp ReleaseOfHandedOffSharesHandsThemOn",
		withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
			if info := looked(s, r.Key); info.Holder.Owner == r.Owner && handedOff(info) {
				return driver.ErrNotHeld
			}
			return s.Withdraw(ctx, r)
		})},
	{"settled releases do nothing", "SettledReleaseIsARelease", withdrawing(func(ctx context.Context, s *memdriver.Store, r driver.WithdrawRequest) error {
		if r.Settled {
			return nil
		}
		return s.Withdraw(ctx, r)
	})},
	{"settled releases are remembered", "SettledOwnerMayAskAgain", rewithdraw(func(_ *memdriver.Store, r *driver.WithdrawRequest) { r.Settled = false })},
	{"release leaves a counter for each key", "NothingStays", rewithdraw(func(s *memdriver.Store, r *driver.WithdrawRequest) {
		s.Hold("fence:"+r.Key, 1000*time.Hour, driver.Label{})
	})},
	{"close releases all locks", "CloseEndsWhatTheDriverOpened", one(func(s *memdriver.Store, p *patched) {
		p.close = func() error {
			s.Lose("k")
			return nil
		}
	})},
}

var brokenRenewals = []brokenEngine{
	{"renewals that do nothing", "RenewProlongs LockOutlivesManyTTLs ReleaseNeedsNoContext AdoptedLeaseGoesOn ReadersOutliveManyTTLs",
		renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
			ttl := r.TTL
			if r.TTL = 1; r.Queue {
				return renewOne(ctx, s, r)
			}
			a := renewOne(ctx, s, r)
			a.TTL = ttl
			return a
		})},
	{"renewal of a free key grants it", "RenewNeverGrants RenewNeverRevives", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		a := renewOne(ctx, s, r)
		if a.Err != nil && !looked(s, r.Key).Held {
			r.Owner = rand.Text()
			res, _ := s.Try(ctx, driver.TryRequest{Claim: r.Claim, TTL: r.TTL})
			return driver.Renewal{TTL: res.TTL}
		}
		return a
	})},
	{"a client's leases live as long as one of them", "RenewNamesItsLeases", func(s *memdriver.Store) func() driver.Driver {
		return func() driver.Driver {
			var mine memo[string, driver.TryRequest]
			p := &patched{Store: s}
			p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
				res, err := s.Vote(ctx, r)
				if res.Granted {
					mine.set(r.Owner, r.TryRequest)
				}
				return res, err
			}
			p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
				mine.each(func(o driver.TryRequest) {
					_ = renewOne(ctx, s, driver.RenewRequest{Claim: o.Claim, TTL: o.TTL})
				})
				return renewOne(ctx, s, r)
			}
			return p
		}
	}},
	{"a client's places live as long as one of its leases", "RenewNamesItsLeases", func(s *memdriver.Store) func() driver.Driver {
		return func() driver.Driver {
			var mine memo[string, driver.TryRequest]
			p := &patched{Store: s}
			p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
				if r.Queue {
					mine.set(r.Owner, r.TryRequest)
				}
				return s.Vote(ctx, r)
			}
			p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
				mine.each(func(o driver.TryRequest) { _, _ = s.Try(ctx, o) })
				return renewOne(ctx, s, r)
			}
			return p
		}
	}},
	{"renewal prolongs anybody's lease", "RenewNeverRevives RenewReportsEach", prolong(func(s *memdriver.Store, r *driver.RenewRequest) {
		if info := looked(s, r.Key); info.Held && !r.Queue {
			r.Claim = as(r.Claim, info.Holder)
		}
	})},
	{"one that is not held fails the whole batch", "RenewReportsEach", one(func(s *memdriver.Store, p *patched) {
		p.batch = func(rs []driver.RenewRequest, answers []driver.Renewal) (int, int) {
			for _, a := range answers {
				if a.Err != nil {
					for i := range answers {
						answers[i] = a
					}
					break
				}
			}
			return 0, len(rs)
		}
	})},
	{"one answer too many", "RenewOfNothing", one(func(s *memdriver.Store, p *patched) {
		p.batch = func(rs []driver.RenewRequest, _ []driver.Renewal) (int, int) { return 0, len(rs) + 1 }
	})},
	{"only the first 500 are renewed", "RenewOfMany", one(func(s *memdriver.Store, p *patched) {
		p.batch = func(rs []driver.RenewRequest, _ []driver.Renewal) (int, int) { return 0, min(len(rs), 500) }
	})},
	{"renewals do not report waiters", "RenewSaysThatSomebodyWaits WantedComesWithARenewal KeptKeyGoesToWhoWaits", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		r.Wanted = nil // nor is the holder told
		a := renewOne(ctx, s, r)
		a.Wanted = false
		return a
	})},
	{"a handed-off place is still a place", "HandedOffPlaceIsNoPlace HandedOffReaderIsNoPlace", prolonged(func(_ *memdriver.Store, r driver.RenewRequest, a *driver.Renewal) {
		if r.Queue {
			a.Err = nil
		}
	})},
	{"a sign of life by Renew is ignored", "RenewKeepsThePlace", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Patience = 1 })},
	{"an owner that becomes first does not learn when to ask", "WhoBecomesFirstKnowsWhenToAsk", prolonged(func(_ *memdriver.Store, _ driver.RenewRequest, a *driver.Renewal) { a.RetryIn = 0 })},
}
