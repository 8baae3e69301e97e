// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/player"
)

// toldLimit is how long it may take until a holder hears that its lease was taken away. It is milliseconds;
// the rest is for the messages between the processes.
const toldLimit = 250 * time.Millisecond

// untold finds holders that went on for too long after their lease was taken away. It returns how many it judged, and the
// longest that a holder went on until it was told, without stalls of the machine. A driver that does not hear of the loss by
// itself, or has not renewed the lease yet, learns it by the next renewal, a third of the TTL later. It only judges holders
// that no other fault affects.
func (r *run) untold(records []record) (found []string, judged int, longest time.Duration) {
	out, all, stalls := r.outages(), r.stage.Attempts, stallsOf(records)
	for _, t := range r.ensemble.taken {
		i := slices.IndexFunc(all, func(a *player.Attempt) bool { return a.Key == t.key && a.Fence == t.fence })
		if i < 0 {
			continue
		}
		h := all[i]
		limit := toldLimit
		if !r.s.Store.Tells() || h.Renewed == 0 || h.Renewed > t.at {
			limit += r.s.MaxTTL / 3
		}
		if h.Ended < t.at { // or never
			continue
		}
		affects := func(o outage) bool {
			return o.Kind != Break && o.Kind != Revoke && o.from <= h.Ended && t.at <= o.to
		}
		if slices.ContainsFunc(out[h.By.ID], affects) {
			continue
		}
		judged++
		stood := stalls.heldUp(t.at.Time(), h.Ended.Time(), h.By.ID)
		late := h.Ended.Sub(t.at)
		if h.Told {
			longest = max(longest, late-stood)
		}
		if late > limit+stood {
			found = append(found, fmt.Sprintf("client %d, acquisition %d of %q with fence %d: its lease was taken away at %.6f, and it went on for %v and not at most %v (told: %v)",
				h.By.ID, h.N, t.key, t.fence, time.Duration(t.at).Seconds(), late, limit+stood, h.Told))
		}
	}
	return found, judged, longest
}

// lostEarly finds leases that were lost before their deadline, as their holder was told or their release found, though they
// were not taken away.
func lostEarly(holds []*player.Hold, taken []takenAway) (found []string) {
	for _, h := range holds {
		away := slices.ContainsFunc(taken, func(t takenAway) bool { return t.key == h.Key && t.fence == h.Fence })
		if h.Early > 0 && !away {
			found = append(found, fmt.Sprintf("%s: its lease of %s with fence %d was lost %v before its deadline", h.Owner, h.Key, h.Fence, h.Early))
		}
	}
	return found
}
