// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/drivertest"
	"github.com/hasplock/hasp/memdriver"
)

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

// newTelling returns what opens clients of a store. report says whether the client `of` hears that
// `by` released its lease; nil: as it should be.
func newTelling(s *memdriver.Store, report func(of, by *telling) bool) func() driver.Driver {
	if report == nil {
		report = func(of, by *telling) bool { return of != by }
	}
	var mu sync.Mutex
	leases := make(map[driver.ID]lease)
	return func() driver.Driver {
		t := &telling{patched: &patched{Store: s}, lost: func(driver.ID, uint64) {}}
		t.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted {
				mu.Lock()
				defer mu.Unlock()
				leases[r.ID()] = lease{t, res.Fence}
			}
			return res, err
		}
		t.release = func(ctx context.Context, r driver.WithdrawRequest) error {
			err := s.Withdraw(ctx, r)
			mu.Lock()
			l, had := leases[r.ID()]
			delete(leases, r.ID())
			mu.Unlock()
			if had && err == nil && report(l.of, t) {
				l.of.lost(r.ID(), l.fence)
			}
			return err
		}
		return t
	}
}

var brokenTellers = []brokenEngine{
	{"a broken lease is not told", "BrokenLeaseIsTold", func(s *memdriver.Store) func() driver.Driver {
		return newTelling(s, func(*telling, *telling) bool { return false })
	}},
	{"every release is told", "OnlyEndedLeasesAreTold", func(s *memdriver.Store) func() driver.Driver {
		return newTelling(s, func(*telling, *telling) bool { return true })
	}},
}

// The suite passes for an engine that tells.
func TestTeller(t *testing.T) {
	drivertest.Run(t, drivertest.Harness{Fake: true, New: func(testing.TB) drivertest.Store {
		return drivertest.Store{Open: newTelling(memdriver.New(), nil)}
	}})
}
