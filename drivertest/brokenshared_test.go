// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
)

// letIn is a grant that is not in the store.
func letIn(r voting.VoteRequest) driver.Result {
	return driver.Result{Granted: true, Fence: uint64(time.Now().UnixMicro()), TTL: r.TTL}
}

// leaseOf returns an owner's lease from an answer of Inspect.
func leaseOf(info driver.Info, c driver.Claim) (driver.Holding, bool) {
	i := slices.IndexFunc(info.Holders, func(l driver.Holding) bool { return l.Holder.Owner == c.Owner })
	if i < 0 {
		return driver.Holding{}, false
	}
	return info.Holders[i], true
}

// oneAtATime is an engine that makes readers that were granted together wait for each
// other.
var oneAtATime = one(func(s *memdriver.Store, p *patched) {
	p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
		info := looked(s, r.Key)
		mine, ok := leaseOf(info, r.Claim)
		claimed := func(l driver.Holding) bool { return l.Left > memClaim }
		if ok && !claimed(mine) && slices.ContainsFunc(info.Holders, claimed) {
			return driver.Result{Holder: info.Holder, Left: info.Left}, nil
		}
		return s.Vote(ctx, r)
	}
})

// timed is an engine with another RetryIn in its refusals.
func timed(choose func(lefts []time.Duration) time.Duration) engine {
	return reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		var lefts []time.Duration
		for _, l := range looked(s, r.Key).Holders {
			lefts = append(lefts, l.Left)
		}
		if !res.Granted && len(lefts) > 0 {
			res.RetryIn = choose(lefts)
		}
	})
}

