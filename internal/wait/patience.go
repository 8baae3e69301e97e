// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wait

import (
	"fmt"
	"time"

	"github.com/hasplock/hasp/internal/backoff"
	"github.com/hasplock/hasp/internal/clock"
)

// Trouble is how a wait takes an error of the store.
type Trouble uint8

const (
	Permanent Trouble = iota // it ends what waits
	Away                     // no good answer comes: borne for Terms.Silence
	Unclear                  // the engine does not know the error: for the TTL, or what one Try may take
	Rejects                  // the store is there, and refuses: for Terms.Grace
)

// patience is how a wait bears a store that gives no good answer. It only computes.
type patience struct {
	terms   *Terms
	silent  clock.Instant // when the first call began that had no good answer
	puzzled clock.Instant // since when the engine knew none of the errors
	denied  clock.Instant // since when the store refuses, later by the time for which it was away meanwhile
	latest  clock.Instant // when the latest error came
	due     clock.Instant // when the pause, or the call, ends at the latest
	cut     bool          // the call may take less than others: what is left of Terms.Silence
	kind    Trouble       // of that
	pause   backoff.Backoff
	why     error // what keeps it waiting: the latest refusal or error
}

func newPatience(terms *Terms) patience {
	return patience{terms: terms, pause: backoff.Backoff{Least: 20 * time.Millisecond, Most: time.Second}}
}

// failing says that the latest call had no good answer.
func (p *patience) failing() bool { return p.pause.Failing() }

// asks notes that a call begins at start, and returns how long it may take.
func (p *patience) asks(start clock.Instant) time.Duration {
	if p.failing() {
		p.skipLateness(start)
	} else {
		p.silent = start
	}
	limit := min(p.terms.TTL, p.terms.Call)
	if p.terms.Silence > 0 {
		// Half of the silence that a wait bears, so that one dead connection does
		// not end it; and not more than is left of it.
		limit = min(limit, p.terms.Silence/2)
		left := max(p.terms.Silence-start.Sub(p.silent), 0)
		p.cut = left < limit
		limit = min(limit, left)
	}
	p.due = start.Add(limit)
	return limit
}

// cutShort says that the call which ends now had no time to find out more than the one before it, whose error says why.
func (p *patience) cutShort(now clock.Instant) bool { return p.cut && now.Mono >= p.due.Mono }

// skipLateness leaves out how late it is: this process stood still meanwhile, or was busy, which was not the store's trouble.
func (p *patience) skipLateness(now clock.Instant) {
	late := max(now.Sub(p.due), 0)
	for _, since := range []*clock.Instant{&p.silent, &p.puzzled, &p.denied, &p.latest, &p.due} {
		*since = since.Add(late)
	}
}

// refused notes a good answer: another owner has the key, as why says.
func (p *patience) refused(why error) {
	p.why = why
	p.pause.Reset()
}

// failed notes an error that may go away by itself, and returns the pause before
// asking again.
func (p *patience) failed(now clock.Instant, kind Trouble) time.Duration {
	p.skipLateness(now)
	if !p.failing() || kind != Unclear {
		p.puzzled = now
	}
	switch {
	case !p.failing():
		p.denied = now
	case kind != Rejects:
		p.denied = p.denied.Add(now.Sub(p.latest))
	}
	pause := p.pause.Next()
	p.latest, p.kind, p.due = now, kind, now.Add(pause)
	return pause
}

// joins notes that a caller goes on with the wait of another, which began earlier than from.
func (p *patience) joins(from clock.Instant) {
	for _, since := range []*clock.Instant{&p.silent, &p.puzzled, &p.denied} {
		if from.Sub(*since) > 0 {
			*since = from
		}
	}
}

// bound is for how long a wait without a good answer is borne; 0: without end.
type bound struct {
	most, borne time.Duration
	said        string
}

func (b bound) left() time.Duration { return b.most - b.borne }

// bound returns what ends the wait first, when the errors go on as the latest.
func (p *patience) bound(now clock.Instant) bound {
	all, own := bound{p.terms.Silence, now.Sub(p.silent), "no good answer from the store for %v: %w"}, bound{}
	switch p.kind {
	case Unclear:
		own = bound{max(p.terms.TTL, p.terms.Call), now.Sub(p.puzzled), "the store has failed for %v, and not for being away: %w"}
	case Rejects:
		own = bound{p.terms.Grace, now.Sub(p.denied), "the store has refused for %v: %w"}
	}
	if own.most > 0 && (all.most == 0 || own.left() < all.left()) {
		return own
	}
	return all
}

// exhausted returns what ends a wait without a good answer, once pause has passed.
func (p *patience) exhausted(now clock.Instant, pause time.Duration) error {
	if b := p.bound(now); b.most > 0 && b.left() <= pause {
		return fmt.Errorf(b.said, b.borne.Round(100*time.Millisecond), p.why)
	}
	return nil
}
