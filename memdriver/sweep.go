// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
)

var _ operator.Driver = (*Store)(nil)

// Operations implements [operator.Driver].
func (s *Store) Operations() operator.Operations {
	return operator.Operations{ListLeftovers: s.ListLeftovers, RemoveLeftover: s.RemoveLeftover}
}

// Persist takes the expiry from the leases that stand on a key, as a person may in a store that lets one: each stays until
// it is released, whether its holder renews it or not. Such a lease that is not renewed is what [Store.ListLeftovers] finds; no
// other leftover is possible here.
func (s *Store) Persist(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.settled(key, now)
	defer s.forget(e, now)
	for _, h := range e.holders {
		h.persisted = h.claimed
	}
}

// ListLeftovers is of [operator.Operations].
func (s *Store) ListLeftovers(ctx context.Context, prefix string, held func(driver.Info)) iter.Seq2[operator.Leftover, error] {
	return func(yield func(operator.Leftover, error) bool) {
		keys, err := s.keysWith(ctx, prefix)
		if err != nil {
			yield(operator.Leftover{}, err)
			return
		}
		for _, key := range keys {
			info, left, err := s.leftovers(ctx, key)
			if err != nil {
				yield(operator.Leftover{}, err)
				return
			}
			if held != nil && info.Held && len(left) == 0 {
				held(info)
			}
			for _, l := range left {
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

func (s *Store) leftovers(ctx context.Context, key string) (info driver.Info, left []operator.Leftover, err error) {
	if err := s.enter(ctx); err != nil {
		return info, nil, err
	}
	defer s.mu.Unlock()
	now := s.now()
	e := s.settled(key, now)
	defer s.forget(e, now)
	for _, h := range e.holders {
		if h.persisted {
			left = append(left, operator.Leftover{
				Key: key, Kind: operator.LeftLease, Name: key, Holder: h.holderInfo(), Fence: h.fence, Live: h.until.After(now), State: h.state(),
			})
		}
	}
	return e.info(now), left, nil
}

// state differs for each lease, and after each renewal.
func (p *place) state() string { return fmt.Sprintf("%q %d %d", p.id, p.fence, p.until.UnixNano()) }

// RemoveLeftover is of [operator.Operations]. The key goes to the next waiter.
func (s *Store) RemoveLeftover(ctx context.Context, l operator.Leftover) (stays time.Duration, err error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	now := s.now()
	e := s.settled(l.Key, now)
	defer s.forget(e, now)
	i := slices.IndexFunc(e.holders, func(h *place) bool { return h.persisted && !h.until.After(now) && h.state() == l.State })
	if i < 0 {
		return 0, driver.ErrNotHeld
	}
	e.vacate(e.holders[i], now, driver.EndUnfinished)
	s.handOn(e, now)
	return 0, nil
}

// left is what is left of a lease, as driver.Info has it.
func (p *place) left(now time.Time) time.Duration {
	if p.persisted {
		return -1
	}
	return p.until.Sub(now)
}
