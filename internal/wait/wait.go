// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package wait decides how an attempt to have a key goes on: when to ask the store, when to
// watch, for how long to sleep, whether a message of a handover is enough to enter, which errors
// it bears and for how long, and what it may have left in the store.
//
// It decides, and does nothing: a Wait has no engine, clock, goroutine or lock. Its caller says
// what happened, and when, one event at a time, and does what Next says.
package wait

import (
	"cmp"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
)

// Terms are what an attempt asks for, and what it bears. They do not change.
type Terms struct {
	TTL      time.Duration
	Lead     time.Duration
	Patience time.Duration // how long the store keeps a place without a sign of life
	Call     time.Duration // what one Try may take at most
	Silence  time.Duration // for how long it goes on without a good answer; 0: without end
	Grace    time.Duration // for how long it goes on while the store refuses
}

// Do is what to do next.
type Do uint8

const (
	Ask          Do = iota // ask the store: Asks, then Granted, Refused, or Unanswered and Failed
	WatchBriefly           // watch, if that takes no more than a moment: then Watched, or Unwatched
	Watch                  // watch, until that is confirmed or has failed: then Watched
	Sleep                  // sleep: Until, until a hint, news of the place, or the end; then Woke
)

// Wait is one attempt to have a key.
type Wait struct {
	patience
	next Do

	queue    bool          // its Try joins
	enters   bool          // it may enter on a handover
	maybe    bool          // the store may have something of this owner
	unsure   bool          // a Try had no good answer: it may still come to the store
	lost     bool          // a Try had no answer at all, and may have been granted
	slow     bool          // a grant came so late that it was asked for again
	marked   bool          // a grant said Abandoned
	kept     bool          // a refusal said Keeps
	watched  bool          // a Watch was answered
	hints    bool          // hints come
	slowest  time.Duration // what the slowest refusal took
	answered time.Duration // when the latest Try that joins was answered, on the monotonic clock
	retry    time.Duration // when to ask again, as the latest answer said; 0: it did not
	until    time.Duration // when the sleep ends, on the monotonic clock
	seen     sample        // of the latest refusal
	handover driver.Handover
}

// sample is a reading of the store's clock, and of the key, by the answer to a Try.
type sample struct {
	start clock.Instant // before that Try
	at    time.Duration // as driver.Result.At
	fence uint64        // as driver.Result.Fence
}

// New returns an attempt that has not begun. enters: it may enter on a handover.
func New(terms *Terms, enters bool) Wait {
	return Wait{enters: enters, patience: newPatience(terms)}
}

// Begin has it ask first, or, with a key that the caller is likely to wait for, watch, so that its first Try joins. joins:
// the engine misses no release between a Try that joins and a Watch after it.
func (w *Wait) Begin(joins, busy bool) {
	w.queue = w.queue || joins
	w.next = Ask
	if busy && !w.queue {
		w.next = WatchBriefly
	}
}

// Next is what to do.
func (w *Wait) Next() Do { return w.next }

// Queue says that the next Try joins the queue.
func (w *Wait) Queue() bool { return w.queue }

// Enters says that the next Try may tell the store that this owner enters on a handover.
func (w *Wait) Enters() bool { return w.enters }

// Join has its next Try join, whatever Next says.
func (w *Wait) Join() { w.queue = true }

// Asks notes that a Try begins at start, and returns how long it may take.
func (w *Wait) Asks(start clock.Instant) time.Duration { return w.asks(start) }

// Unanswered notes that a Try that was sent had no good answer. heard: the store answered, if only
// with a refusal.
func (w *Wait) Unanswered(heard bool) {
	w.maybe, w.unsure = true, true
	w.enters = false // when that Try comes, it says that this owner did not enter
	w.lost = w.lost || !heard
}

// Granted notes a grant, and returns whether one of this attempt said Abandoned.
func (w *Wait) Granted(abandoned bool) (marked bool) {
	w.maybe = true
	w.marked = w.marked || abandoned
	return w.marked
}

// AskAgain says, once, to ask again for a grant that came late, which prolongs it.
func (w *Wait) AskAgain() bool {
	if !w.queue || w.slow {
		return false
	}
	w.slow = true
	return true
}

// Refused notes that the key is held, as res says, the answer to a Try that began at start. why is for a person.
//
// It watches before it joins, so that a release between the two is not missed.
func (w *Wait) Refused(start, now clock.Instant, res driver.Result, why error) {
	w.seen, w.kept = sample{start, res.At, res.Fence}, res.Keeps
	w.slowest = max(w.slowest, now.Sub(start))
	w.retry = res.RetryIn
	w.refused(why)
	if w.queue {
		w.maybe, w.answered = true, now.Mono
	}
	switch {
	case !w.watched:
		w.next = Watch
	case !w.queue:
		w.join()
	default:
		w.next = Sleep
	}
}

func (w *Wait) join() { w.queue, w.next = true, Ask }

// Watched notes the answer to a Watch: whether hints come. wakes: it ends a sleep, so that the store learns
// that this place gets hints now.
func (w *Wait) Watched(hints bool) (wakes bool) {
	w.watched, w.hints = true, hints
	switch w.next {
	case WatchBriefly:
		w.queue, w.next = hints, Ask
	case Watch:
		if w.next = Sleep; !w.queue {
			w.join()
		}
	case Sleep:
		return hints
	}
	return false
}

