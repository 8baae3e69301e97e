// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
)

// drift is by how much a lease is shorter than its TTL, because clocks differ.
func drift(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

// overdue finds leases that their holder could rely on for too long: the deadline is later
// than the witness allows; Done was closed later than the deadline, by more than the drift
// and the stalls of the holder's process; or Err was nil after the deadline.
func overdue(records []record, ttl time.Duration) (found []string) {
	all := map[int]history.Stalls{} // of each client
	for _, r := range records {
		own := append(all[r.Client], history.Stall{At: r.At.Time(), Lost: r.Stood})
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
		case r.Closed != 0 && past > drift(ttl)+own.Between(r.Deadline.Time(), r.At.Time()):
			says("its Done was closed %v after the deadline", past)
		}
	}
	return found
}
