// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// skewed gives a client a wall clock that is wrong: all processes of one machine have
// the same clock, and that alone would make fences rise. It shifts every fence in
// requests and answers, and changes nothing else.
type skewed struct {
	member
	by time.Duration // how much larger a fence of the client is at the node
}

// shift adds a time to a fence that is not 0.
func shift(fence uint64, by time.Duration) uint64 {
	if fence == 0 {
		return 0
	}
	return uint64(max(int64(fence)+by.Microseconds(), 1))
}

func (s *skewed) Vote(ctx context.Context, r driver.VoteRequest) (driver.Result, error) {
	r.Proposal, r.Fence = shift(r.Proposal, s.by), shift(r.Fence, s.by)
	res, err := s.member.Vote(ctx, r)
	res.Fence = shift(res.Fence, -s.by)
	return res, err
}

func (s *skewed) Renew(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal)) {
	own := make([]driver.RenewRequest, len(rs))
	for i, r := range rs {
		own[i] = r
		own[i].Fence = shift(r.Fence, s.by)
	}
	s.member.Renew(ctx, own, done)
}

func (s *skewed) Withdraw(ctx context.Context, r driver.WithdrawRequest) error {
	r.UpTo = shift(r.UpTo, s.by)
	return s.member.Withdraw(ctx, r)
}

func (s *skewed) Inspect(ctx context.Context, key string) (driver.Info, error) {
	info, err := s.member.Inspect(ctx, key)
	info.Fence = shift(info.Fence, -s.by)
	return info, err
}
