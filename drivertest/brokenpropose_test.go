// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"sync/atomic"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// insist is an engine that grants refused proposals of one kind with a fence of the
// store, and reports it as the proposed one.
func insist(which func(r driver.VoteRequest, res driver.Result) bool) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			noFences(&info)
			return info, err
		}
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Why != driver.FenceTooLow || !which(r, res) {
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
	{"a vote is withdrawn whatever its fence", "ReleaseUpToAFence SharedReleaseUpToAFence", rewithdraw(func(_ *memdriver.Store, r *driver.WithdrawRequest) { r.UpTo = 0 })},
	{"proposals are ignored", "ProposedFenceIsGranted LowProposalIsRefused HolderMayRaiseItsFence ProposedFencesInARow",
		reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Proposal = 0 })},
	{"any proposal is granted", "LowProposalIsRefused ProposalFarAheadIsRefused MintedAndProposedFencesRise RestoreAfterALaterFence ReadersDoNotOvertakeWriters WritersDoNotOvertakeReaders SharedClaimTakesTheProposal",
		insist(func(driver.VoteRequest, driver.Result) bool { return true })},
	{"a client with a wrong clock may use up the fences", "ProposalFarAheadIsRefused",
		insist(func(r driver.VoteRequest, res driver.Result) bool { return r.Proposal > res.Fence })},
	{"a refusal of a proposal far ahead names that one", "ProposalFarAheadIsRefused", reply(func(_ *memdriver.Store, r driver.VoteRequest, res *driver.Result) {
		if res.Why == driver.FenceTooLow {
			res.Fence = max(res.Fence, r.Proposal)
		}
	})},
	{"one mark for the proposals of all keys", "ProposalsMayOvertakeEachOther RestoreGivesALeaseBack",
		one(func(s *memdriver.Store, p *patched) {
			var mark atomic.Uint64
			p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
				if r.Proposal != 0 && r.Proposal < mark.Load() {
					return driver.Result{Why: driver.FenceTooLow, Fence: mark.Load()}, nil
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
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			if _, held := leaseOf(looked(s, r.Key), r.Claim); r.Proposal != 0 && r.Proposal < mark.get(r.Key) && !held {
				return driver.Result{Why: driver.FenceTooLow, Fence: mark.get(r.Key)}, nil
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
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
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
	{"a proposal of several fences is granted them all", "ProposedFencesInARow", reply(func(_ *memdriver.Store, r driver.VoteRequest, res *driver.Result) { res.Fences = r.Fences })},
	{"a proposal of several fences is granted one", "ProposedFencesInARow", reask(func(_ *memdriver.Store, r *driver.VoteRequest) {
		if r.Proposal != 0 {
			r.Fences = 1
		}
	})},
	{"a Held refusal names no fence", "HeldRefusalNamesTheFence", reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) {
		if !res.Granted && res.Why == driver.Held {
			res.Fence = 0
		}
	})},
	{"the holder's fence is raised unasked", "HolderKeepsItsFence RestoreGivesALeaseBack SharerKeepsItsFence",
		reask(func(s *memdriver.Store, r *driver.VoteRequest) {
			r.Restore = r.Restore && !looked(s, r.Key).Held
			r.Raise = r.Proposal > looked(s, r.Key).Fence
		})},
	{"the holder's fence is never raised", "HolderMayRaiseItsFence SharerKeepsItsFence", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Raise = false })},
	{"a raise may lower", "HolderMayRaiseItsFence", reask(func(s *memdriver.Store, r *driver.VoteRequest) {
		r.Raise = r.Raise && r.Proposal >= looked(s, r.Key).Fence
	})},
	{"any owner raises the holder's fence", "HolderMayRaiseItsFence", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if r.Raise && res.Why == driver.Held {
			r.Owner = looked(s, r.Key).Holder.Owner
			_, _ = s.Vote(ctx, r)
		}
		return res, err
	})},
	{"a claim keeps the fence of the handoff", "ClaimTakesTheProposal SharedClaimTakesTheProposal", reask(func(s *memdriver.Store, r *driver.VoteRequest) {
		if handedOff(looked(s, r.Key)) {
			r.Proposal = 0
		}
	})},
	{"a claim that is refused gives the key up", "ClaimTakesTheProposal", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		res, err := s.Vote(ctx, r)
		if res.Why == driver.FenceTooLow && looked(s, r.Key).Held {
			_ = s.Release(ctx, driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL})
		}
		return res, err
	})},
	{"Restore is a proposal like any other", "RestoreGivesALeaseBack", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Restore = false })},
	{"Restore is always granted", "RestoreAfterALaterFence RestoreOfASharedLease RestoreAfterAReader",
		insist(func(r driver.VoteRequest, _ driver.Result) bool { return r.Restore })},
	{"Restore takes the key from its holder", "RestoreSparesTheHolder", reask(func(s *memdriver.Store, r *driver.VoteRequest) {
		if r.Restore && looked(s, r.Key).Holder.Owner != r.Owner {
			s.Lose(r.Key)
		}
	})},
}
