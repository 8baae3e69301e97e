// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/memdriver"
)

// insist is an engine that grants refused proposals of one kind with a fence of the
// store, and reports it as the proposed one.
func insist(which func(r voting.VoteRequest, res driver.Result) bool) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.looks(unfenced)
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Why != voting.FenceTooLow || !which(r, res) {
				return res, err
			}
			fence := r.Proposal
			r.Proposal, r.Restore = res.Fence+1, false
			res, err = s.Vote(ctx, r)
			res.Fence = fence
			return res, err
		}
	})
}

var brokenProposals = []brokenEngine{
	{"any vote of the owner counts as its lease", "RenewComparesTheFence RenewIsNoClaim RenewComparesASharersFence", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Fence = 0 })},
	{"a vote is withdrawn whatever its fence", "ReleaseUpToAFence SharedReleaseUpToAFence", rewithdraw(func(_ *memdriver.Store, r *voting.WithdrawRequest) { r.UpTo = 0 })},
	{"proposals are ignored", "ProposedFenceIsGranted LowProposalIsRefused HolderMayRaiseItsFence ProposedFencesInARow",
		reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Proposal = 0 })},
	{"any proposal is granted", "LowProposalIsRefused ProposalFarAheadIsRefused MintedAndProposedFencesRise RestoreAfterALaterFence ReadersDoNotOvertakeWriters WritersDoNotOvertakeReaders SharedClaimTakesTheProposal",
		insist(func(voting.VoteRequest, driver.Result) bool { return true })},
	{"a client with a wrong clock may use up the fences", "ProposalFarAheadIsRefused",
		insist(func(r voting.VoteRequest, res driver.Result) bool { return r.Proposal > res.Fence })},
	{"a refusal of a proposal far ahead names that one", "ProposalFarAheadIsRefused", reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) {
		if res.Why == voting.FenceTooLow {
			res.Fence = max(res.Fence, r.Proposal)
		}
	})},
	{"one mark for the proposals of all keys", "ProposalsMayOvertakeEachOther RestoreGivesALeaseBack",
		one(func(s *memdriver.Store, p *patched) {
			var mark atomic.Uint64
			p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
				if r.Proposal != 0 && r.Proposal < mark.Load() {
					return driver.Result{Why: voting.FenceTooLow, Fence: mark.Load()}, nil
				}
				res, err := s.Vote(ctx, r)
				if res.Granted {
					mark.Store(max(mark.Load(), res.Fence))
				}
				return res, err
			}
		})},
	{"one mark for all proposals of a key", "ReadersMayOvertakeEachOther RestoreOfASharedLease", one(func(s *memdriver.Store, p *patched) {
		var mark memo[string, uint64]
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			if _, held := leaseOf(looked(s, r.Key), r.Claim); r.Proposal != 0 && r.Proposal < mark.get(r.Key) && !held {
				return driver.Result{Why: voting.FenceTooLow, Fence: mark.get(r.Key)}, nil
			}
			res, err := s.Vote(ctx, r)
			if res.Granted {
				mark.set(r.Key, max(mark.get(r.Key), res.Fence))
			}
			return res, err
		}
	})},
	{"minted fences have a separate counter", "MintedAndProposedFencesRise", one(func(s *memdriver.Store, p *patched) {
		var fences memo[string, uint64]
		var n atomic.Uint64
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if r.Proposal == 0 && res.Granted {
				if fences.get(r.Owner) == 0 {
					fences.set(r.Owner, n.Add(1))
				}
				res.Fence = fences.get(r.Owner)
			}
			return res, err
		}
	})},
	{"a proposal of several fences is granted them all", "ProposedFencesInARow", reply(func(_ *memdriver.Store, r voting.VoteRequest, res *driver.Result) { res.Fences = r.Fences })},
	{"a proposal of several fences is granted one", "ProposedFencesInARow", reask(func(_ *memdriver.Store, r *voting.VoteRequest) {
		if r.Proposal != 0 {
			r.Fences = 1
		}
	})},
	{"a Held refusal names no fence", "HeldRefusalNamesTheFence", reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) {
		if !res.Granted && res.Why == driver.WhyHeld {
			res.Fence = 0
		}
	})},
	{"the holder's fence is raised unasked", "HolderKeepsItsFence RestoreGivesALeaseBack SharerKeepsItsFence",
		reask(func(s *memdriver.Store, r *voting.VoteRequest) {
			r.Restore = r.Restore && !looked(s, r.Key).Held
			r.Raise = r.Proposal > looked(s, r.Key).Fence
		})},
	{"the holder's fence is never raised", "HolderMayRaiseItsFence SharerKeepsItsFence", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Raise = false })},
	{"a raise may lower", "HolderMayRaiseItsFence", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		r.Raise = r.Raise && r.Proposal >= looked(s, r.Key).Fence
	})},
	{"any owner raises the holder's fence", "HolderMayRaiseItsFence", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if r.Raise && res.Why == driver.WhyHeld {
			r.Owner = looked(s, r.Key).Holder.Owner
			_, _ = s.Vote(ctx, r)
		}
		return res, err
	})},
	{"a claim keeps the fence of the handoff", "ClaimTakesTheProposal SharedClaimTakesTheProposal", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		if handedOff(looked(s, r.Key)) {
			r.Proposal = 0
		}
	})},
	{"a claim that is refused gives the key up", "ClaimTakesTheProposal", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Why == voting.FenceTooLow && looked(s, r.Key).Held {
			_ = s.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL})
		}
		return res, err
	})},
	{"Restore is a proposal like any other", "RestoreGivesALeaseBack", reask(func(_ *memdriver.Store, r *voting.VoteRequest) { r.Restore = false })},
	{"Restore is always granted", "RestoreAfterALaterFence RestoreOfASharedLease RestoreAfterAReader",
		insist(func(r voting.VoteRequest, _ driver.Result) bool { return r.Restore })},
	{"Restore takes the key from its holder", "RestoreSparesTheHolder", reask(func(s *memdriver.Store, r *voting.VoteRequest) {
		if r.Restore && looked(s, r.Key).Holder.Owner != r.Owner {
			s.Lose(r.Key)
		}
	})},
}

