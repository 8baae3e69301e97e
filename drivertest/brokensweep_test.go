// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"iter"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/memdriver"
)

var brokenSweepers = []brokenEngine{
	{"lists as left over what is renewed", "LeftoversAreWhatNobodyRenews",
		one(func(s *memdriver.Store, p *patched) {
			p.sweep = func(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[driver.Leftover, error] {
				return func(yield func(driver.Leftover, error) bool) {
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
			p.sweep = func(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[driver.Leftover, error] {
				return func(yield func(driver.Leftover, error) bool) {
					for info, err := range s.List(ctx, prefix) {
						held(info)
						if !yield(driver.Leftover{Key: info.Key, Kind: driver.LeftLease, Holder: info.Holder}, err) {
							return
						}
					}
				}
			}
		})},
	{"removes what is left over now, whatever was listed", "ARemovalComparesWhatWasListed",
		one(func(s *memdriver.Store, p *patched) {
			p.remove = func(ctx context.Context, l driver.Leftover) (time.Duration, error) {
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
			p.remove = func(ctx context.Context, l driver.Leftover) (time.Duration, error) {
				_, _ = s.RemoveLeftover(ctx, l)
				return 0, nil
			}
		})},
}
