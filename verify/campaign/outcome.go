// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

import (
	"slices"
	"time"

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
	Kept      = "no lease is lost before its deadline"
)

var oracles = []string{Exclusion, Fences, Register, Linear, TimelyEnd, Told, Kept, Idle, Progress, NoHang}

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
	if r.ensemble != nil {
		var late []string
		late, o.Taken, o.Told = r.untold(o.records)
		verdict(Told, nil, late)
	}
	if slices.Contains(engines.Replicated, r.s.Store) {
		verdict(Kept, r.s.MayLose(), lostEarly(book.Holds, r.ensemble.taken))
		o.Gap = r.gap()
	}
	if r.s.Store != Redlock {
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

// mostFindings bounds what a verdict lists, because one broken rule shows in many
// places.
const mostFindings = 5