// votes admits a store as it is.
func votes(s *memdriver.Store) {
	rec, _ := s.Record(context.Background())
	_ = s.Admit(context.Background(), rec, s.Traits().MaxTTL)
}

// rerecord is an engine that shows a different record, and is admitted with it.
func rerecord(f func(voting.Record) voting.Record) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.record = func(ctx context.Context) (voting.Record, error) {
			rec, err := s.Record(ctx)
			return f(rec), err
		}
		p.admit = func(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
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
		asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Why == voting.NotVoting {
				votes(s)
				return s.Vote(ctx, r)
			}
			return res, err
		})},
	{"a proposal is granted by a node that is held back", "NewNodeIsHeldBack FlushedNodeIsHeldBack", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Why == voting.NotVoting && r.Restore {
			return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil
		}
		return res, err
	})},
	{"a node that is held back keeps a queue", "FlushedNodeIsHeldBack", one(func(s *memdriver.Store, p *patched) {
		places := 0
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Why == voting.NotVoting && r.Queue {
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
			if errors.Is(a.Err, voting.ErrNotVoting) {
				a.Err = driver.ErrNotHeld
			}
		})},
	{"a node that is held back prolongs what it has", "HeldBackNodeProlongsNothing", prolonged(func(s *memdriver.Store, r driver.RenewRequest, a *driver.Renewal) {
		if info := looked(s, r.Key); errors.Is(a.Err, voting.ErrNotVoting) && info.Held {
			s.Hold(r.Key, r.TTL, info.Holder.Describe())
		}
	})},
	{"a release at a node that is held back hands off", "HeldBackNodeHandsNothingOn", withdrawing(func(ctx context.Context, s *memdriver.Store, r voting.WithdrawRequest) error {
		err := s.Withdraw(ctx, r)
		if info := looked(s, r.Key); !info.Held && info.Waiters > 0 {
			s.Hold(r.Key, time.Second, driver.Label{})
		}
		return err
	})},
	{"any waiting record admits", "AdmitComparesTheRecord RecordOfAnotherRun", one(func(s *memdriver.Store, p *patched) {
		p.admit = func(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
			rec, err := s.Record(ctx)
			if err != nil {
				return err
			}
			return s.Admit(ctx, rec, maxTTL)
		}
	})},
	{"an admission that is refused begins a new wait", "AdmitComparesTheRecord", one(func(s *memdriver.Store, p *patched) {
		p.admit = func(ctx context.Context, r voting.Record, maxTTL time.Duration) error {
			err := s.Admit(ctx, r, maxTTL)
			if err != nil {
				s.Flush()
			}
			return err
		}
	})},
	{"a record names the run, but no nonce", "RecordsAreNew AdmitComparesTheRecord", rerecord(func(r voting.Record) voting.Record {
		if !r.Voting {
			r.Text = "wait " + r.Run
		}
		return r
	})},
	{"all records that wait are the same", "RecordsAreNew AdmitComparesTheRecord", rerecord(func(r voting.Record) voting.Record {
		if !r.Voting {
			r.Text = "wait"
		}
		return r
	})},
	{"fences are counted from the first again", "FencesRiseOverDataLoss", one(func(s *memdriver.Store, p *patched) {
		start := time.Now().Add(-time.Hour)
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			rec, _ := s.Record(ctx)
			if rec.Voting && rec.Run != "" && r.Proposal != 0 && !looked(s, r.Key).Held {
				return driver.Result{Granted: true, Fence: r.Proposal, TTL: r.TTL}, nil
			}
			res, err := s.Vote(ctx, r)
			if res.Granted {
				res.Fence -= uint64(start.UnixMicro())
			}
			return res, err
		}
	})},
	{"any TTL is granted", "TTLAboveTheRecord", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Why == voting.TTLTooLong {
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
	{"a node is named after its address", "ResultsNameTheRun", reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.Run = "127.0.0.1:6379" })},
	{"a node is not named", "ResultsNameTheRun", reply(func(_ *memdriver.Store, _ voting.VoteRequest, res *driver.Result) { res.Run = "" })},
}