// Unwatched notes that a Watch took too long: the Try does not join.
func (w *Wait) Unwatched() { w.next = Ask }

// Failed notes an error of the store. It returns what ends the attempt, or has it sleep.
func (w *Wait) Failed(now clock.Instant, t Trouble, why error) error {
	if t == Permanent || !w.cutShort(now) {
		w.why = why
	}
	if t == Permanent {
		return why
	}
	w.retry = w.failed(now, t)
	w.next = Sleep
	return w.exhausted(now, w.retry)
}

// Bears is for how long it asks again at most; 0: without end.
func (w *Wait) Bears(now clock.Instant) time.Duration {
	return max(w.bound(now).left(), 0)
}

// Why is what keeps it waiting: the latest refusal or error; nil: nothing was heard yet.
func (w *Wait) Why() error { return w.why }

// Blame replaces that.
func (w *Wait) Blame(why error) { w.why = why }

// Outlasts says that a call which took so long, and was ended by the caller, is what kept it waiting: longer than
// any answer of this store, and than a round trip. After an error it is not: that says more.
func (w *Wait) Outlasts(took, roundTrip time.Duration) bool {
	return w.why == nil || !w.failing() && took >= roundTrip+w.slowest
}

// Failing says that the latest call had no good answer.
func (w *Wait) Failing() bool { return w.failing() }

// polls says that nothing tells when to ask again.
func (w *Wait) polls() bool { return !w.hints && !w.failing() }

// Until begins a sleep, and returns when it ends, on the monotonic clock.
func (w *Wait) Until(now clock.Instant) time.Duration {
	pause := w.retry
	switch most := w.terms.Patience; {
	case w.polls(): // the moment that the store named may come earlier than it thought
		pause = min(cmp.Or(pause, most), most/3)
	case pause <= 0:
		pause = most
	}
	w.until = now.Mono + pause
	return w.until
}

// News is what a sign of life of its place learned: when to ask. Both times are on the monotonic clock.
type News struct {
	Asked time.Duration // when the store was asked
	At    time.Duration
	Gone  bool // the place is, so at once
}

// Learn takes news during a sleep: it ends (wakes), or lasts until then.
func (w *Wait) Learn(n News) (until time.Duration, wakes bool) {
	old := n.Asked < w.answered // or of the same time: it puts nothing off
	if old {
		n.At = min(n.At, w.until)
	}
	if n.Gone || w.polls() && !old {
		return 0, true
	}
	if !w.failing() { // the pause after an error stands
		w.until = n.At
	}
	return w.until, false
}

// Hinted takes a hint. Of several handovers the newest counts.
func (w *Wait) Hinted(h driver.Hint) {
	if h.Handover.Fence > w.handover.Fence {
		w.handover = h.Handover
	}
}

// Entry is a lease that began with a handover.
type Entry struct {
	driver.Handover
	From   clock.Instant // what it counts from
	Took   time.Duration // how long ago the handover was at most
	Marked bool          // it, or a grant of this attempt, said Abandoned
}

// Woke notes that a sleep is over: it asks next, unless it may enter. ok says that the lease which the store gave
// to its place, as a hint told, is certain to last for long enough.
//
// The lease counts from before the latest refusal was asked for, plus the time that passed from that
// answer to the handover on the store's clock: never from when the message came.
func (w *Wait) Woke(now clock.Instant) (e Entry, ok bool) {
	w.next = Ask
	to := w.handover
	if !w.enters || w.seen.at == 0 || to.Fence <= w.seen.fence {
		return e, false
	}
	since, passed := to.At-w.seen.at, now.Sub(w.seen.start)
	if since > passed { // a clock was set; back, it only counts from earlier
		return e, false
	}
	e = Entry{Handover: to, From: w.seen.start.Add(since - lifetime.Drift(since)), Took: max(passed-since, 1), Marked: w.marked || to.Abandoned}
	usable := to.TTL - w.terms.Lead
	left := usable - lifetime.Drift(to.TTL) - now.Sub(e.From)
	return e, left >= usable*2/3 // otherwise: an old sample, a slow message, or a large lead
}

// Kept says that the latest refusal was of a key that its holder keeps for no caller.
func (w *Wait) Kept() bool { return w.kept }

// Slowest is what the slowest refusal took.
func (w *Wait) Slowest() time.Duration { return w.slowest }

// Settled says that each of its Tries had a good answer.
func (w *Wait) Settled() bool { return !w.unsure }

// Left says what it may have left in the store without a lease: something, and (lost) a grant that had no answer.
func (w *Wait) Left() (something, lost bool) { return w.maybe, w.lost }

// Inherit goes on with the wait of another caller, for a caller that has waited since from. An error says that the
// silence has lasted for too long.
func (w *Wait) Inherit(from, now clock.Instant) error {
	if !w.failing() {
		return nil
	}
	w.skipLateness(now)
	w.joins(from) // it has not waited for all of it
	return w.exhausted(now, 0)
}
