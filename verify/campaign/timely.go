// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"time"
)

// drift is by how much a lease is shorter than its TTL, because clocks differ.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// overdue finds leases that their holder could rely on for too long: with a deadline
// that is later than the witness allows; whose Done was closed later than the deadline,
// by more than the drift and the stalls of the holder's process; or whose Err was nil
// after the deadline.
func overdue(records []record, ttl time.Duration) (found []string) {
	all := map[int][]record{}
	for _, r := range records {
		own := append(all[r.Client], r)
		all[r.Client] = own
		says := func(format string, args ...any) {
			found = append(found, fmt.Sprintf("client %d, acquisition %d: ", r.Client, r.N)+fmt.Sprintf(format, args...))
		}
		switch past := r.At.Sub(r.Deadline); {
		case r.What == granted || r.What == renewed:
			if late := r.Deadline.Sub(r.Most); r.Most != 0 && late > 0 {
				says("its deadline is %v later than it may be", late)
			}
		case r.What != ended:
		case r.Stands && (r.Lost || past > 0):
			says("its Err is nil %v after the deadline, its Done closed: %v", past, r.Lost)
		case r.Lost && past > drift(ttl)+stalled(own, r.Deadline):
			says("its Done was closed %v after the deadline", past)
		}
	}
	return found
}

// lostEarly finds leases that were lost before their deadline, though nobody took them away: the store did not have them any more, as
// their holder heard, or as their release found.
func lostEarly(records []record, taken []takenAway) (found []string) {
	deadlines := map[acquisition]Mono{}
	for _, r := range records {
		id := acquisition{r.Client, r.N}
		switch r.What {
		case granted, renewed:
			deadlines[id] = max(deadlines[id], r.Deadline)
		case ended, released:
			away := slices.ContainsFunc(taken, func(t takenAway) bool { return t.key == r.Key && t.fence == r.Fence })
			if left := deadlines[id].Sub(r.At); r.Lost && left > 0 && !away {
				deadlines[id] = 0 // once
				found = append(found, fmt.Sprintf("client %d, acquisition %d: its lease of %s with fence %d was lost %v before its deadline", r.Client, r.N, r.Key, r.Fence, left))
			}
		}
	}
	return found
}

// stalled returns for how long a process did not get to run between its last event
// before an instant and its last event.
func stalled(own []record, since Mono) time.Duration {
	last := own[len(own)-1]
	for i := len(own) - 1; i >= 0; i-- {
		if own[i].At <= since {
			return last.Stood - own[i].Stood
		}
	}
	return last.Stood
}
