// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

var brokenHolds = []brokenEngine{
	{"traits that change", "TraitsAreConstant", func(s *memdriver.Store) func() driver.Driver {
		var n atomic.Int64
		return func() driver.Driver {
			return &patched{Store: s, traits: func(t driver.Traits) driver.Traits {
				t.MinTTL += time.Duration(n.Add(1))
				return t
			}}
		}
	}},
	{"each client has locks of its own", "OneHolder OneHolderOfManyAtOnce LockWaitsItsTurn RandomMix LockAllInAnyOrder",
		func(*memdriver.Store) func() driver.Driver {
			return func() driver.Driver { return memdriver.New() }
		}},
	{"a grant that is not stored", "TryGrantsAFreeKey LockWaitsItsTurn", asking(func(_ context.Context, _ *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		return driver.Result{Granted: true, Fence: 1, TTL: r.TTL}, nil
	})},
	{"the holder is refused when it asks again", "TryAgainIsTheSameGrant LostRepliesDoNoHarm",
		asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
			if info := looked(s, r.Key); info.Holder.Owner == r.Owner && !handedOff(info) {
				return driver.Result{Holder: info.Holder, Left: info.Left}, nil
			}
			return s.Vote(ctx, r)
		})},
	{"a timeout is reported as not sent", "NotSentIsTrue", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if _, ok := ctx.Deadline(); ok && err == nil {
			return driver.Result{}, driver.NotSent(context.DeadlineExceeded)
		}
		return res, err
	})},
	{"several fences are counted from the first", "FencesInARow KeptKeyGoesToWhoWaits", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		n := r.Fences
		r.Fences = 0
		res, err := s.Vote(ctx, r)
		res.Fences = n
		return res, err
	})},
	{"the holder gets a new fence when it asks again", "TryAgainIsTheSameGrant OneOwnerAskingAtOnce", one(func(s *memdriver.Store, p *patched) {
		var n atomic.Uint64
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			res.Fence += n.Add(1)
			return res, err
		}
	})},
	{"the holder that asks again joins the queue", "TryAgainIsTheSameGrant DuplicatedRequestsDoNothing",
		asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
			if r.Queue && looked(s, r.Key).Holder.Owner == r.Owner {
				other := r
				other.Owner = another
				_, _ = s.Vote(ctx, other)
			}
			return s.Vote(ctx, r)
		})},
	{"the expiry is replaced", "TryNeverShortens RenewNeverShortens", one(replacesTheExpiry(false))},
	{"the expiry is replaced, and not known", "TryNeverShortens RenewNeverShortens", one(replacesTheExpiry(true))},
	{"asking again does not prolong", "TryProlongs", reask(func(s *memdriver.Store, r *driver.VoteRequest) {
		if looked(s, r.Key).Holder.Owner == r.Owner {
			r.TTL = 1
		}
	})},
	{"every refused owner joins the queue", "RefusalLeavesNoTrace", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Queue = true })},
	{"seconds instead of milliseconds", "LeaseEnds MinTTL VanishedHolderDelaysForItsTTL DeadReaderDelaysForItsTTL", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		r.TTL *= 1000
		res, err := s.Vote(ctx, r)
		res.TTL /= 1000
		return res, err
	})},
	{"leases end before their TTL", "LeaseEnds RandomMix LossIsKnownBeforeTheNextGrant LockOutlivesAShortOutage LossOfAReaderIsKnownBeforeTheWriter",
		one(func(s *memdriver.Store, p *patched) {
			p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
				r.TTL = max(r.TTL/2, 1)
				res, err := s.Vote(ctx, r)
				res.TTL *= 2
				return res, err
			}
			p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
				r.TTL /= 2
				a := renewOne(ctx, s, r)
				a.TTL *= 2
				return a
			}
		})},
	{"a TTL of 0 means the default", "TTLMustBePositive", reask(func(_ *memdriver.Store, r *driver.VoteRequest) {
		if r.TTL <= 0 {
			r.TTL = time.Minute
		}
	})},
	{"shared means exclusive", "SharedIsRefused", one(func(s *memdriver.Store, p *patched) {
		p.traits = func(t driver.Traits) driver.Traits {
			t.Shared, t.Slots = false, false
			return t
		}
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			r.Mode = driver.Exclusive
			return s.Vote(ctx, r)
		}
	})},
	{"leases belong to the connection", "OwnerIsNotTheConnection AdoptedLeaseGoesOn", func(s *memdriver.Store) func() driver.Driver {
		return func() driver.Driver {
			var mine memo[string, bool]
			return &patched{Store: s,
				try: func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
					mine.set(r.Owner, true)
					return s.Vote(ctx, r)
				},
				renew: func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
					if !mine.get(r.Owner) {
						return driver.Renewal{Err: driver.ErrNotHeld}
					}
					return renewOne(ctx, s, r)
				}}
		}
	}},
	{"contexts are ignored", "EndedContext", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		return s.Vote(context.WithoutCancel(ctx), r)
	})},
	{"an ended context is a wrong password", "CancelledTryIsCleanedUp", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		if ctx.Err() != nil {
			return driver.Result{}, driver.ErrUnsupported
		}
		return s.Vote(ctx, r)
	})},
	{"keys end at a NUL", "HostileKeys", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Key, _, _ = strings.Cut(r.Key, "\x00") })},
	{"keys that are refused", "HostileKeys", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		if strings.Contains(r.Key, "%") {
			return driver.Result{}, errors.New("unknown verb")
		}
		return s.Vote(ctx, r)
	})},
	{"labels are converted to valid text", "HostileLabels", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Label = strings.ToValidUTF8(r.Label, "?") })},
	{"a watch that leaves a goroutine", "NoGoroutineStays", one(func(s *memdriver.Store, p *patched) {
		p.watch = func(ctx context.Context, r driver.Claim) (<-chan struct{}, error) {
			go time.Sleep(time.Hour)
			return s.Watch(ctx, r)
		}
	})},
}

// replacesTheExpiry has the latest request decide when a lease ends.
func replacesTheExpiry(vague bool) func(*memdriver.Store, *patched) {
	return func(s *memdriver.Store, p *patched) {
		var until memo[string, time.Time]
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted {
				until.set(r.Key, time.Now().Add(r.TTL))
				res.TTL = r.TTL
			}
			return res, err
		}
		p.renew = func(ctx context.Context, r driver.RenewRequest) driver.Renewal {
			until.set(r.Key, time.Now().Add(r.TTL))
			return renewOne(ctx, s, r)
		}
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			left := time.Until(until.get(key))
			if left <= 0 {
				s.Lose(key)
			}
			info, err := s.Inspect(ctx, key)
			if vague {
				return vaguely(info), err
			}
			info.Left = left
			for i := range info.Holders {
				info.Holders[i].Left = left
			}
			return info, err
		}
	}
}

// memClaim is how long memdriver keeps a key for a waiter that it was handed to.
const memClaim = 500 * time.Millisecond

// handedOff reports whether a key waits for its claim: in memory for no longer than
// memClaim.
func handedOff(info driver.Info) bool { return info.Held && info.Left <= memClaim }
