// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/verify/engines"
)

// Counts says how much happened in a run.
type Counts struct {
	Locks     int // granted
	Shared    int // of them: shared
	Lowered   int // downgrades that succeeded
	Renewals  int //
	Releases  int // that succeeded
	Lost      int // leases that ended before their Release
	Stale     int // requests that the fenced register refused
	BareLosts int // updates that a register without fences lost
}

func (c *Counts) add(d Counts) {
	c.Locks += d.Locks
	c.Shared += d.Shared
	c.Lowered += d.Lowered
	c.Renewals += d.Renewals
	c.Releases += d.Releases
	c.Lost += d.Lost
	c.Stale += d.Stale
	c.BareLosts += d.BareLosts
}

// Verdict is what an oracle found, and whether it is allowed.
type Verdict struct {
	Oracle string
	May    []string // the assumptions that the schedule breaks; none: it must hold
	Found  []string // what is wrong
}

// Violated says whether something is wrong that must hold.
func (v Verdict) Violated() bool { return len(v.May) == 0 && len(v.Found) > 0 }

// The oracles.
const (
	Exclusion = "one holder at a time, or readers only"
	Fences    = "fences rise"
	Register  = "the fenced register loses nothing, and does not change under readers"
	Linear    = "a fenced read-write lock has this history"
	Progress  = "everybody gets the lock again"
	NoHang    = "no client hangs"
	TimelyEnd = "a lease ends in time, and its holder learns of it"
	Idle      = "no key is free beside a waiter"
	Told      = "a holder is told that its lease was taken away"
	Dead      = "the next holder has a dead client's key at once, as abandoned"
	Kept      = "no lease is lost before its deadline"
)

var oracles = []string{Exclusion, Fences, Register, Linear, TimelyEnd, Told, Dead, Kept, Idle, Progress, NoHang}

// Outcome is the result of a schedule.
type Outcome struct {
	Schedule *Schedule
	Kinds    []Kind
	Verdicts []Verdict
	Counts   Counts
	Took     time.Duration
	Back     time.Duration // from the end of the last fault to the last client's next lock
	Stalled  time.Duration // for how long the campaign's own process did not get to run
	Open     time.Duration // the longest that a key was free beside a waiter, without stalls of the machine
	Told     time.Duration // the longest that a holder did not know that its lease was taken away
	Both     time.Duration // the longest that two owners held a key
	Gap      time.Duration // the longest from when the master may have been replaced to the next grant, of whatever key
	Taken    int           // leases that were taken away from holders that no other fault affected
	Dropped  int           // packets, on real links
	Resent   int           // TCP segments
	Unknown  int           // keys with a history that was too long to search

	records []record
	holds   []history.Hold
}

// Violated says whether something is wrong that must hold.
func (o *Outcome) Violated() bool { return slices.ContainsFunc(o.Verdicts, Verdict.Violated) }

// judge runs every oracle.
func (r *run) judge(late, hung []string) *Outcome {
	o := &Outcome{Schedule: r.s, Kinds: r.s.Kinds(), Stalled: r.stage.Stalled(), records: r.records}
	book := r.stage.Book
	o.holds = book.History()
	for i := range o.holds {
		h := &o.holds[i]
		h.Owner = h.Since(book.Wall(0)) // as the events say when
	}
	if r.agents != nil {
		r.relied(o.holds)
	}
	mayOverlap, mayRepeat := r.s.MayOverlap(), r.s.MayRepeat()
	verdict := func(oracle string, may, found []string) {
		o.Verdicts = append(o.Verdicts, Verdict{oracle, may, history.Few(found, mostFindings)})
	}
	verdict(Exclusion, mayOverlap, history.Overlaps(o.holds))
	if r.hasp {
		verdict(Fences, mayRepeat, history.Falls(o.holds, len(mayOverlap) == 0))
		verdict(Register, mayRepeat, book.Changed)
		var wrong []string
		wrong, o.Unknown = notLinear(o.holds, len(mayOverlap) == 0)
		verdict(Linear, mayRepeat, wrong)
		verdict(TimelyEnd, nil, overdue(o.records, r.s.MaxTTL))
	}
	if r.agents != nil {
		verdict(Told, nil, r.deaf())
		verdict(Dead, nil, slices.Concat(history.Unreported(o.holds), r.kept()))
	} else if r.ensemble != nil {
		var late []string
		late, o.Taken, o.Told = r.untold(o.records)
		verdict(Told, nil, late)
	}
	if slices.Contains(engines.Replicated, r.s.Store) {
		verdict(Kept, r.s.MayLose(), lostEarly(book.Holds, r.ensemble.taken))
		o.Gap = r.gap()
	}
	if r.s.Store != Redlock && r.agents == nil {
		var open []string
		open, o.Open = r.idle(o.records)
		verdict(Idle, r.s.MayWait(), open)
	}
	o.Both = history.Together(o.holds)
	verdict(Progress, nil, late)
	verdict(NoHang, nil, hung)
	o.count(r)
	return o
}