var brokenShares = []brokenEngine{
	{"shared keys have one holder", "SharersHoldTogether RLocksHoldTogether", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Mode, r.Convert = driver.Exclusive, false })},
	{"modes are not compared", "SharersHoldTogether WriterKeepsSharersOut OneWriterOrSharersAtOnce WaitingWriterStopsLaterReaders RandomMix WriterIsNotStarved",
		reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			if !res.Granted && res.Why == driver.WhyHeld && (res.Holder.Mode != r.Mode || r.Mode != driver.Exclusive) {
				*res = letIn(r)
			}
		})},
	{"a reader that asks again holds twice", "SharedTryAgainIsTheSameGrant CopiesOfASharedRequestAtOnce",
		reask(func(s *memdriver.Store, r *voting.VoteRequest) {
			if _, ok := leaseOf(looked(s, r.Key), r.Claim); ok {
				again := *r
				again.Owner = rand.Text()
				_, _ = s.Vote(context.Background(), again)
			}
		})},
	{"a reader that asks again goes to the end of the queue", "SharedTryEntersNoQueue",
		reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			if n := looked(s, r.Key).Waiters; res.Granted && n > 0 {
				*res = driver.Result{Ahead: n}
			}
		})},
	{"one expiry for all that share a key", "EachSharerHasItsOwnExpiry", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		for _, l := range looked(s, r.Key).Holders {
			renewOne(ctx, s, driver.RenewRequest{Claim: as(r.Claim, l.Holder), TTL: r.TTL})
		}
		return renewOne(ctx, s, r)
	})},
	{"a share lasts as long as the previous one", "SharedLeaseEnds", reask(func(s *memdriver.Store, r *voting.VoteRequest) { r.TTL = max(r.TTL, looked(s, r.Key).Left) })},
	{"the holder's Try changes the mode", "ModeIsKept", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		if l, ok := leaseOf(looked(s, r.Key), r.Claim); ok && l.Holder.Mode != r.Mode {
			r.Mode, r.Convert = driver.Shared, true
		}
	})},
	{"a late Try is answered with what its owner has", "ModeIsKept LateTryAfterConvert",
		reask(func(s *memdriver.Store, r *voting.VoteRequest) {
			if l, ok := leaseOf(looked(s, r.Key), r.Claim); ok && !r.Convert {
				r.Mode, r.Limit = l.Holder.Mode, l.Holder.Limit
			}
		})},
	{"renewals compare the mode", "RenewInWhicheverMode LateRenewAfterConvert", renewing(func(ctx context.Context, s *memdriver.Store, r driver.RenewRequest) driver.Renewal {
		if l, ok := leaseOf(looked(s, r.Key), r.Claim); ok && l.Holder.Mode != r.Mode {
			return driver.Renewal{Err: driver.ErrNotHeld}
		}
		return renewOne(ctx, s, r)
	})},
	{"a release ends all shares", "SharedReleaseIsTheOwnersAlone WriterWaitsForAllSharers WriterAfterConvert",
		withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
			err := s.Withdraw(ctx, r)
			if info := looked(s, r.Key); err == nil && info.Leases > 0 && info.Holder.Mode == driver.Shared {
				s.Lose(r.Key)
			}
			return err
		})},
	{"settled releases of shares are remembered", "SettledSharerMayAskAgain",
		rewithdraw(func(_ *memdriver.Store, r *voting.WithdrawRequest) { r.Settled = r.Settled && r.Mode != driver.Shared })},
	{"readers that are refused join the queue", "SharedRefusalLeavesNoTrace",
		reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
			r.Queue = r.Queue || r.Mode == driver.Shared && !r.Convert
		})},
	{"labels of shares are converted to valid text", "HostileLabelsOfSharers", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Mode == driver.Shared {
			r.Label = strings.ToValidUTF8(r.Label, "?")
		}
	})},
	{"shared keys end at a NUL", "HostileKeysAreShared", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Mode == driver.Shared {
			r.Key, _, _ = strings.Cut(r.Key, "\x00")
		}
	})},
	{"shares are kept under a name that may be a key's", "SharedKeysNamedLikeTheStoresOwn",
		reask(func(s *memdriver.Store, r *voting.VoteRequest) {
			if base, ok := strings.CutSuffix(r.Key, ":line"); ok {
				for _, l := range looked(s, base).Holders {
					_ = s.Release(context.Background(), driver.ReleaseRequest{Claim: as(driver.Claim{Key: base}, l.Holder)})
				}
			}
		})},
	{"shares are listed in the order of their expiry", "SharersAreListed", relook(func(_ *memdriver.Store, info *driver.Info) {
		slices.SortStableFunc(info.Holders, func(a, b driver.Holding) int { return int(a.Left - b.Left) })
	})},
	{"only shares are listed", "OneHolderIsListed", relook(func(_ *memdriver.Store, info *driver.Info) {
		if info.Holder.Mode == driver.Exclusive {
			info.Leases, info.Holders = 0, nil
		}
	})},
	{"a key that was shared leaves a set", "NothingStaysOfSharers", rewithdraw(func(s *memdriver.Store, r *voting.WithdrawRequest) {
		if r.Mode == driver.Shared {
			s.Hold("shares:"+r.Key, 1000*time.Hour, driver.Label{})
		}
	})},
	{"readers that were granted together wait for each other",
		"NeighboursEnterTogether DeadWriterHandsOnToReaders SharedHandoffIsAtOnce LargerLimitLetsSeveralIn", oneAtATime},
	{"only the first reader gets a hint", "NeighboursAllGetHints DeadWriterLetsAllReadersIn DeadHoldersLetAsManyIn", one(func(s *memdriver.Store, p *patched) {
		var n atomic.Int64
		p.watch = func(ctx context.Context, r driver.Claim) (<-chan driver.Hint, error) {
			if r.Mode == driver.Shared && n.Add(1) > 1 {
				return make(chan driver.Hint), nil
			}
			return s.Watch(ctx, r)
		}
	})},
	{"readers before writers", "MixedQueueIsInOrder", reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		reads := func(h driver.Holder) bool { return h.Mode == driver.Shared }
		if r.Mode == driver.Exclusive && r.Queue && slices.ContainsFunc(looked(s, r.Key).Queue, reads) {
			*res = driver.Result{Ahead: 1}
		}
	})},
	{"a writer learns of the first expiry", "WriterKnowsTheLastExpiry", timed(slices.Min)},
	{"a waiter for a slot learns of the last expiry", "FirstInTheQueueKnowsWhenThereIsRoom", timed(slices.Max)},
	{"only one reader learns that an owner waits", "EachSharerLearnsThatSomebodyWaits", prolonged(func(s *memdriver.Store, r driver.RenewRequest, a *driver.Renewal) {
		a.Wanted = a.Wanted && looked(s, r.Key).Holder.Owner == r.Owner
	})},
}

var brokenConverts = []brokenEngine{
	{"a Convert is a Try", "ConvertShares ConvertLetsReadersIn DowngradeLetsReadersEnter", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Convert {
			r.Mode, r.Convert = driver.Exclusive, false
		}
	})},
	{"a shared lease cannot be converted", "ConvertTwice LostReplyOfADowngrade", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		info := looked(s, r.Key)
		if r.Convert && info.Holder.Mode == driver.Shared {
			return driver.Result{Holder: info.Holder, Left: info.Left}, nil
		}
		return s.Vote(ctx, r)
	})},
	{"a Convert of nothing is a Try", "ConvertOfNothing ConvertAfterTheEnd", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		_, held := leaseOf(looked(s, r.Key), r.Claim)
		r.Convert = r.Convert && held
	})},
	{"a Convert that is refused is a Release", "ConvertOfNothing", reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		if r.Convert && !res.Granted {
			_ = s.Release(context.Background(), driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL})
		}
	})},
	{"a Convert does not prolong", "ConvertProlongs", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Convert {
			r.TTL = 1
		}
	})},
	{"a Convert of any vote", "ConvertComparesTheFence", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Convert {
			r.Fence = 0
		}
	})},
	{"a Convert drops the limit", "ConvertTakesASlot", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Convert {
			r.Limit = 0
		}
	})},
}

