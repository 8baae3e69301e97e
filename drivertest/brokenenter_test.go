// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// hands returns an open function of an engine that tells of handovers what f makes of them.
func hands(f func(to driver.Handover, ok bool) (driver.Handover, bool)) func(*memdriver.Store) func() driver.Driver {
	return one(func(s *memdriver.Store, p *patched) {
		p.handed = func(c driver.Claim) (driver.Handover, bool) { return f(s.Handed(c)) }
	})
}

// tries returns an open function of an engine that sees Tries as f changes them, and answers as then does.
func tries(f func(r *driver.VoteRequest), then func(res *driver.Result)) func(*memdriver.Store) func() driver.Driver {
	return one(func(s *memdriver.Store, p *patched) {
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			f(&r)
			res, err := s.Vote(ctx, r)
			then(&res)
			return res, err
		}
	})
}

func asIs(*driver.VoteRequest) {}

const allEntered = "HandoverIsTold HandoverIsNotRepeated EnteredLeaseIsClaimed EnteredLeaseIsReleased EnteredLeaseConverts EnteredLeaseAbandons"

var brokenEnter = []brokenEngine{
	{"no handover is told", allEntered, hands(func(driver.Handover, bool) (driver.Handover, bool) { return driver.Handover{}, false })},
	{"a handover without its time", allEntered, hands(func(to driver.Handover, ok bool) (driver.Handover, bool) { to.At = 0; return to, ok })},
	{"a handover without its length", allEntered, hands(func(to driver.Handover, ok bool) (driver.Handover, bool) { to.TTL = 0; return to, ok })},
	{"a handover never says that the key was abandoned", "HandoverIsTold",
		hands(func(to driver.Handover, ok bool) (driver.Handover, bool) { to.Abandoned = false; return to, ok })},
	{"a refusal without the time", allEntered, tries(asIs, func(res *driver.Result) { res.At = 0 })},
	{"a refusal names a fence that is to come", allEntered, tries(asIs, func(res *driver.Result) {
		if res.At > 0 {
			res.Fence *= 2
		}
	})},
	{"a handover is told to everybody", "HandoverIsNotRepeated", one(func(s *memdriver.Store, p *patched) {
		var mu sync.Mutex
		var latest driver.Handover
		p.handed = func(c driver.Claim) (driver.Handover, bool) {
			mu.Lock()
			defer mu.Unlock()
			if to, ok := s.Handed(c); ok {
				latest = to
			}
			return latest, latest.Fence != 0
		}
	})},
	{"a claim only prolongs", "EnteredLeaseIsClaimed", renewals(func(r driver.RenewRequest) driver.RenewRequest { r.Entered = false; return r })},
	{"a claim that comes first gets another fence", "HandoverIsTold", tries(func(r *driver.VoteRequest) { r.Fences = 2 }, func(*driver.Result) {})},
	{"a lease that was not claimed finishes", "EnteredLeaseIsReleased", one(func(s *memdriver.Store, p *patched) {
		p.release = func(ctx context.Context, r driver.WithdrawRequest) error {
			r.End = driver.Finished
			return s.Withdraw(ctx, r)
		}
	})},
	{"a lease that was not claimed does not convert", "EnteredLeaseConverts", tries(func(r *driver.VoteRequest) { r.Fence = 0 }, func(*driver.Result) {})},
	{"nobody is told of one that entered and vanished", "EnteredLeaseAbandons", tries(asIs, func(res *driver.Result) { res.Abandoned = false })},
}