// refence is an engine whose fences are replaced.
func refence(f func(r voting.VoteRequest, fence uint64) uint64) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted {
				res.Fence = f(r, res.Fence)
			}
			return res, err
		}
		p.looks(unfenced)
	})
}

var brokenFences = []brokenEngine{
	{"one fence for all", "FencesRise FencesRiseOverHandoffs FencesRiseOverExpiry RandomMix FencesRiseOverSharers FencesRiseAmongSharers",
		refence(func(voting.VoteRequest, uint64) uint64 { return 1 })},
	{"random fences", "FencesRise RandomMix", refence(func(r voting.VoteRequest, _ uint64) uint64 {
		return uint64(r.Owner[0]) + uint64(r.Owner[1])
	})},
	{"the fence is stored in a record that expires when the key was free for a day", "FencesRiseOverIdleTime",
		one(func(s *memdriver.Store, p *patched) {
			var mu sync.Mutex
			var n uint64
			var last time.Time
			p.try = func(ctx context.Context, r voting.VoteRequest) (driver.Result, error) {
				mu.Lock()
				defer mu.Unlock()
				if time.Since(last) > 24*time.Hour {
					n = 0
				}
				n, last = n+1, time.Now()
				res, err := s.Vote(ctx, r)
				res.Fence = n
				return res, err
			}
		})},
}