// count counts what happened.
func (o *Outcome) count(r *run) {
	b := r.stage.Book
	o.Counts = Counts{Locks: b.Granted, Shared: b.Shared, Stale: b.Refused, BareLosts: b.Unfenced}
	c := &o.Counts
	for _, h := range b.Holds {
		if !h.Lowered.IsZero() {
			c.Lowered++
		}
		if !h.Released.IsZero() {
			c.Releases++
		}
	}
	last := map[int]bool{}
	for _, e := range o.records {
		switch {
		case e.What == player.Granted && e.At > r.over && !last[e.Client]:
			last[e.Client] = true
			o.Back = max(o.Back, e.At.Sub(r.over))
		case e.What == player.Renewed:
			c.Renewals++
		case e.What == player.Ended && e.Closed != 0:
			c.Lost++
		}
	}
}

// mostFindings bounds what a verdict lists, because one broken rule shows in many places.
const mostFindings = 5

// overdue finds leases that their holder could rely on for too long: the deadline is later than the witness allows; Done was closed
// later than the deadline, and than the grant was known, by more than the drift and the stalls of the holder's process; or Err was nil
// after the deadline.
func overdue(records []record, ttl time.Duration) (found []string) {
	all := map[int]history.Stalls{} // of each client
	known := map[int]Mono{}         // its latest grant
	for _, r := range records {
		own := append(all[r.Client], history.Stall{At: r.At.Time(), Lost: r.Stood})
		all[r.Client] = own
		says := func(format string, args ...any) {
			found = append(found, fmt.Sprintf("client %d, acquisition %d: ", r.Client, r.N)+fmt.Sprintf(format, args...))
		}
		switch past := r.At.Sub(r.Deadline); {
		case r.What == player.Granted || r.What == player.Renewed:
			if r.What == player.Granted {
				known[r.Client] = r.At
			}
			if late := r.Deadline.Sub(r.Most); r.Most != 0 && late > 0 {
				says("its deadline is %v later than it may be", late)
			}
		case r.What != player.Ended:
		case !r.Lost && (r.Closed != 0 || past > 0):
			says("its Err is nil %v after the deadline, its Done closed: %v", past, r.Closed != 0)
		case r.Closed != 0 && min(past, r.At.Sub(known[r.Client])) > drift(ttl)+own.Between(r.Deadline.Time(), r.At.Time()):
			says("its Done was closed %v after the deadline", past)
		}
	}
	return found
}

// toldLimit is how long it may take until a holder hears that its lease was taken away. It is milliseconds;
// the rest is for the messages between the processes.
const toldLimit = 250 * time.Millisecond

// untold finds holders that went on for too long after their lease was taken away. It returns how many it judged, and the
// longest that a holder went on until it was told, without stalls of the machine. A driver that does not hear of the loss by
// itself, or has not renewed the lease yet, learns it by the next renewal, a third of the TTL later. It only judges holders
// that no other fault affects.
func (r *run) untold(records []record) (found []string, judged int, longest time.Duration) {
	out, all, stalls := r.outages(), r.stage.Attempts, stallsOf(records)
	for _, t := range r.ensemble.taken {
		i := slices.IndexFunc(all, func(a *player.Attempt) bool { return a.Key == t.key && a.Fence == t.fence })
		if i < 0 {
			continue
		}
		h := all[i]
		limit := toldLimit
		if !r.s.Store.Tells() || h.Renewed == 0 || h.Renewed > t.at {
			limit += r.s.MaxTTL / 3
		}
		if h.Ended < t.at { // or never
			continue
		}
		affects := func(o outage) bool {
			return o.Kind != Break && o.Kind != Revoke && o.from <= h.Ended && t.at <= o.to
		}
		if slices.ContainsFunc(out[h.By.ID], affects) {
			continue
		}
		judged++
		stood := stalls.heldUp(t.at.Time(), h.Ended.Time(), h.By.ID)
		late := h.Ended.Sub(t.at)
		if h.Told {
			longest = max(longest, late-stood)
		}
		if late > limit+stood {
			found = append(found, fmt.Sprintf("client %d, acquisition %d of %q with fence %d: its lease was taken away at %.6f, and it went on for %v and not at most %v (told: %v)",
				h.By.ID, h.N, t.key, t.fence, time.Duration(t.at).Seconds(), late, limit+stood, h.Told))
		}
	}
	return found, judged, longest
}

