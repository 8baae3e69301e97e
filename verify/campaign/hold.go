// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hasplock/hasp/internal/history"
)

type acquisition struct{ client, n int }

// holdsOf extracts the holds from what the clients reported. One begins when Lock
// returned, and ends when Release was called, or with the lease; that of a client that
// was killed, at its deadline as last known.
func holdsOf(records []record) (holds []history.Hold) {
	asks := map[acquisition]Mono{}
	open := map[acquisition]*history.Hold{}
	var all []*history.Hold
	for _, r := range records {
		id := acquisition{r.Client, r.N}
		h := open[id]
		switch r.What {
		case asked:
			asks[id] = r.At
		case granted:
			h = &history.Hold{Key: r.Key, Owner: fmt.Sprintf("client %d, acquisition %d", r.Client, r.N), Fence: r.Fence, Shared: r.Shared,
				Asked: int64(asks[id]), Granted: int64(r.At), From: r.At.Time(), To: r.Deadline.Time()}
			open[id] = h
			all = append(all, h)
		case renewed:
			if h != nil {
				h.Extend(r.Deadline.Time())
			}
		case lowered:
			h.Down = r.At.Time()
		case shares:
			if r.Err == "" {
				h.Lowered = r.At.Time()
			}
		case ended:
			h.To = r.Deadline.Time()
			h.End(r.At.Time())
		case released:
			if r.Err == "" {
				h.Released = r.At.Time()
			}
		}
	}
	for _, h := range all {
		h.Owner = h.Since(time.Unix(0, 0)) // as the events say when
		holds = append(holds, *h)
	}
	slices.SortStableFunc(holds, func(a, b history.Hold) int { return cmp.Compare(a.Granted, b.Granted) })
	return holds
}

// mostFindings bounds what a verdict lists, because one broken rule shows in many
// places.
const mostFindings = 5

// few returns the first few findings.
func few(found []string) []string {
	if len(found) > mostFindings {
		found = append(found[:mostFindings:mostFindings], fmt.Sprintf("and %d more", len(found)-mostFindings))
	}
	return found
}
