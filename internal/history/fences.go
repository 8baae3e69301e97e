// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// CheckFences says which fences do not rise in real time: of a hold whose owner
// asked after another was granted the key, and whose fence is not larger; and
// which fence two holds have. It judges also the holds that were over before
// their holder learned of them. It needs Asked and Granted of every hold; those
// without a fence are not judged.
func CheckFences(holds []Hold) error {
	granted := slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.Fence == 0 })
	slices.SortStableFunc(granted, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	later := slices.Clone(granted)
	slices.SortStableFunc(later, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Asked, b.Asked))
	})
	var errs []error
	var highest Hold // of those granted before h asked, the one with the largest fence
	seen := map[uint64]Hold{}
	i := 0
	for j, h := range later {
		if j == 0 || h.Key != later[j-1].Key { // the holds of a key stand at the same places in both
			highest, i = Hold{}, j
			clear(seen)
		}
		for ; i < len(granted) && granted[i].Key == h.Key && granted[i].Granted < h.Asked; i++ {
			if granted[i].Fence > highest.Fence {
				highest = granted[i]
			}
		}
		if h.Fence <= highest.Fence {
			errs = note(errs, fmt.Errorf("the fence of %q does not rise: %s has %d, and asked after %s was granted %d",
				h.Key, h.Owner, h.Fence, highest.Owner, highest.Fence))
		}
		if other, ok := seen[h.Fence]; ok {
			errs = note(errs, fmt.Errorf("a fence of %q was given twice: %s and %s have %d", h.Key, other.Owner, h.Owner, h.Fence))
		}
		seen[h.Fence] = h
	}
	return errors.Join(errs...)
}
