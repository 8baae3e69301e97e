// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package memdriver

import (
	"slices"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
)

// admits reports whether one more can have the key beside its holders.
func admits(holders []*place, mode driver.Mode, limit int) bool {
	if len(holders) == 0 {
		return true
	}
	if mode != driver.Shared || holders[0].mode != driver.Shared {
		return false
	}
	for _, h := range holders {
		if h.limit > 0 && (limit == 0 || h.limit < limit) {
			limit = h.limit
		}
	}
	return limit == 0 || len(holders) < limit
}

// opens is when one more can have the key if none of its holders renews; for an
// owner that only waits for others in the queue, when the last lease ends.
func opens(holders []*place, mode driver.Mode, limit int) time.Time {
	holders = slices.SortedFunc(slices.Values(holders), func(a, b *place) int { return a.until.Compare(b.until) })
	last := len(holders) - 1
	for i := range last {
		if !admits(holders[i:], mode, limit) && admits(holders[i+1:], mode, limit) {
			return holders[i].until
		}
	}
	return holders[last].until
}

// slot is the smallest number that no holder has. It is below limit where one
// more is admitted.
func slot(holders []*place, limit int) int {
	if limit == 0 {
		return 0
	}
	taken := make([]bool, len(holders)+1)
	for _, h := range holders {
		if h.limit > 0 && h.slot < len(taken) {
			taken[h.slot] = true
		}
	}
	return slices.Index(taken, false)
}

// reads: its holder changes nothing that the key protects.
func (p *place) reads() bool { return p.mode == driver.Shared && p.limit == 0 }

// leaves reports whether a holder's end leaves the key abandoned. A holder that never
// claimed the key leaves the mark as it was.
func (p *place) leaves(end driver.End) bool {
	switch {
	case p.reads():
		return false
	case !p.claimed && (!p.enters || p.declined) || end == driver.EndUnused:
		return p.abandoned
	}
	return end == driver.EndUnfinished
}

// convert makes a holder share the key; it keeps its fence.
func (s *Store) convert(e *entry, h *place, r *voting.VoteRequest, now time.Time) driver.Result {
	entered := h.enters && h.fence == r.Fence // it knows the fence
	if !h.claimed && !entered || h.fence < r.Fence {
		return s.refuse(e, r, now)
	}
	h.claimed = true
	h.extend(now.Add(r.TTL))
	if h.mode == driver.Exclusive {
		h.mode, h.limit, h.abandoned = driver.Shared, r.Limit, false
		s.handOn(e, now)
	}
	return h.granted(now, 1)
}
