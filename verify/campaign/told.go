// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"time"
)

// toldLimit is how long it may take until a holder hears that its lease was taken away. It is milliseconds;
// the rest is for the messages between the processes.
const toldLimit = 250 * time.Millisecond

// untold finds holders that went on after their lease was taken away, and returns how many were judged, and the longest
// that one did, without stalls of the machine. An engine that does not hear of that by itself, or whose driver has not renewed the
// lease yet, learns it by the next renewal, a third of the TTL later. It only judges holders that no other fault affects.
func (r *run) untold(records []record) (found []string, judged int, longest time.Duration) {
	k, _ := r.s.engine()
	out := r.outages()
	for _, t := range r.ensemble.taken {
		h := holderOf(records, t)
		limit := toldLimit
		if !k.Tells() || h.renewed == 0 || h.renewed > t.at {
			limit += r.s.MaxTTL / 3
		}
		if h.ended == 0 || h.ended < t.at {
			continue
		}
		affects := func(o outage) bool {
			return o.Kind != Break && o.Kind != Revoke && o.from <= h.ended && t.at <= o.to
		}
		if slices.ContainsFunc(out[h.client], affects) {
			continue
		}
		judged++
		stood := taken(records, t.at, h.ended, func(int) bool { return false })
		if h.lost {
			longest = max(longest, h.ended.Sub(t.at)-stood)
		}
		if late := h.ended.Sub(t.at); late > limit+stood {
			found = append(found, fmt.Sprintf("client %d, acquisition %d of %q with fence %d: its lease was taken away at %.6f, and it went on for %v and not at most %v (told: %v)",
				h.client, h.n, t.key, t.fence, time.Duration(t.at).Seconds(), late, limit+stood, h.lost))
		}
	}
	return found, judged, longest
}

// holder is an acquisition whose lease was taken away.
type holder struct {
	client, n      int
	renewed, ended Mono // the first renewal, and the end; 0: there was none
	lost           bool
}

func holderOf(records []record, t takenAway) (h holder) {
	for _, e := range records {
		switch {
		case e.Key != t.key || e.Fence != t.fence:
		case e.What == granted:
			h = holder{client: e.Client, n: e.N}
		case e.What == renewed && h.renewed == 0:
			h.renewed = e.At
		case e.What == ended:
			h.ended, h.lost = e.At, e.Lost
		}
	}
	return h
}
