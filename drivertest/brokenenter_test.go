// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"sync"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

// hands returns an open function of an engine that tells of handovers what f makes of them.
func hands(f func(to driver.Handover, ok bool) (driver.Handover, bool)) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.handed = func(c driver.Claim) (driver.Handover, bool) { return f(s.Handed(c)) }
	})
}

const allEntered = "HandoverIsTold HandoverIsNotRepeated EnteredLeaseIsClaimed EnteredLeaseIsReleased EnteredLeaseConverts EnteredLeaseAbandons"

var brokenEnter = []brokenEngine{
	{"no handover is told", allEntered, hands(func(driver.Handover, bool) (driver.Handover, bool) { return driver.Handover{}, false })},
	{"a handover without its time", allEntered, hands(func(to driver.Handover, ok bool) (driver.Handover, bool) { to.At = 0; return to, ok })},
	{"a handover without its length", allEntered, hands(func(to driver.Handover, ok bool) (driver.Handover, bool) { to.TTL = 0; return to, ok })},
	{"a handover never says that the key was abandoned", "HandoverIsTold",
		hands(func(to driver.Handover, ok bool) (driver.Handover, bool) { to.Abandoned = false; return to, ok })},
	{"a refusal without the time", allEntered, reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) { res.At = 0 })},
	{"a refusal names a fence that is to come", allEntered, reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) {
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
	{"a claim only prolongs", "EnteredLeaseIsClaimed", prolong(func(_ *memdriver.Store, r *driver.RenewRequest) { r.Entered = false })},
	{"a claim that comes first gets another fence", "HandoverIsTold", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Fences = 2 })},
	{"a lease that was not claimed finishes", "EnteredLeaseIsReleased", rewithdraw(func(_ *memdriver.Store, r *driver.WithdrawRequest) { r.End = driver.Finished })},
	{"a lease that was not claimed does not convert", "EnteredLeaseConverts", reask(func(_ *memdriver.Store, r *driver.VoteRequest) { r.Fence = 0 })},
	{"nobody is told of one that entered and vanished", "EnteredLeaseAbandons", reply(func(_ *memdriver.Store, _ driver.VoteRequest, res *driver.Result) { res.Abandoned = false })},
}
