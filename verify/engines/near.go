// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package engines

import (
	"context"
	"errors"

	"github.com/hasplock/hasp/driver"
)

// The roles of an owner in the store; "" is none.
const (
	holds = "holds"
	waits = "waits"
)

// role is what the store has of an owner.
func (s *step) role(ctx context.Context, owner string) (string, error) {
	info, err := s.w.near.Inspect(ctx, s.r.Key)
	for _, l := range info.Holders {
		if l.Holder.Owner == owner {
			return holds, err
		}
	}
	for _, h := range info.Queue {
		if h.Owner == owner {
			return waits, err
		}
	}
	return "", err
}

// nearTry has another owner ask over a link without faults, which must be granted the key, or refused.
func (s *step) nearTry(ctx context.Context, r driver.TryRequest, granted bool) error {
	res, err := s.w.near.Try(ctx, r)
	if err != nil {
		return err
	}
	if res.Granted != granted {
		s.found("another owner asks, and is answered %+v", res)
		if res.Granted {
			return s.nearRelease(ctx, r, true)
		}
		return nil
	}
	if granted && r.Mode == driver.Exclusive && res.Fence <= s.fence {
		s.found("the fence %d came after %d", res.Fence, s.fence)
	}
	s.w.uses(r.Key, res.Fence)
	return nil
}

func ended(r driver.TryRequest, settled bool) driver.ReleaseRequest {
	return driver.ReleaseRequest{Claim: r.Claim, TTL: r.TTL, Settled: settled}
}

func (s *step) nearRelease(ctx context.Context, r driver.TryRequest, settled bool) error {
	return s.w.near.Release(ctx, ended(r, settled))
}

// released releases what an owner has, by the request that is cut. What it was stays: of a waiter the
// key is held by another.
func (s *step) released(ctx context.Context, r driver.TryRequest, settled bool) error {
	before, err := s.role(ctx, r.Owner)
	if err != nil {
		return err
	}
	cut := s.call(ctx, func(ctx context.Context) error { return s.far.Release(ctx, ended(r, settled)) })
	role, err := s.role(ctx, r.Owner)
	switch {
	case err != nil:
		return err
	case errors.Is(cut, driver.ErrNotHeld):
		s.found("it %s the key, and its release says that it does not", before)
	case cut == nil && role != "":
		s.found("it was released, and the store says %q", role)
	}
	if cut != nil && s.cut == Late { // who comes next is not affected by what comes late, unless its transaction has begun
		limit, cancel := context.WithTimeout(ctx, 2*brief)
		err := s.nearRelease(limit, r, settled)
		cancel()
		if err != nil && !errors.Is(err, driver.ErrNotHeld) {
			s.mend()
		}
	}
	if before != holds {
		s.mend()
		return s.releasedAgain(ctx, r, settled)
	}
	if s.cut != Late || s.mended() {
		s.mend()
		if err := s.releasedAgain(ctx, r, settled); err != nil {
			return err
		}
	}
	next := request(s.r.Key)
	if err := s.nearTry(ctx, next, true); err != nil {
		return err
	}
	s.mend()
	if err := s.releasedAgain(ctx, r, settled); err != nil {
		return err
	}
	if role, err := s.role(ctx, next.Owner); err != nil || role != holds {
		s.found("a release that came late took the next one's lease (%q, %v)", role, err)
	}
	return s.nearRelease(ctx, next, true)
}

// releasedAgain repeats the release until it has an answer.
func (s *step) releasedAgain(ctx context.Context, r driver.TryRequest, settled bool) error {
	err := s.again(ctx, func(ctx context.Context) error { return s.far.Release(ctx, ended(r, settled)) })
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		return err
	}
	role, err := s.role(ctx, r.Owner)
	if err == nil && role != "" {
		s.found("it was released, and the store says %q", role)
	}
	return err
}
