// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package lifetime decides what becomes of a lease between its grant and its end: until
// when its holder may rely on it, when to renew it, what an answer means, why it is
// lost, and what the store is told at the end.
//
// It decides, and does nothing: a Lifetime has no engine, clock, goroutine or lock. Its
// caller says what happened, and when, one event at a time, and does what the answers say.
package lifetime

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
)

// Terms are what the holder asked for. They do not change.
type Terms struct {
	TTL     time.Duration // how long the store keeps the lease without renewal
	Lead    time.Duration // how long before the deadline it counts as over
	MaxHold time.Duration // how long it may be held; 0: no bound
	Keep    time.Duration // how long it may stand without a holder; 0: it may not
	NoRenew bool
}

// Facts decide what the store is told at the end. Renewed, Enter and Convert change them.
type Facts struct {
	Settled   bool // as driver.ReleaseRequest.Settled
	Marked    bool // the holder, or one before it on this grant, was told of a mark; or it may have been, in another process
	Unclaimed bool // it began with a handover, and the store has not answered its claim
	Clean     bool // an earlier holder on this grant came to its end
}

// Lifetime is one lease of the store, which re-entrant leases of the caller's may share.
type Lifetime struct {
	term
	terms *Terms
	why   error // why it is lost or closed
	ttl   time.Duration

	leases, writers int32 // the caller's, that were not released; those of them that write
	running         int32 // functions of Do that have not returned: Close leaves the key to them
	state           State
	Facts
	broken    bool // one of the functions panicked: the end is EndUnfinished, whichever caller releases last
	forgotten bool // nothing can reach it any more: it is not renewed
	wanted    bool // a waiter stands in the queue
	ask       bool // the store is still to be asked to tell of waiters
	counted   bool // an event said that it is held, and none that it ended
	vacant    bool // it was kept, and no caller has had it since
}

// HeldHere is ErrHeld where it is the caller that holds the key.
type HeldHere string

func (e HeldHere) Error() string { return string(e) }

// Is makes errors.Is(err, ErrHeld) true.
func (HeldHere) Is(target error) bool { return target == driver.ErrHeld }

// New returns a lifetime that the store was asked for at asked, and has not granted yet.
func New(terms *Terms, asked clock.Instant, facts Facts) Lifetime {
	return Lifetime{Facts: facts, terms: terms, ttl: terms.TTL, term: term{born: asked, longest: terms.TTL}}
}

// State says what has become of it.
func (l *Lifetime) State() State { return l.state }

// Stands says that it has not ended, as far as was noted: see Expired.
func (l *Lifetime) Stands() bool { return l.state.stands() }

// Expired says that its time is over at now, and that it was not declared lost yet.
func (l *Lifetime) Expired(now clock.Instant) bool { return l.Stands() && l.Over(now) }

// Why returns why it is lost or closed; nil while it stands, and once it was released.
func (l *Lifetime) Why() error { return l.why }

// TTL is what renewals ask for.
func (l *Lifetime) TTL() time.Duration { return l.ttl }

// Asks notes that the store was asked for ttl, whatever it answers.
func (l *Lifetime) Asks(ttl time.Duration) { l.longest = max(l.longest, ttl) }

// Extended notes that the store granted ttl, which renewals ask for from now on if it is longer.
func (l *Lifetime) Extended(ttl time.Duration) { l.ttl = max(l.ttl, ttl) }

// Forget has it no longer renewed.
func (l *Lifetime) Forget() { l.forgotten = true }

// Forgotten says that Forget was called.
func (l *Lifetime) Forgotten() bool { return l.forgotten }

// Want notes whether a waiter stands in the queue, and returns whether one did.
func (l *Lifetime) Want(wanted bool) bool {
	l.wanted = l.wanted || wanted
	return l.wanted
}

// Listen makes a renewal due at once, which asks the store to tell of waiters.
func (l *Lifetime) Listen() { l.ask = l.Stands() && !l.wanted }

// Asking says that this renewal was not sent yet.
func (l *Lifetime) Asking() bool { return l.ask }

// Add notes one more lease of the caller's.
func (l *Lifetime) Add(write bool) {
	l.leases++
	if write {
		l.writers++
	}
}

// Run begins a function of Do, unless the lease has ended: then it returns why.
func (l *Lifetime) Run() error {
	if l.why == nil {
		l.running++
	}
	return l.why
}

// End ends it as lost or closed, once. False: it had ended before, or was released.
// running: a function of Do has not returned.
func (l *Lifetime) End(as State, why error) (ended, running bool) {
	if !l.become(as) {
		return false, false
	}
	l.why = why
	return true, l.running > 0
}

// Release says what is left to do when a lease is released.
type Release uint8

const (
	Nothing Release = iota // it was released before
	Fewer                  // other leases of the caller's stand: end what depends on this one
	Last                   // pass the key on, or tell the store
)

