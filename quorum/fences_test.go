// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"testing"
	"testing/synctest"
)

// Proposals keep up with clocks that are ahead of ours, but not with one that is so far
// ahead that nodes refuse its fences: ours would be refused, too.
func TestProposalsKeepUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p proposals
		first := p.next()
		if p.next() != first+1 {
			t.Error("two proposals of one instant are the same")
		}
		p.saw(first)
		if got := p.next(); got != first+2 {
			t.Errorf("after a smaller fence: %d, want %d", got, first+2)
		}
		limit := p.limit()
		p.saw(limit + 1)
		if got := p.next(); got != first+3 {
			t.Errorf("after a fence above the limit: %d, want %d", got, first+3)
		}
		p.saw(limit)
		if got := p.next(); got != limit+1 {
			t.Errorf("after the limit: %d, want %d", got, limit+1)
		}
	})
}
