// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package history records who held which key when, in the holders' own view,
// and judges it.
//
// A hold counts from when its holder learned of the grant to when it sent its
// Release, or to its deadline, whichever is first: between those it may rely
// on the key, and nobody else may.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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

	// Granted is the tick at which the holder learned of the grant: the order
	// of holds that begin at one instant.
	Granted int64
	// Asked and Queued are the ticks before and after the request that put
	// its owner in line. 0: the order of arrival is not judged.
	Asked, Queued int64
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
	if time.Now().Before(h.To) && deadline.After(h.To) {
		h.To = deadline
	}
}

// Released records that the holder is about to send its Release.
func (l *Log) Released(h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Before(h.To) {
		h.To = now
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

// Check says what is wrong with a history: holds of one key that overlap, and
// fences that do not rise from one hold to the next. Holds that were over
// before their holder learned of them say nothing.
func Check(holds []Hold) error {
	holds = slices.Clone(holds)
	slices.SortStableFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), a.From.Compare(b.From), cmp.Compare(a.Granted, b.Granted))
	})
	var errs []error
	var longest, highest Hold // of the key's holds so far, the last to end and the one with the largest fence
	for _, h := range holds {
		if h.To.Before(h.From) {
			continue
		}
		if h.Key != longest.Key {
			longest, highest = h, h
			continue
		}
		if h.From.Before(longest.To) {
			errs = note(errs, fmt.Errorf("two holders of %q: %s from %s to %s, and %s from %s",
				h.Key, longest.Owner, clock(longest.From), clock(longest.To), h.Owner, clock(h.From)))
		}
		if h.Fence != 0 && h.Fence <= highest.Fence {
			errs = note(errs, fmt.Errorf("the fence of %q does not rise: %s has %d, after %s with %d",
				h.Key, h.Owner, h.Fence, highest.Owner, highest.Fence))
		}
		if h.To.After(longest.To) {
			longest = h
		}
		if h.Fence > highest.Fence {
			highest = h
		}
	}
	return errors.Join(errs...)
}

// CheckOrder says who was granted a key before somebody who had a place in
// line before it even asked.
func CheckOrder(holds []Hold) error {
	holds = slices.DeleteFunc(slices.Clone(holds), func(h Hold) bool { return h.Queued == 0 })
	slices.SortStableFunc(holds, func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Granted, b.Granted))
	})
	var errs []error
	var last Hold // of those granted so far, the one that asked last
	for _, h := range holds {
		if h.Key != last.Key {
			last = h
			continue
		}
		if last.Asked > h.Queued {
			errs = note(errs, fmt.Errorf("overtaken on %q: %s asked at tick %d and was granted before %s, in line since tick %d",
				h.Key, last.Owner, last.Asked, h.Owner, h.Queued))
		}
		if h.Asked > last.Asked {
			last = h
		}
	}
	return errors.Join(errs...)
}

// note keeps the first few errors: one broken rule shows in many places.
func note(errs []error, err error) []error {
	if err == nil || len(errs) >= 10 {
		return errs
	}
	return append(errs, err)
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }
