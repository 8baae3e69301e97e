// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Wait is a stay in the queue for a key, as its owner saw it.
type Wait struct {
	Key    string
	Owner  string
	Shared bool
	Limit  int // as in Hold
	// Asked is before the request that put the owner in the queue, From when it knew
	// that it has a place, To when its call returned.
	Asked, From, To time.Time
	// Away: its process is stopped or dead, or cut off. It may stand in the way,
	// and need not come.
	Away bool
}

// CheckIdle reports the keys that were open to a waiter for longer than limit allows
// at that time. A key is open when it is free; and, to a waiter that would share it,
// when only sharers have it, within the limits of all of them, and no waiter to which it
// is not open can be earlier in the queue. With each grant of the key the time begins
// again.
//
// From and To of a hold mean here for how long the store may have kept the key for it,
// whatever its holder knew.
func CheckIdle(holds []Hold, waits []Wait, limit func(key string, from, to time.Time) time.Duration) error {
	byKey := map[string]*keyHistory{}
	at := func(key string) *keyHistory {
		if byKey[key] == nil {
			byKey[key] = &keyHistory{}
		}
		return byKey[key]
	}
	for i := range holds {
		s := at(holds[i].Key)
		s.holds = append(s.holds, &holds[i])
		s.cuts = append(s.cuts, holds[i].From, holds[i].To, holds[i].Down)
	}
	for i := range waits {
		s := at(waits[i].Key)
		s.waits = append(s.waits, &waits[i])
		s.cuts = append(s.cuts, waits[i].Asked, waits[i].From, waits[i].To)
	}
	var errs []error
	for key, s := range byKey {
		for _, g := range s.gaps() {
			if most := limit(key, g.from, g.to); g.to.Sub(g.from) > most {
				errs = note(errs, fmt.Errorf("%q stood open from %s to %s, for %v and not at most %v, while %s was in the queue",
					key, clock(g.from), clock(g.to), g.to.Sub(g.from), most, g.waiter.Owner))
			}
		}
	}
	return errors.Join(errs...)
}

// keyHistory is what is known of one key.
type keyHistory struct {
	holds []*Hold
	waits []*Wait
	cuts  []time.Time // whenever something changes
}

// gap is a time in which a key was open to a waiter in the queue.
type gap struct {
	from, to time.Time
	waiter   *Wait
}

func (s *keyHistory) gaps() (found []gap) {
	slices.SortFunc(s.cuts, time.Time.Compare)
	s.cuts = slices.CompactFunc(s.cuts, time.Time.Equal)
	slices.SortFunc(s.holds, func(a, b *Hold) int { return a.From.Compare(b.From) })
	slices.SortFunc(s.waits, func(a, b *Wait) int { return a.Asked.Compare(b.Asked) })
	var held []*Hold
	var line []*Wait
	holds, waits := s.holds, s.waits
	for i := 1; i < len(s.cuts); i++ {
		from, to := s.cuts[i-1], s.cuts[i]
		granted := false
		for ; len(holds) > 0 && !holds[0].From.After(from); holds = holds[1:] {
			held = append(held, holds[0])
			granted = granted || holds[0].From.Equal(from)
		}
		for ; len(waits) > 0 && !waits[0].Asked.After(from); waits = waits[1:] {
			line = append(line, waits[0])
		}
		held = slices.DeleteFunc(held, func(h *Hold) bool { return !h.To.After(from) })
		line = slices.DeleteFunc(line, func(w *Wait) bool { return !w.To.After(from) })
		first := open(held, line, from)
		last := len(found) - 1
		switch {
		case first == nil:
		case last >= 0 && found[last].to.Equal(from) && !granted:
			found[last].to = to
		default:
			found = append(found, gap{from, to, first})
		}
	}
	return found
}

// open returns a waiter in the queue to which the key is open; nil: there is none.
func open(held []*Hold, line []*Wait, at time.Time) *Wait {
	alone := func(h *Hold) bool { return h.alone().After(at) }
	if slices.ContainsFunc(held, alone) {
		return nil
	}
	room := math.MaxInt // for so many sharers
	for _, h := range held {
		if h.Limit > 0 {
			room = min(room, h.Limit)
		}
	}
	fits := func(w *Wait) bool {
		return len(held) == 0 || w.Shared && len(held) < room && (w.Limit == 0 || len(held) < w.Limit)
	}
	for _, w := range line { // in the order in which they asked
		before := func(o *Wait) bool { return !o.Asked.After(w.From) && !fits(o) }
		if fits(w) && !w.Away && !w.From.After(at) && !slices.ContainsFunc(line, before) {
			return w
		}
	}
	return nil
}

// Stalls are for how long a process had not got to run, at instants one after another.
type Stalls []Stall

// Stall is for how long a process had not got to run at an instant.
type Stall struct {
	At   time.Time
	Lost time.Duration
}

// Between returns for how long the process did not get to run between the instants around two others.
func (s Stalls) Between(from, to time.Time) time.Duration {
	if len(s) == 0 {
		return 0
	}
	first, last := s[0], s[0]
	for _, at := range s {
		if !at.At.After(from) {
			first = at
		}
		if last.At.Before(to) {
			last = at
		}
	}
	return max(0, last.Lost-first.Lost)
}