// Release notes that a lease of the caller's is released; again: not for the first time. ran:
// its function of Do has returned, and the last that Close left the key to tells the store. end
// is how the work under the lease ended, and ended how all of it did.
func (l *Lifetime) Release(write, again, ran bool, end driver.End) (r Release, ended driver.End) {
	if ran {
		l.running--
	}
	left := ran && l.state == Closed && l.running == 0
	if again && !left {
		return Nothing, end
	}
	if l.broken = l.broken || end == driver.EndUnfinished; l.broken {
		end = driver.EndUnfinished
	}
	if !again {
		l.leases--
		if write {
			l.writers--
		}
	}
	if last := l.leases == 0 && l.state != Closed; !last && !left { // Close releases what it closed
		return Fewer, end
	}
	after := Released
	if end == driver.EndFinished {
		after = Passing
	}
	l.become(after) // what is lost or closed stays so
	return Last, end
}

// Released notes that the store is told: no turn came after it.
func (l *Lifetime) Released() { l.become(Released) }

// Outcome is what the store is told of the end: as end, unless no holder worked under
// the lease, or it was lost or closed.
func (l *Lifetime) Outcome(end driver.End) driver.End {
	switch {
	case !l.used && !l.Clean:
		return driver.EndUnused
	case !l.used:
		end = driver.EndFinished
	case l.why != nil: // lost, or closed
		return driver.EndUnfinished
	}
	// A Try may come late and have the key after this lease. This holder did not repair
	// what a mark taken over by that Try stands for: EndUnused puts the mark back.
	if end == driver.EndFinished && !l.Settled && !l.Marked && !l.Unclaimed {
		return driver.EndUnused
	}
	return end
}

// Convert makes a lease count as shared, before the store is asked: its answer may be lost.
// released: the lease was. ask is false when there is nothing to ask for.
func (l *Lifetime) Convert(write, released bool) (ask bool, err error) {
	switch {
	case l.why != nil || released:
		return false, cmp.Or(l.why, driver.ErrNotHeld)
	case write && l.writers > 1:
		return false, HeldHere("another lease of this context writes: release or downgrade that first")
	case !write && l.state != Converting:
		return false, nil
	case write:
		l.writers = 0
	}
	l.become(Converting)
	l.Settled = false
	return true, nil
}

// Converted notes that the store granted that; an answer that comes after the end changes nothing.
func (l *Lifetime) Converted(start, now clock.Instant, ttl time.Duration) {
	l.become(Held)
	if l.Stands() && !l.Over(now) {
		l.Grant(start, now, ttl)
	}
}

// WhyLost says for a person why it is lost: by the store's answer, or by the clock.
func (l *Lifetime) WhyLost(now clock.Instant, answer error) error {
	switch {
	case answer != nil:
		return fmt.Errorf("%w: the store says that this owner no longer holds the key (%w): broken by an operator, or lost or deleted there; the audit file and the server's log say which", driver.ErrLost, answer)
	case l.tooLong(now):
		return fmt.Errorf("%w: reached its MaxHold of %v", driver.ErrLost, l.terms.MaxHold)
	case l.forgotten:
		return fmt.Errorf("%w: dropped without Release, and not renewed after that", driver.ErrLost)
	case l.terms.NoRenew:
		return fmt.Errorf("%w: its TTL of %v is over", driver.ErrLost, l.ttl)
	case l.trouble != nil:
		return fmt.Errorf("%w: not renewed in time, last error: %w", driver.ErrLost, l.trouble)
	case l.renewing:
		return fmt.Errorf("%w: not renewed in time: the store has not answered (does it hang?)", driver.ErrLost)
	}
	return fmt.Errorf("%w: not renewed in time, by the clock of this machine (was the process stopped?)", driver.ErrLost)
}

// Answer is what the answer to a renewal means.
type Answer uint8

const (
	Ignored Answer = iota // it has ended, or a call that began later had a good answer
	Renewed               // the deadline has moved
	Failed                // it is tried again soon
	Late                  // the lease is over, whatever the store says: others may have had the key since
	Gone                  // the store says so
)

// Renewed takes the answer to a renewal that began at start.
func (l *Lifetime) Renewed(start, now clock.Instant, r driver.Renewal) Answer {
	switch {
	case errors.Is(r.Err, driver.ErrNotHeld):
		return Gone
	case !l.Stands(), r.Err != nil && start.Mono < l.start.Mono:
		return Ignored
	}
	l.renewing = false
	switch {
	case l.valid != 0 && l.Over(now):
		return Late
	case r.Err != nil:
		l.failed(now, r.Err)
		return Failed
	}
	l.Grant(start, now, r.TTL)
	l.Unclaimed = r.Unclaimed
	l.Want(r.Wanted)
	return Renewed
}

// Began returns by how much the number of held leases changes when its holder is told that
// it has the key. Events of several goroutines may overtake one another: the sum is exact.
func (l *Lifetime) Began() int {
	if !l.Stands() {
		return 0
	}
	l.counted = true
	return 1
}

// Ended is as Began, of the loss or the release. What was lost ends with the loss, also
// when the release is told first.
func (l *Lifetime) Ended(released bool) int {
	if !l.counted || released && l.state == Lost {
		return 0
	}
	l.counted = false
	return -1
}
