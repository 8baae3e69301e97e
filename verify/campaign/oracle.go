// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// mostFindings bounds what an oracle lists: one broken rule shows in many
// places.
const mostFindings = 5

func (h hold) String() string {
	return fmt.Sprintf("client %d, acquisition %d, fence %d, [%.6f, %.6f]", h.Client, h.N, h.Fence, time.Duration(h.From).Seconds(), time.Duration(h.To).Seconds())
}

// overlapping finds two holders of one key at one instant.
func overlapping(holds []hold) (found []string) {
	for key, hs := range byKey(holds) {
		var longest *hold
		for i := range hs { // in the order of their begin
			h := &hs[i]
			if h.To < h.From { // it was over before its client knew
				continue
			}
			if longest != nil && h.From < longest.To {
				found = append(found, fmt.Sprintf("%s has two holders for %v: %v and %v", key, min(longest.To, h.To).sub(h.From), longest, h))
			}
			if longest == nil || h.To > longest.To {
				longest = h
			}
		}
	}
	return found
}

// falling finds fences that do not rise in real time: of a hold that was asked
// for after another was granted, and, when holds exclude each other, of a hold
// that was granted after another.
func falling(holds []hold, exclusive bool) (found []string) {
	for key, hs := range byKey(holds) {
		begin := func(h hold) Mono { return h.Asked }
		if exclusive {
			begin = func(h hold) Mono { return h.From }
			hs = slices.DeleteFunc(slices.Clone(hs), func(h hold) bool { return h.To < h.From })
		}
		later := slices.Clone(hs)
		slices.SortStableFunc(later, func(a, b hold) int { return cmp.Compare(begin(a), begin(b)) })
		var largest *hold
		i := 0
		for _, h := range later {
			for ; i < len(hs) && hs[i].From < begin(h); i++ {
				if largest == nil || hs[i].Fence > largest.Fence {
					largest = &hs[i]
				}
			}
			if largest != nil && h.Fence <= largest.Fence {
				found = append(found, fmt.Sprintf("the fence of %s does not rise: %v comes after %v", key, h, largest))
			}
		}
		found = append(found, twice(key, hs)...)
	}
	return found
}

// twice finds a fence that two holds have.
func twice(key string, hs []hold) (found []string) {
	seen := map[uint64]hold{}
	for _, h := range hs {
		if other, ok := seen[h.Fence]; ok {
			found = append(found, fmt.Sprintf("a fence of %s was given twice: %v and %v", key, other, h))
		}
		seen[h.Fence] = h
	}
	return found
}

// few keeps the first few findings.
func few(found []string) []string {
	if len(found) > mostFindings {
		found = append(found[:mostFindings:mostFindings], fmt.Sprintf("and %d more", len(found)-mostFindings))
	}
	return found
}