var brokenLooks = []brokenEngine{
	{"Inspect of a free key is an error", "InspectOfAFreeKey", one(func(s *memdriver.Store, p *patched) {
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			if !info.Held {
				return info, driver.ErrNotHeld
			}
			return info, err
		}
	})},
	{"Left is the TTL", "InspectSaysWhoAndHowLong", relook(func(_ *memdriver.Store, info *driver.Info) { info.Left = time.Minute })},
	{"what is left is counted in 32 bits", "LongestTTL", relook(func(_ *memdriver.Store, info *driver.Info) {
		info.Left = time.Duration(int32(info.Left/time.Millisecond)) * time.Millisecond
	})},
	{"looking is a sign of life", "InspectChangesNothing", relook(func(s *memdriver.Store, info *driver.Info) {
		for _, h := range append(info.Queue, info.Holder) {
			c := as(driver.Claim{Key: info.Key}, h)
			renewOne(context.Background(), s, driver.RenewRequest{Claim: c, Queue: true, Patience: time.Hour})
			renewOne(context.Background(), s, driver.RenewRequest{Claim: c, TTL: time.Hour})
		}
	})},
	{"labels are not shown", "InspectSaysWhoAndHowLong BreakEndsExactlyOneOwner LostPartEndsAll", relook(func(_ *memdriver.Store, info *driver.Info) {
		info.Holder.Label = ""
		for i := range info.Holders {
			info.Holders[i].Holder.Label = ""
		}
	})},
	{"List uses a prefix as a pattern", "ListFindsByPrefix", one(func(s *memdriver.Store, p *patched) {
		p.list = func(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
			return func(yield func(driver.Info, error) bool) {
				for info, err := range s.List(ctx, "") {
					if strings.Contains(info.Key, prefix) && !yield(info, err) {
						return
					}
				}
			}
		}
	})},
	{"List ends early", "ListOfMany", one(func(s *memdriver.Store, p *patched) {
		p.list = func(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
			return func(yield func(driver.Info, error) bool) {
				n := 0
				for info, err := range s.List(ctx, prefix) {
					if n++; n > 100 || !yield(info, err) {
						return
					}
				}
			}
		}
	})},
	{"List keeps its connection when it is left", "ListMayBeLeft", one(func(s *memdriver.Store, p *patched) {
		var lost atomic.Int64
		p.list = func(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
			return func(yield func(driver.Info, error) bool) {
				if lost.Load() >= 10 {
					yield(driver.Info{}, errors.New("no connection is free"))
					return
				}
				for info, err := range s.List(ctx, prefix) {
					if !yield(info, err) {
						lost.Add(1)
						return
					}
				}
			}
		}
	})},
	{"a queue is kept under a name that may be a key's", "KeysNamedLikeTheStoresOwn", asking(func(ctx context.Context, s *memdriver.Store, r voting.VoteRequest) (driver.Result, error) {
		if base, ok := strings.CutSuffix(r.Key, ":line"); ok {
			for _, h := range looked(s, base).Queue {
				_ = s.Release(ctx, driver.ReleaseRequest{Claim: as(driver.Claim{Key: base}, h)})
			}
		}
		return s.Vote(ctx, r)
	})},
}

var brokenSweepers = []brokenEngine{
	{"lists as left over what is renewed", "LeftoversAreWhatNobodyRenews",
		one(func(s *memdriver.Store, p *patched) {
			p.sweep = func(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error] {
				return func(yield func(operator.Leftover, error) bool) {
					for l, err := range s.ListLeftovers(ctx, prefix, held) {
						l.Live = false
						if !yield(l, err) {
							return
						}
					}
				}
			}
		})},
	{"lists as left over what is held", "LiveLocksAreNoLeftovers",
		one(func(s *memdriver.Store, p *patched) {
			p.sweep = func(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error] {
				return func(yield func(operator.Leftover, error) bool) {
					for info, err := range s.List(ctx, prefix) {
						held(info)
						if !yield(operator.Leftover{Key: info.Key, Kind: operator.LeftLease, Holder: info.Holder}, err) {
							return
						}
					}
				}
			}
		})},
	{"removes what is left over now, whatever was listed", "ARemovalComparesWhatWasListed",
		one(func(s *memdriver.Store, p *patched) {
			p.remove = func(ctx context.Context, l operator.Leftover) (time.Duration, error) {
				for now, err := range s.ListLeftovers(ctx, l.Key, nil) {
					if err == nil && now.Key == l.Key {
						return s.RemoveLeftover(ctx, now)
					}
				}
				return 0, driver.ErrNotHeld
			}
		})},
	{"says that it removed what another did", "TwoSweepsAtOnce",
		one(func(s *memdriver.Store, p *patched) {
			p.remove = func(ctx context.Context, l operator.Leftover) (time.Duration, error) {
				_, _ = s.RemoveLeftover(ctx, l)
				return 0, nil
			}
		})},
}