var brokenSlots = []brokenEngine{
	{"limits are not counted, and not refused", "NoLimitWithoutSlots", traits(func(t *driver.Traits) { t.Slots = false })},
	{"one more than the limit", "LimitIsKept LimitIsKeptAtOnce SmallestLimitCounts LimitOfOne",
		reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
			if r.Limit > 0 {
				r.Limit++
			}
		})},
	{"only the limit of the request counts", "SmallestLimitCounts", reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		info := looked(s, r.Key)
		if !res.Granted && r.Mode == driver.Shared && info.Holder.Mode == driver.Shared && (r.Limit == 0 || info.Leases < r.Limit) {
			*res = letIn(r)
		}
	})},
	{"slots are counted up", "SlotIsTheSmallestThatIsFree SlotOfADeadHolderComesBack SemaphoreNumbersItsSlots", remembering(func(n *memo[string, int]) engine { // of owners, and what the keys have counted
		return reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			if res.Granted && r.Limit > 0 {
				if n.get(r.Owner) == 0 {
					n.set(r.Key, n.get(r.Key)+1)
					n.set(r.Owner, n.get(r.Key))
				}
				res.Slot = n.get(r.Owner) - 1
			}
		})
	})},
	{"a slot is a rank", "SlotIsKept", reply(func(s *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		res.Slot = max(0, slices.IndexFunc(looked(s, r.Key).Holders, func(l driver.Holding) bool { return l.Holder.Owner == r.Owner }))
	})},
	{"no limit is a large one", "ReaderHasNoSlot ReadersAbandonNothing ConvertFinishes",
		reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
			if r.Mode == driver.Shared && r.Limit == 0 {
				r.Limit = 1 << 20
			}
		})},
}

var brokenMarks = []brokenEngine{
	{"no key is ever abandoned", "ExpiryAbandons UnfinishedAbandons AbandonedOverTheQueue AbandonedIsRepeated ReadersLeaveTheMark VanishedHolderAbandons",
		reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.Abandoned = false })},
	{"an abandoned key stays abandoned", "ExpiryAbandons UnfinishedAbandons", remembering(func(marked *memo[string, bool]) engine {
		return reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			marked.set(r.Key, marked.get(r.Key) || res.Abandoned)
			res.Abandoned = marked.get(r.Key)
		})
	})},
	{"the end of a lease is ignored", "UnfinishedAbandons", rewithdraw(func(_ *memdriver.Store, r *voting.WithdrawRequest) { r.End = driver.EndFinished })},
	{"waiters do not see the mark", "AbandonedOverTheQueue QueuedReadersSeeTheMark",
		reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			res.Abandoned = res.Abandoned && !r.Queue
		})},
	{"the mark is reported once", "AbandonedIsRepeated", remembering(func(seen *memo[string, bool]) engine {
		return reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			res.Abandoned = res.Abandoned && !seen.get(r.Owner)
			seen.set(r.Owner, res.Granted)
		})
	})},
	{"any holder has repaired the key", "UnusedPutsTheMarkBack", rewithdraw(func(_ *memdriver.Store, r *voting.WithdrawRequest) {
		if r.End == driver.EndUnused {
			r.End = driver.EndFinished
		}
	})},
	{"a claim that lapses abandons the key", "UnclaimedKeyStaysAbandoned", withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
		err := s.Withdraw(ctx, r)
		if info := looked(s, r.Key); handedOff(info) {
			_, _ = s.Try(ctx, driver.TryRequest{Claim: as(r.Claim, info.Holder), TTL: time.Second})
		}
		return err
	})},
	{"a reader takes the mark", "ReadersLeaveTheMark QueuedReadersSeeTheMark", remembering(func(taken *memo[string, string]) engine {
		return reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
			if by := taken.get(r.Key); by != "" && by != r.Owner {
				res.Abandoned = false
			}
			if res.Abandoned && r.Mode == driver.Shared && r.Limit == 0 {
				taken.set(r.Key, r.Owner)
			}
		})
	})},
	{"those with a limit abandon nothing", "LimitedHoldersAbandon", reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		res.Abandoned = res.Abandoned && r.Limit == 0
	})},
}
