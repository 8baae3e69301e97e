// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history

import "fmt"

// Unreported lists the holds that did not finish and of which no later holder was told: the
// next that may be alone, and all before it that share the key; of a semaphore, some later
// holder since it ended. Of a hold that shares, or that downgraded, no holder need be told.
func Unreported(holds []Hold) (found []string) {
	sorted := inOrder(holds)
	for i, h := range sorted {
		if h.Cut && (h.Limit > 0 || !h.Shared && h.Down.IsZero()) && !reported(h, sorted[i+1:]) {
			found = append(found, fmt.Sprintf("%s did not finish with %q, which it held until %s, and no later holder learned of it that must", h.Owner, h.Key, clock(h.To)))
		}
	}
	return found
}

func reported(dead *Hold, after []*Hold) bool {
	for _, h := range after {
		switch {
		case h.Key != dead.Key:
			return dead.Limit == 0
		case h.Limit > 0 && h.Abandoned && !h.From.Before(dead.To):
			return true
		case h.Limit == 0 && !(h.Abandoned && h.Shared):
			return h.Abandoned
		}
	}
	return dead.Limit == 0 // only sharers followed
}
