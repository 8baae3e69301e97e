// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package history records when each holder held which key, in its own view,
// and judges that.
//
// A hold counts from when its holder learned of the grant to when it sent its
// Release, or to its deadline, whichever is first: between those it may rely
// on the key, and no other owner may.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Hold is one hold of a key.
type Hold struct {
	Key   string
	Owner string
	Fence uint64 // 0: fences are not judged
	From  time.Time
	To    time.Time

	// Shared: others that share the key may hold it at the same time, Limit of
	// them at most; 0: any number. Slot is the hold's number among Limit.
	Shared bool
	Limit  int
	Slot   int
	// Down is when a holder that is not Shared began to downgrade: from then on it
	// shares the key, with the fence that it has. Lowered is when it knew of that.
	// Zero: never.
	Down, Lowered time.Time
	// Abandoned: its holder was told that an earlier one had not finished. Cut: it did not
	// finish itself, since its process died, or it was lost.
	Abandoned, Cut bool
	// Released is when the answer to its Release came. Zero: none said that it is done.
	Released time.Time
	// Over: To is final.
	Over bool

	// Granted is the tick at which the holder learned of the grant: the order
	// of holds that begin at one instant.
	Granted int64
	// Asked and Queued are the ticks before and after the request that put
	// its owner in the queue. 0: the order of arrival is not judged.
	Asked, Queued int64
}

// Extend prolongs a hold that is not over.
func (h *Hold) Extend(deadline time.Time) {
	if !h.Over && deadline.After(h.To) {
		h.To = deadline
	}
}

// End ends a hold: its holder is about to release it, or learned that it is lost.
func (h *Hold) End(at time.Time) {
	if !h.Over && at.Before(h.To) {
		h.To = at
	}
	h.Over = true
}

// Since describes the hold, in seconds after zero.
func (h *Hold) Since(zero time.Time) string {
	how := ""
	switch {
	case h.Shared:
		how = " to read"
	case !h.Down.IsZero():
		how = fmt.Sprintf(" to write until %.6f", h.Down.Sub(zero).Seconds())
	}
	return fmt.Sprintf("%s%s, fence %d, %.6f to %.6f", h.Owner, how, h.Fence, h.From.Sub(zero).Seconds(), h.To.Sub(zero).Seconds())
}

// alone is until when no other owner may hold the key at all.
func (h *Hold) alone() time.Time {
	switch {
	case h.Shared:
		return time.Time{}
	case !h.Down.IsZero() && h.Down.Before(h.To):
		return h.Down
	}
	return h.To
}

// inOrder returns holds by key, in the order in which they began.
func inOrder(holds []Hold) []*Hold {
	sorted := make([]*Hold, len(holds))
	for i := range holds {
		sorted[i] = &holds[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.From.Compare(b.From), cmp.Compare(a.Granted, b.Granted))
	})
	return sorted
}

// Log is a history under way. The zero value is empty. Its methods may be
// called by many goroutines at once.
type Log struct {
	mu    sync.Mutex
	tick  int64
	holds []*Hold
}

// Tick returns the next tick of a clock that orders events of one instant.
func (l *Log) Tick() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick++
	return l.tick
}

// Acquired records that a holder just learned of its grant, which it may rely
// on until deadline. h says what is known of it.
func (l *Log) Acquired(h Hold, deadline time.Time) *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tick++
	h.From, h.To, h.Granted = time.Now(), deadline, l.tick
	l.holds = append(l.holds, &h)
	return &h
}

// Extended records that the holder may rely on the key until a later deadline,
// unless the hold was over by now.
func (l *Log) Extended(h *Hold, deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(h.To) {
		h.Extend(deadline)
	}
}

// Downgraded records that the holder is about to ask to share the key.
func (l *Log) Downgraded(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Down = time.Now()
}

// Released records that the holder is about to send its Release.
func (l *Log) Released(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.End(time.Now())
}

// Cut records that the hold ends without a Release, if it is not over: it is lost, or its process dies.
func (l *Log) Cut(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !h.Over {
		h.End(time.Now())
		h.Cut = true
	}
}

// Holds returns a copy of what was recorded, in the order of the grants.
func (l *Log) Holds() []Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := make([]Hold, len(l.holds))
	for i, h := range l.holds {
		holds[i] = *h
	}
	return holds
}

// Check reports the holds of one key that overlap and must not, and the fences that do
// not rise from one hold to the next; see Overlaps and Falls.
func Check(holds []Hold) error {
	sorted := inOrder(holds)
	return errors.Join(exclusion(sorted), rise(sorted))
}

// CheckOrder reports owners that were granted a key before an owner with a place in the
// queue older than their request. The order among Shared holds is not judged: they may be
// granted together, and learn of it in any order.
func CheckOrder(holds []Hold) error {
	holds = slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.Queued == 0 })
	slices.SortStableFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	var errs []error
	var last, alone Hold // of those granted so far, the last that asked, and the last of those that do not share
	for i, h := range holds {
		if i == 0 || h.Key != holds[i-1].Key {
			last, alone = Hold{}, Hold{}
		}
		before := last
		if h.Shared {
			before = alone
		}
		if before.Asked > h.Queued {
			errs = note(errs, fmt.Errorf("overtaken on %q: %s asked at tick %d and was granted before %s, in the queue since tick %d",
				h.Key, before.Owner, before.Asked, h.Owner, h.Queued))
		}
		if h.Asked > last.Asked {
			last = h
		}
		if !h.Shared && h.Asked > alone.Asked {
			alone = h
		}
	}
	return errors.Join(errs...)
}

// Judge lists what is wrong with holds that exclude each other; see Overlaps and Falls.
func Judge(holds []Hold) []string { return slices.Concat(Overlaps(holds), Falls(holds, true)) }

// Few returns the first n of what was found, and how many there are more: one broken rule shows
// in many places.
func Few(found []string, n int) []string {
	if more := len(found) - n; more > 0 {
		return append(found[:n:n], fmt.Sprintf("and %d more", more))
	}
	return found
}

// Found lists what errors of this package found.
func Found(errs ...error) (found []string) {
	for _, err := range errs {
		if err != nil {
			found = append(found, strings.Split(err.Error(), "\n")...)
		}
	}
	return found
}

// note keeps the first few errors: one broken rule shows in many places.
func note(errs []error, err error) []error {
	if err == nil || len(errs) >= 10 {
		return errs
	}
	return append(errs, err)
}
