// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp/driver/voting"
)

// proposals are the fences that this driver proposes: microseconds of its clock,
// always rising, and above those that it saw.
type proposals struct{ last atomic.Uint64 }

func (p *proposals) next() uint64 {
	now := uint64(max(time.Now().UnixMicro(), 1))
	for {
		last := p.last.Load()
		h := max(now, last+1)
		if p.last.CompareAndSwap(last, h) {
			return h
		}
	}
}

// saw keeps up with clients that have clocks ahead of ours. A fence that is far ahead
// is not followed: it would be refused everywhere.
func (p *proposals) saw(fence uint64) {
	limit := p.limit()
	for {
		last := p.last.Load()
		if fence <= last || fence > limit || p.last.CompareAndSwap(last, fence) {
			return
		}
	}
}

// limit is above every fence that a client with a good clock proposes.
func (p *proposals) limit() uint64 {
	return uint64(max(time.Now().Add(voting.MaxFenceSkew/2).UnixMicro(), 0))
}