// lostEarly finds leases that were lost before their deadline, as their holder was told or their release found, though they
// were not taken away.
func lostEarly(holds []*player.Hold, taken []takenAway) (found []string) {
	for _, h := range holds {
		away := slices.ContainsFunc(taken, func(t takenAway) bool { return t.key == h.Key && t.fence == h.Fence })
		if h.Early > 0 && !away {
			found = append(found, fmt.Sprintf("%s: its lease of %s with fence %d was lost %v before its deadline", h.Owner, h.Key, h.Fence, h.Early))
		}
	}
	return found
}

// lockState is the state of a fenced read-write lock.
type lockState struct {
	writer  uint64 // the writer's fence; 0: there is none
	readers int
	last    uint64 // the largest fence granted
	wrote   uint64 // the largest granted to a writer
}

// lockOp is an operation on the lock.
type lockOp struct {
	kind   lockKind
	fence  uint64
	shared bool // of a grant
}

type lockKind uint8

const (
	grant     lockKind = iota
	downgrade          // of the writer
	maybe              // a downgrade with unknown outcome
	end                // of a hold
)

// fencedLock models a lock that grants a free key to any owner, and a key that readers hold to another reader. A writer's fence is
// above all before it; a reader's is above those of all writers before it. Without exclusive it only mints fences, which is all
// that is promised when an assumption is broken.
func fencedLock(exclusive bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lockState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(lockState), input.(lockOp)
			if op.kind == grant {
				return s.grant(op, exclusive)
			}
			return s.leave(op)
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

func (s lockState) grant(op lockOp, exclusive bool) (bool, lockState) {
	free, above := s.writer == 0, s.wrote
	if !op.shared {
		free, above = free && s.readers == 0, s.last
	}
	if !free || op.fence <= above {
		return false, s
	}
	s.last = max(s.last, op.fence)
	switch {
	case !op.shared:
		s.wrote = op.fence
		if exclusive {
			s.writer = op.fence
		}
	case exclusive:
		s.readers++
	}
	return true, s
}

func (s lockState) leave(op lockOp) (bool, lockState) {
	writes := s.writer == op.fence
	switch {
	case writes && op.kind == end:
		s.writer = 0
	case writes:
		s.writer = 0
		s.readers++
	case op.kind == downgrade:
		return false, s
	case op.kind == end:
		s.readers--
	}
	return s.readers >= 0, s
}

// linearLimit bounds one check.
const linearLimit = 10 * time.Second

// notLinear finds keys with a history that is not linearizable. unknown counts the keys for which the search took too long.
//
// The end of a hold lies between the call of Release, or the deadline, and the
// return of that Release; a lease that was lost may end at any time after.
func notLinear(holds []history.Hold, exclusive bool) (found []string, unknown int) {
	byKey := map[string][]porcupine.Operation{}
	for _, h := range holds {
		if h.To.Before(h.From) {
			continue
		}
		add := func(op lockOp, call, back int64) {
			byKey[h.Key] = append(byKey[h.Key], porcupine.Operation{Input: op, Call: call, Return: back})
		}
		add(lockOp{kind: grant, fence: h.Fence, shared: h.Shared}, h.Asked, h.Granted)
		if !exclusive {
			continue
		}
		tick := func(t time.Time) int64 { return h.Granted + int64(t.Sub(h.From)) }
		switch {
		case !h.Lowered.IsZero():
			add(lockOp{kind: downgrade, fence: h.Fence}, tick(h.Down), tick(h.Lowered))
		case !h.Down.IsZero():
			add(lockOp{kind: maybe, fence: h.Fence}, tick(h.Down), int64(never))
		}
		back := int64(never)
		if !h.Released.IsZero() {
			back = tick(h.Released)
		}
		add(lockOp{kind: end, fence: h.Fence}, tick(h.To), back)
	}
	for key, ops := range byKey {
		switch porcupine.CheckOperationsTimeout(fencedLock(exclusive), ops, linearLimit) {
		case porcupine.Illegal:
			found = append(found, fmt.Sprintf("no fenced lock has the history of %s (%d operations)", key, len(ops)))
		case porcupine.Unknown:
			unknown++
		}
	}
	return found, unknown
}
