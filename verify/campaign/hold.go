// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"slices"
	"time"
)

// hold is one hold of a key, as its client recorded it.
type hold struct {
	Client int    `json:"client"`
	N      int    `json:"n"`
	Key    string `json:"key"`
	Fence  uint64 `json:"fence"`
	Shared bool   `json:"shared,omitempty"` // its client only reads
	Asked  Mono   `json:"asked"`
	From   Mono   `json:"from"` // when Lock returned
	// To is when Release was called, or the lease ended, whichever is
	// first: of a client that was killed, its deadline as last known.
	To       Mono `json:"to"`
	Released Mono `json:"released"` // when a Release that succeeded had returned; 0: none did
	// Down is when Downgrade was called: from then on the client only reads;
	// Lowered when it had returned without an error. 0: never.
	Down    Mono `json:"down,omitempty"`
	Lowered Mono `json:"lowered,omitempty"`
}

type acquisition struct{ client, n int }

// holdsOf extracts the holds from what the clients reported.
func holdsOf(records []record) (holds []hold) {
	asks := map[acquisition]Mono{}
	open := map[acquisition]*hold{}
	over := map[acquisition]bool{}
	var all []*hold
	for _, r := range records {
		id := acquisition{r.Client, r.N}
		h := open[id]
		switch r.What {
		case asked:
			asks[id] = r.At
		case granted:
			h = &hold{Client: r.Client, N: r.N, Key: r.Key, Fence: r.Fence, Shared: r.Shared, Asked: asks[id], From: r.At, To: r.Deadline}
			open[id] = h
			all = append(all, h)
		case renewed:
			if h != nil && !over[id] {
				h.To = max(h.To, r.Deadline)
			}
		case lowered:
			h.Down = r.At
		case shares:
			if r.Err == "" {
				h.Lowered = r.At
			}
		case ended:
			h.To = min(r.At, r.Deadline)
			over[id] = true
		case released:
			if r.Err == "" {
				h.Released = r.At
			}
		}
	}
	for _, h := range all {
		holds = append(holds, *h)
	}
	slices.SortStableFunc(holds, func(a, b hold) int { return cmp.Compare(a.From, b.From) })
	return holds
}

// together returns the longest time for which two held a key, not both to read.
func together(holds []hold) (longest time.Duration) {
	for _, hs := range byKey(holds) {
		for i := range hs {
			for j := range hs[:i] {
				longest = max(longest, hs[i].beside(&hs[j]), hs[j].beside(&hs[i]))
			}
		}
	}
	return longest
}

// beside returns for how long another one held the key while this one could write.
func (h *hold) beside(other *hold) time.Duration {
	to := h.To
	switch {
	case h.Shared:
		return 0
	case h.Down != 0:
		to = min(to, h.Down)
	}
	return min(to, other.To).Sub(max(h.From, other.From))
}

// byKey groups holds.
func byKey(holds []hold) map[string][]hold {
	m := map[string][]hold{}
	for _, h := range holds {
		m[h.Key] = append(m[h.Key], h)
	}
	return m
}
