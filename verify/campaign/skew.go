// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"context"
	"time"

	"github.com/hasplock/hasp/driver"
)

// skewed makes a client see a node as one would whose wall clock is off: the
// clocks of one machine agree, and that alone would make fences rise. It maps
// every fence that passes, each way, so nothing else changes.
type skewed struct {
	driver.Node
	by time.Duration // what a fence of the client is more, in the node's numbers
}

// shift adds a time to a fence that is one.
func shift(fence uint64, by time.Duration) uint64 {
	if fence == 0 {
		return 0
	}
	return uint64(max(int64(fence)+by.Microseconds(), 1))
}

func (s *skewed) Try(ctx context.Context, r driver.Request) (driver.Result, error) {
	r.Fence = shift(r.Fence, s.by)
	res, err := s.Node.Try(ctx, r)
	res.Fence = shift(res.Fence, -s.by)
	return res, err
}

func (s *skewed) Renew(ctx context.Context, rs []driver.Request, done func(int, driver.Renewal)) {
	own := make([]driver.Request, len(rs))
	for i, r := range rs {
		own[i] = r
		own[i].Fence = shift(r.Fence, s.by)
	}
	s.Node.Renew(ctx, own, done)
}

func (s *skewed) Release(ctx context.Context, r driver.Request) error {
	r.Fence, r.UpTo = shift(r.Fence, s.by), shift(r.UpTo, s.by)
	return s.Node.Release(ctx, r)
}

func (s *skewed) Inspect(ctx context.Context, key string) (driver.Info, error) {
	info, err := s.Node.Inspect(ctx, key)
	info.Fence = shift(info.Fence, -s.by)
	return info, err
}
