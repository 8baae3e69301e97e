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
	"github.com/hasplock/hasp/memdriver"
)

// refence is an engine whose fences are replaced.
func refence(f func(r driver.VoteRequest, fence uint64) uint64) engine {
	return one(func(s *memdriver.Store, p *patched) {
		p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
			res, err := s.Vote(ctx, r)
			if res.Granted {
				res.Fence = f(r, res.Fence)
			}
			return res, err
		}
		p.inspect = func(ctx context.Context, key string) (driver.Info, error) {
			info, err := s.Inspect(ctx, key)
			noFences(&info)
			return info, err
		}
	})
}

var brokenFences = []brokenEngine{
	{"one fence for all", "FencesRise FencesRiseOverHandoffs FencesRiseOverExpiry RandomMix FencesRiseOverSharers FencesRiseAmongSharers",
		refence(func(driver.VoteRequest, uint64) uint64 { return 1 })},
	{"random fences", "FencesRise RandomMix", refence(func(r driver.VoteRequest, _ uint64) uint64 {
		return uint64(r.Owner[0]) + uint64(r.Owner[1])
	})},
	{"the fence is stored in a record that expires when the key was free for a day", "FencesRiseOverIdleTime",
		one(func(s *memdriver.Store, p *patched) {
			var mu sync.Mutex
			var n uint64
			var last time.Time
			p.try = func(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
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
	{"a queue is kept under a name that may be a key's", "KeysNamedLikeTheStoresOwn", asking(func(ctx context.Context, s *memdriver.Store, r driver.VoteRequest) (driver.Result, error) {
		if base, ok := strings.CutSuffix(r.Key, ":line"); ok {
			for _, h := range looked(s, base).Queue {
				_ = s.Release(ctx, driver.ReleaseRequest{Claim: as(driver.Claim{Key: base}, h)})
			}
		}
		return s.Vote(ctx, r)
	})},
}
