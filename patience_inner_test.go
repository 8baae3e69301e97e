// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

// A caller that continues another's wait has only waited since it came.
func TestPatienceJoins(t *testing.T) {
	for _, c := range []struct{ silent, puzzled, from, wantSilent, wantPuzzled time.Duration }{
		{1, 2, 5, 5, 5},
		{7, 8, 5, 7, 8},
		{4, 6, 5, 5, 6},
	} {
		p := patience{silent: at(c.silent), puzzled: at(c.puzzled)}
		p.joins(at(c.from))
		if p.silent != at(c.wantSilent) || p.puzzled != at(c.wantPuzzled) {
			t.Errorf("%+v: silent since %v, puzzled since %v", c, p.silent.Mono, p.puzzled.Mono)
		}
	}
}

// The wait ends when the pause would end at the bound, not only after it.
func TestPatienceTires(t *testing.T) {
	why := errors.New("trouble")
	for _, c := range []struct {
		name            string
		ttl, most       time.Duration
		silent, puzzled time.Duration // for how long
		exhausted       string        // what is said; "": it is not
	}{
		{"no bound", time.Second, 0, time.Hour, 0, ""},
		{"within MaxSilence", time.Second, time.Minute, 59*time.Second - 1, 0, ""},
		{"at MaxSilence", time.Second, time.Minute, 59 * time.Second, 0, "no good answer"},
		{"within the TTL", time.Minute, 0, time.Hour, 59*time.Second - 1, ""},
		{"at the TTL", time.Minute, 0, time.Hour, 59 * time.Second, "the store has failed"},
		{"at the TTL, before MaxSilence", time.Minute, 2 * time.Hour, time.Hour, 59 * time.Second, "the store has failed"},
		{"at both", time.Minute, time.Minute, 59 * time.Second, 59 * time.Second, "no good answer"},
		{"a short TTL gives no less than a Try", time.Second, 0, time.Hour, tryLimit - time.Second - 1, ""},
		{"after a Try", time.Second, 0, time.Hour, tryLimit - time.Second, "the store has failed"},
	} {
		p := patience{most: c.most, silent: at(2*time.Hour - c.silent), puzzled: at(2*time.Hour - c.puzzled), kind: unclear, why: why}
		err := p.exhausted(at(2*time.Hour), time.Second, c.ttl)
		if (err != nil) != (c.exhausted != "") || err != nil && (!errors.Is(err, why) || !strings.HasPrefix(err.Error(), c.exhausted)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// One call takes half of MaxSilence at most, and what is left of it.
func TestPatienceLimit(t *testing.T) {
	for _, c := range []struct{ ttl, most, silent, want time.Duration }{
		{time.Second, 0, 0, time.Second},
		{time.Minute, 0, 0, tryLimit},
		{time.Minute, 6 * time.Second, 0, 3 * time.Second},
		{time.Minute, 6 * time.Second, 5 * time.Second, time.Second},
		{time.Minute, 6 * time.Second, 6 * time.Second, time.Second}, // the process stood still
		{time.Minute, 6 * time.Second, time.Hour, time.Second},
		{time.Minute, time.Hour, 0, tryLimit},
	} {
		p := newPatience(c.most, 0)
		if c.silent > 0 {
			p.asks(at(time.Hour), c.ttl)
			p.failed(at(time.Hour), away)
			p.due = at(time.Hour + 5*time.Second)
		}
		if got := p.asks(at(time.Hour+c.silent), c.ttl); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// The time for which this process stood still, in a call or in the pause after it, is not the store's trouble.
func TestPatienceStoodStill(t *testing.T) {
	const short, ttl = time.Millisecond, time.Second // ttl is the limit of a call, too
	for what, stops := range map[string][]struct{ pause, call time.Duration }{
		"in a pause":         {{0, short}, {time.Minute, short}},
		"in a call":          {{0, short}, {0, time.Minute}},
		"in the first call":  {{0, time.Minute}, {0, short}},
		"in each":            {{0, time.Minute}, {time.Minute, time.Minute}, {time.Minute, time.Minute}},
		"with a slow answer": {{0, ttl}, {time.Minute, ttl}},
	} {
		for _, kinds := range [][2]trouble{{away, away}, {unclear, unclear}, {refuses, refuses}, {refuses, away}, {away, refuses}} {
			for _, most := range []time.Duration{0, 15 * time.Second} {
				p, now, bound := newPatience(most, 15*time.Second), clock.Instant{Mono: 1, Wall: 1, Boot: 1}, time.Duration(0)
				p.why = errAway
				for i, s := range stops {
					now = now.Add(s.pause)
					bound += p.asks(now, ttl)
					now = now.Add(s.call)
					pause := p.failed(now, kinds[i%2])
					b := p.bound(now, ttl)
					if err := p.exhausted(now, pause, ttl); err != nil || b.borne > bound || b.borne < 0 {
						t.Errorf("%v, %s: after call %d it bore %v, at most %v is the store's: %v", kinds, what, i, b.borne, bound, err)
					}
					bound += pause
				}
			}
		}
	}
}

// Rule: a call that was not sent says what kept it, and does not count as one whose context ended.
func TestNotAsked(t *testing.T) {
	err := error(&silentError{limit: 2 * time.Second, why: driver.NotSent(fmt.Errorf("%w: waited for a connection", context.DeadlineExceeded))})
	if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not asked within 2s: ") || !strings.Contains(err.Error(), "waited for a connection") {
		t.Error(err)
	}
}

// A place gives its sign of life a tick before a third of its patience has passed, or
// sooner when others are sent anyway.
func TestPlaceIsDue(t *testing.T) {
	const patience = 9 * time.Second
	for _, c := range []struct {
		at         time.Duration
		hurry, due bool
	}{
		{time.Second, false, false},
		{time.Second, true, true},
		{3*time.Second - keepalive.Tick - 1, false, false},
		{3*time.Second - keepalive.Tick, false, true},
		{time.Minute, true, true},
	} {
		p := &place{req: driver.RenewRequest{Patience: patience}}
		p.seen(at(0))
		due, over := p.Due(at(c.at), c.hurry)
		want := 3 * time.Second
		if c.due {
			want = c.at + 3*time.Second
		}
		if due != c.due || over || p.NextLook(at(0)) != want {
			t.Errorf("%+v: due is %v, over %v, and next it looks at %v", c, due, over, p.NextLook(at(0)))
		}
	}
}

// What the store says of a place wakes its waiter at the moment that it names, and
// at no other.
func TestPlaceIsWoken(t *testing.T) {
	for _, c := range []struct {
		name  string
		r     driver.Renewal
		woken bool
		most  time.Duration
	}{
		{"nothing new", driver.Renewal{}, false, 0},
		{"the holder's end is known", driver.Renewal{RetryIn: time.Second}, true, time.Second},
		{"the place is gone", driver.Renewal{Err: ErrNotHeld}, true, 0},
		{"the store is away", driver.Renewal{Err: errors.New("refused")}, true, 75 * time.Millisecond},
	} {
		p := &place{now: func() clock.Instant { return at(time.Second) }, wake: make(chan news, 1)}
		p.Renewed(at(0), c.r)
		select {
		case n := <-p.wake:
			in := n.at - time.Second
			if n.asked != 0 || !c.woken || in > c.most || c.r.RetryIn != 0 && in != c.r.RetryIn {
				t.Errorf("%s: woken in %v", c.name, in)
			}
		default:
			if c.woken {
				t.Errorf("%s: not woken", c.name)
			}
		}
	}
}

// A waiter that has not looked at what was learned before is woken once, at the earliest
// of the moments.
func TestPlaceIsWokenOnce(t *testing.T) {
	for _, ins := range [][]time.Duration{{time.Second, time.Minute}, {time.Minute, time.Second}} {
		p := &place{now: func() clock.Instant { return at(time.Hour) }, wake: make(chan news, 1)}
		for i, in := range ins {
			p.Renewed(at(time.Duration(i+1)), driver.Renewal{RetryIn: in})
		}
		if n, want := <-p.wake, (news{asked: 2, at: time.Hour + time.Second}); n != want || len(p.wake) > 0 {
			t.Errorf("%v: woken with %+v, want %+v, and %d more", ins, n, want, len(p.wake))
		}
	}
}

// That a place is gone is not forgotten for what is learned after it, or was before.
func TestPlaceStaysGone(t *testing.T) {
	gone, later := driver.Renewal{Err: ErrNotHeld}, driver.Renewal{RetryIn: time.Minute}
	for _, all := range [][]driver.Renewal{{gone, later}, {later, gone}} {
		p := &place{now: func() clock.Instant { return at(time.Hour) }, wake: make(chan news, 1)}
		for i, r := range all {
			p.Renewed(at(time.Duration(i+1)), r)
		}
		if n, want := <-p.wake, (news{asked: 2, at: time.Hour, gone: true}); n != want {
			t.Errorf("%+v: woken with %+v, want %+v", all, n, want)
		}
	}
}
