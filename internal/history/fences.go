// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Falls lists what CheckFences finds; and, where the store promises that holds exclude
// each other, the fences that do not rise from one hold to the next.
func Falls(holds []Hold, exclusive bool) []string {
	if !exclusive {
		return Found(CheckFences(holds))
	}
	return Found(rise(inOrder(holds)), CheckFences(holds))
}

// rise reports the fences that do not rise from one hold to the next: that of an
// exclusive hold must be above every earlier one; that of a Shared hold, above those of
// all exclusive ones. Holds that were over before their holder learned of them are
// ignored.
func rise(sorted []*Hold) error {
	var errs []error
	var top tops
	for i, h := range sorted {
		if i == 0 || h.Key != sorted[i-1].Key {
			top = newTops()
		}
		if h.To.Before(h.From) {
			continue
		}
		if before := top.against(h); h.Fence != 0 && h.Fence <= before.Fence {
			errs = note(errs, fmt.Errorf("the fence of %q does not rise: %s has %d, after %s with %d",
				h.Key, h.Owner, h.Fence, before.Owner, before.Fence))
		}
		top.add(h)
	}
	return errors.Join(errs...)
}

// CheckFences reports the fences that do not rise in real time: where an owner asked
// after another was granted the key, and its fence is not above that one's though it
// must be (see rise); and fences that two holds have which are not both Shared. It
// includes the holds that were over before their holder learned of them. It needs Asked
// and Granted of every hold; holds without a fence are ignored.
func CheckFences(holds []Hold) error {
	granted := slices.DeleteFunc(inOrder(holds), func(h *Hold) bool { return h.Fence == 0 })
	slices.SortStableFunc(granted, func(a, b *Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	later := slices.Clone(granted)
	slices.SortStableFunc(later, func(a, b *Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Asked, b.Asked))
	})
	var errs []error
	var top tops // of those granted before h asked
	seen := map[uint64]*Hold{}
	i := 0
	for j, h := range later {
		if j == 0 || h.Key != later[j-1].Key { // the holds of a key stand at the same places in both
			top, i = newTops(), j
			clear(seen)
		}
		for ; i < len(granted) && granted[i].Key == h.Key && granted[i].Granted < h.Asked; i++ {
			top.add(granted[i])
		}
		if before := top.against(h); h.Fence <= before.Fence {
			errs = note(errs, fmt.Errorf("the fence of %q does not rise: %s has %d, and asked after %s was granted %d",
				h.Key, h.Owner, h.Fence, before.Owner, before.Fence))
		}
		other, ok := seen[h.Fence]
		if ok && !(h.Shared && other.Shared) {
			errs = note(errs, fmt.Errorf("a fence of %q was given twice: %s and %s have %d", h.Key, other.Owner, h.Owner, h.Fence))
		}
		if !ok || other.Shared {
			seen[h.Fence] = h
		}
	}
	return errors.Join(errs...)
}

// tops are the holds with the largest fences so far.
type tops struct {
	all   *Hold
	alone *Hold // of those that began alone
}

func newTops() tops { return tops{&Hold{}, &Hold{}} }

func (t *tops) add(h *Hold) {
	if h.Fence > t.all.Fence {
		t.all = h
	}
	if !h.Shared && h.Fence > t.alone.Fence {
		t.alone = h
	}
}

// against is the hold with the fence that h's must be above.
func (t *tops) against(h *Hold) *Hold {
	if h.Shared {
		return t.alone
	}
	return t.all
}

// Register is what a lock protects, as far as fences go: it remembers the largest fence that it saw, and refuses
// smaller ones; of a reader, only those that are smaller than a writer's: the fences of readers have no order.
type Register struct{ largest, wrote uint64 }

// Takes reports whether the register takes a write, or a read, with a fence.
func (r *Register) Takes(fence uint64, reads bool) bool {
	if fence < r.wrote || !reads && fence < r.largest {
		return false
	}
	r.largest = max(r.largest, fence)
	if !reads {
		r.wrote = fence
	}
	return true
}
