// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Overlaps lists the holds of one key that overlap and must not: a hold that is not Shared
// and any other; more Shared ones than the smallest limit among them; two with one
// slot. Holds that were over before their holder learned of them are ignored.
func Overlaps(holds []Hold) []string { return Found(exclusion(inOrder(holds))) }

// Together returns the longest time for which a holder that may be alone was not.
func Together(holds []Hold) (longest time.Duration) {
	sorted := inOrder(holds)
	for i, a := range sorted {
		for _, b := range sorted[i+1:] {
			if b.Key != a.Key {
				break
			}
			for _, pair := range [][2]*Hold{{a, b}, {b, a}} {
				to := pair[0].alone()
				if to.After(pair[1].To) {
					to = pair[1].To
				}
				longest = max(longest, to.Sub(b.From)) // b began last
			}
		}
	}
	return longest
}

func exclusion(sorted []*Hold) error {
	var errs []error
	var longest, alone *Hold // of the key's holds so far, the last to end, and the last to end to be alone
	var sharing []*Hold      // those that share it and are not over
	for _, h := range sorted {
		if longest == nil || h.Key != longest.Key {
			longest, alone, sharing = &Hold{Key: h.Key}, &Hold{}, sharing[:0]
		}
		if !h.From.Before(h.To) {
			continue
		}
		other, until := longest, longest.To
		if h.Shared {
			other, until = alone, alone.alone()
		}
		if h.From.Before(until) {
			errs = note(errs, fmt.Errorf("two holders of %q: %s from %s to %s, and %s from %s",
				h.Key, other.Owner, clock(other.From), clock(until), h.Owner, clock(h.From)))
		}
		if h.To.After(longest.To) {
			longest = h
		}
		if h.alone().After(alone.alone()) {
			alone = h
		}
		sharing = slices.DeleteFunc(sharing, func(o *Hold) bool { return !h.From.Before(o.To) })
		if h.Shared {
			errs = note(errs, crowded(h, sharing))
		}
		if h.Shared || !h.Down.IsZero() {
			sharing = append(sharing, h)
		}
	}
	return errors.Join(errs...)
}

// crowded returns what is wrong with a hold beside those that share its key when it
// begins.
func crowded(h *Hold, sharing []*Hold) error {
	limit, twin := h.Limit, (*Hold)(nil)
	for _, o := range sharing {
		if o.Limit > 0 && (limit == 0 || o.Limit < limit) {
			limit = o.Limit
		}
		if o.Limit > 0 && h.Limit > 0 && o.Slot == h.Slot {
			twin = o
		}
	}
	switch {
	case limit > 0 && len(sharing) >= limit:
		return fmt.Errorf("%d holders of %q at %s, where the limit is %d: the last is %s", len(sharing)+1, h.Key, clock(h.From), limit, h.Owner)
	case h.Limit > 0 && (h.Slot < 0 || h.Slot >= h.Limit):
		return fmt.Errorf("%s has slot %d of %q, which has %d", h.Owner, h.Slot, h.Key, h.Limit)
	case twin != nil:
		return fmt.Errorf("two have slot %d of %q: %s until %s, and %s from %s", h.Slot, h.Key, twin.Owner, clock(twin.To), h.Owner, clock(h.From))
	}
	return nil
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }
