// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"time"

	"github.com/hasplock/hasp/internal/player"
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
		case r.What == player.Granted || r.What == player.Renewed:
			if late := r.Deadline.Sub(r.Most); r.Most != 0 && late > 0 {
				says("its deadline is %v later than it may be", late)
			}
		case r.What != player.Ended:
		case !r.Lost && (r.Closed != 0 || past > 0):
			says("its Err is nil %v after the deadline, its Done closed: %v", past, r.Closed != 0)
		case r.Closed != 0 && past > drift(ttl)+stalled(own, r.Deadline):
			says("its Done was closed %v after the deadline", past)
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
