// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package lifetime

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
)

var errTrouble = errors.New("trouble")

// at is an instant by all clocks of a machine.
func at(d time.Duration) clock.Instant { return clock.Instant{Mono: d, Wall: d} }

// granted is a lifetime that was asked for and granted at 0, for 30 s.
func granted(terms Terms) *Lifetime {
	terms.TTL = 30 * time.Second
	l := New(&terms, at(0), Facts{})
	l.Grant(at(0), at(0), terms.TTL)
	return &l
}

// The deadline counts from before the call, and moves only forward; a shorter answer
// changes when to renew, and nothing else.
func TestGrantMovesTheDeadlineForward(t *testing.T) {
	l := New(&Terms{}, at(0), Facts{})
	l.Grant(at(10*time.Second), at(11*time.Second), 30*time.Second)
	if left, want := l.Left(at(12*time.Second)), 28*time.Second-Drift(30*time.Second); left != want {
		t.Errorf("%v are left of the first answer, must be %v", left, want)
	}
	l.trouble = errTrouble
	l.Grant(at(12*time.Second), at(12*time.Second), 20*time.Second)
	if left, want := l.Left(at(12*time.Second)), 28*time.Second-Drift(30*time.Second); left != want || l.trouble != nil {
		t.Errorf("after a shorter answer %v are left, must be %v: %v", left, want, l.trouble)
	}
	if want := 12*time.Second + (20*time.Second-Drift(20*time.Second))/3; l.renewAt != want {
		t.Errorf("renewed at %v, must be %v", l.renewAt, want)
	}
	l.Grant(at(14*time.Second), at(14*time.Second), 30*time.Second)
	if left, want := l.Left(at(14*time.Second)), 30*time.Second-Drift(30*time.Second); left != want {
		t.Errorf("after a longer answer %v are left, must be %v", left, want)
	}
}

// A renewal is due a tick before its time, or sooner when others are sent anyway.
func TestDue(t *testing.T) {
	for _, c := range []struct {
		name  string
		at    time.Duration
		hurry bool
		due   bool
	}{
		{"long before", 4 * time.Second, false, false},
		{"long before, in a hurry", 4 * time.Second, true, true},
		{"just before the tick", 10*time.Second - keepalive.Tick - 1, false, false},
		{"the tick before", 10*time.Second - keepalive.Tick, false, true},
		{"late", 20 * time.Second, false, true},
		{"late, in a hurry", 20 * time.Second, true, true},
	} {
		l := granted(Terms{})
		l.valid, l.renewAt = 30*time.Second, 10*time.Second
		due, over := l.Due(at(c.at), c.hurry)
		again := c.at + l.Span()/6
		if due != c.due || over || l.renewing != due || due != (l.renewAt == again) {
			t.Errorf("%s: due is %v, the next at %v", c.name, due, l.renewAt)
		}
	}
}

// A lease that has ended is not renewed, and neither is one that was dropped.
func TestWhatIsRenewed(t *testing.T) {
	for _, c := range []struct {
		name    string
		valid   time.Duration // at 10 s
		renewAt time.Duration
		change  func(l *Lifetime)
		due     bool
		over    bool
		next    time.Duration
	}{
		{"due", time.Minute, 10 * time.Second, func(*Lifetime) {}, true, false, 20 * time.Second},
		{"not yet", time.Minute, 20 * time.Second, func(*Lifetime) {}, false, false, 20 * time.Second},
		{"over", 10 * time.Second, 10 * time.Second, func(*Lifetime) {}, false, true, 10 * time.Second},
		{"NoRenew", time.Minute, 10 * time.Second, func(l *Lifetime) { l.terms.NoRenew = true }, false, false, time.Minute},
		{"dropped", time.Minute, 10 * time.Second, (*Lifetime).Forget, false, false, time.Minute},
		{"asked to tell", time.Minute, 20 * time.Second, (*Lifetime).Listen, true, false, 20 * time.Second},
		{"asked to tell of a waiter it knows", time.Minute, 20 * time.Second, func(l *Lifetime) { l.Want(true); l.Listen() }, false, false, 20 * time.Second},
		{"a claim, not due", time.Minute, 20 * time.Second, func(l *Lifetime) { l.Unclaimed = true }, false, false, 20 * time.Second},
		{"a claim, just before", time.Minute, 10*time.Second + 1, func(l *Lifetime) { l.Unclaimed = true }, false, false, 10*time.Second + 1},
		{"a claim, asked to tell", time.Minute, 20 * time.Second, func(l *Lifetime) { l.Unclaimed = true; l.Listen() }, true, false, 20 * time.Second},
		{"a claim, due", time.Minute, 10 * time.Second, func(l *Lifetime) { l.Unclaimed = true }, true, false, 20 * time.Second},
		{"kept", time.Minute, 20 * time.Second, func(l *Lifetime) { l.Keep(); l.terms.Keep = 15 * time.Second }, false, false, 15 * time.Second},
	} {
		l := granted(Terms{})
		l.valid, l.renewAt = c.valid, c.renewAt
		c.change(l)
		due, over := l.Due(at(10*time.Second), false)
		if due != c.due || over != c.over {
			t.Errorf("%s: due is %v, over %v", c.name, due, over)
		}
		if l.Forgotten() != (c.name == "dropped") {
			t.Errorf("%s: forgotten is %v", c.name, l.Forgotten())
		}
		if next := l.NextLook(at(10 * time.Second)); next != c.next {
			t.Errorf("%s: the next look is at %v", c.name, next)
		}
	}
}

// MaxHold ends what a caller works under, less the lead, and nothing else.
func TestTooLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		given time.Duration // negative: not yet
		terms Terms
		long  bool
	}{
		{"no bound", 0, Terms{}, false},
		{"not given yet", -1, Terms{MaxHold: time.Second}, false},
		{"at the bound", 0, Terms{MaxHold: time.Minute}, true},
		{"just before", 0, Terms{MaxHold: time.Minute + 1}, false},
		{"at the lead", 0, Terms{MaxHold: time.Minute + 5*time.Second, Lead: 5 * time.Second}, true},
		{"given later", time.Second, Terms{MaxHold: time.Minute}, false},
	} {
		l := New(&c.terms, at(0), Facts{})
		l.Grant(at(0), at(0), time.Hour)
		if c.given >= 0 {
			l.Give(at(c.given))
			l.Give(at(c.given + time.Second)) // the first counts
		}
		if got := l.Over(at(time.Minute)); got != c.long || l.tooLong(at(time.Minute)) != c.long {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What an answer to a renewal means, and that it revives nothing.
func TestAnswers(t *testing.T) {
	ok, gone, fails := driver.Renewal{TTL: 30 * time.Second}, driver.Renewal{Err: driver.ErrNotHeld}, driver.Renewal{Err: errTrouble}
	for _, c := range []struct {
		name      string
		sent, now time.Duration
		r         driver.Renewal
		change    func(l *Lifetime)
		want      Answer
	}{
		{"in time", 10 * time.Second, 11 * time.Second, ok, func(*Lifetime) {}, Renewed},
		{"of an earlier call", -1, 11 * time.Second, driver.Renewal{TTL: time.Minute}, func(*Lifetime) {}, Renewed},
		{"after the deadline", 10 * time.Second, 30 * time.Second, ok, func(*Lifetime) {}, Late},
		{"an error after the deadline", 10 * time.Second, 30 * time.Second, fails, func(*Lifetime) {}, Late},
		{"an error", 10 * time.Second, 11 * time.Second, fails, func(*Lifetime) {}, Failed},
		{"an error of the call that counts", 0, 11 * time.Second, fails, func(*Lifetime) {}, Failed},
		{"an error of an earlier call", -1, 11 * time.Second, fails, func(*Lifetime) {}, Ignored},
		{"after the release", 10 * time.Second, 11 * time.Second, ok, (*Lifetime).Released, Ignored},
		{"after the loss", 10 * time.Second, 11 * time.Second, ok, func(l *Lifetime) { l.End(Lost, errTrouble) }, Ignored},
		{"not held", 10 * time.Second, 11 * time.Second, gone, func(*Lifetime) {}, Gone},
		{"not held, after the release", 10 * time.Second, 11 * time.Second, gone, (*Lifetime).Released, Gone},
	} {
		l := granted(Terms{})
		c.change(l)
		l.renewing, l.renewAt = true, time.Hour
		before := l.start.Add(l.valid)
		if got := l.Renewed(at(c.sent), at(c.now), c.r); got != c.want {
			t.Errorf("%s: %d, must be %d", c.name, got, c.want)
		}
		moved := l.start.Add(l.valid).Sub(before) > 0
		if moved != (c.want == Renewed) || l.renewing == (c.want >= Renewed && c.want <= Late) || (l.trouble != nil) != (c.want == Failed) {
			t.Errorf("%s: moved is %v, renewing %v, trouble %v", c.name, moved, l.renewing, l.trouble)
		}
		if c.want == Failed && (l.renewAt < c.now || l.renewAt > c.now+l.Span()/8) { // l.Span()/12, or half as much more
			t.Errorf("%s: tried again at %v", c.name, l.renewAt)
		}
	}
	l := granted(Terms{})
	l.Unclaimed = true
	if l.Renewed(at(0), at(0), driver.Renewal{TTL: time.Second, Wanted: true}); l.Unclaimed || !l.Wanted() {
		t.Error("the answer says nothing of the claim, or of a waiter")
	}
}

// How the end is reported to the next holder.
func TestOutcome(t *testing.T) {
	const used, unused = true, false
	for _, c := range []struct {
		name      string
		used      bool
		facts     Facts
		over      error
		end, want driver.End
	}{
		{"worked to the end", used, Facts{Settled: true}, nil, driver.EndFinished, driver.EndFinished},
		{"worked, and not to the end", used, Facts{Settled: true}, nil, driver.EndUnfinished, driver.EndUnfinished},
		{"the same, after a turn that came to its end", used, Facts{Settled: true, Clean: true}, nil, driver.EndUnfinished, driver.EndUnfinished},
		{"lost", used, Facts{Settled: true}, errTrouble, driver.EndFinished, driver.EndUnfinished},
		{"lost, after a turn that came to its end", used, Facts{Settled: true, Clean: true}, errTrouble, driver.EndFinished, driver.EndUnfinished},
		{"given to no caller", unused, Facts{Settled: true}, nil, driver.EndUnused, driver.EndUnused},
		{"given to no caller, and lost", unused, Facts{Settled: true}, errTrouble, driver.EndFinished, driver.EndUnused},
		{"given to no caller, but the turn before came to its end", unused, Facts{Settled: true, Clean: true}, nil, driver.EndUnused, driver.EndFinished},
		{"a Try may come late", used, Facts{}, nil, driver.EndFinished, driver.EndUnused},
		{"a Try may come late, and it came to no end", used, Facts{}, nil, driver.EndUnfinished, driver.EndUnfinished},
		{"it was told of the mark", used, Facts{Marked: true}, nil, driver.EndFinished, driver.EndFinished},
		{"it entered, and the store does not know that yet", used, Facts{Unclaimed: true}, nil, driver.EndFinished, driver.EndFinished},
	} {
		l := New(&Terms{}, at(0), c.facts)
		l.used, l.why = c.used, c.over
		if got := l.Outcome(c.end); got != c.want {
			t.Errorf("%s: %v, must be %v", c.name, got, c.want)
		}
	}
}

// What is passed on to the next turn, and with which facts.
func TestFollow(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *Lifetime)
		now    time.Duration
		fit    bool
		clean  bool
	}{
		{"fit", func(*Lifetime) {}, time.Second, true, false},
		{"worked under", func(l *Lifetime) { l.Give(at(0)) }, time.Second, true, true},
		{"worked under before", func(l *Lifetime) { l.Clean = true }, time.Second, true, true},
		{"not offered", func(l *Lifetime) { l.state = Held }, time.Second, false, false},
		{"extended", func(l *Lifetime) { l.Asks(l.terms.TTL + 1) }, time.Second, false, false},
		{"extended to the TTL", func(l *Lifetime) { l.Asks(l.terms.TTL) }, time.Second, true, false},
		{"the renewal failed", func(l *Lifetime) { l.trouble = errTrouble }, time.Second, false, false},
		{"the renewal is under way", func(l *Lifetime) { l.renewing = true }, time.Second, false, false},
		{"just over half of it", func(l *Lifetime) { l.valid, l.terms.Lead = 22*time.Second, 2*time.Second }, 10*time.Second - 1, true, false},
		{"half of it", func(l *Lifetime) { l.valid, l.terms.Lead = 22*time.Second, 2*time.Second }, 10 * time.Second, false, false},
	} {
		l := granted(Terms{})
		l.Settled, l.state = true, Passing
		l.Want(true)
		c.change(l)
		next, fit := l.Follow(at(c.now))
		if fit != c.fit || fit && (next.Clean != c.clean || !next.Settled || !next.Wanted() || next.Used() || next.Left(at(c.now)) != l.Left(at(c.now))) {
			t.Errorf("%s: %v, %+v", c.name, fit, next)
		}
	}
}

// What makes a kept lease one that is not taken, but goes back, when a caller asks for it, and when
// the renewer looks.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *Lifetime)
		now    time.Duration
		taken  bool
		stale  bool
	}{
		{"fit", func(*Lifetime) {}, 0, true, false},
		{"not kept", func(l *Lifetime) { l.state = Released }, 2 * time.Hour, false, false},
		{"taken meanwhile", func(l *Lifetime) { l.state = Held }, 0, false, false},
		{"just less than half of its time is over", func(*Lifetime) {}, 14*time.Second + 849*time.Millisecond - 1, true, false},
		{"half of its time is over", func(*Lifetime) {}, 14*time.Second + 849*time.Millisecond, false, true},
		{"all of its time is over", func(*Lifetime) {}, 30 * time.Second, false, true},
		{"wanted", func(l *Lifetime) { l.Want(true) }, 0, false, true},
		{"in trouble", func(l *Lifetime) { l.trouble = errTrouble }, 0, false, true},
		{"being renewed", func(l *Lifetime) { l.renewing = true }, 0, true, false},
		{"just within its time", func(l *Lifetime) { l.terms.Keep = time.Second + 1 }, time.Second, true, false},
		{"kept for long enough", func(l *Lifetime) { l.terms.Keep = time.Second }, time.Second, true, true},
	} {
		for _, use := range []bool{false, true} {
			l := granted(Terms{Keep: time.Hour})
			l.Keep()
			c.change(l)
			if got := l.Stale(at(c.now)); got != c.stale {
				t.Errorf("%s: stale is %v", c.name, got)
			}
			if got := l.Take(at(c.now), use); got != c.taken || got && (l.State() != Held || l.Used() != use || l.Held(at(c.now)) != 0) {
				t.Errorf("%s: taken is %v, %+v", c.name, got, l)
			}
		}
	}
}

// A lease is over once, and what ended stays so.
func TestEnds(t *testing.T) {
	l := granted(Terms{Lead: time.Second})
	usable := 29*time.Second - Drift(30*time.Second)
	for _, c := range []struct {
		at      time.Duration
		expired bool
		ended   bool // by the store itself
	}{{usable - 1, false, false}, {usable, true, false}, {usable + time.Second - 1, true, false}, {usable + time.Second, true, true}} {
		if l.Expired(at(c.at)) != c.expired || l.StoreEnded(at(c.at)) != c.ended {
			t.Errorf("at %v: expired %v, ended %v", c.at, !c.expired, !c.ended)
		}
	}
	if err := l.Run(); err != nil {
		t.Error(err)
	}
	if ended, running := l.End(Lost, errTrouble); !ended || !running || !errors.Is(l.Why(), errTrouble) || l.Expired(at(time.Hour)) {
		t.Errorf("ended %v, running %v, why %v", ended, running, l.Why())
	}
	if ended, running := l.End(Closed, driver.ErrClosed); ended || running || !errors.Is(l.Run(), errTrouble) {
		t.Errorf("once more: %v, %v, why %v", ended, running, l.Why())
	}
	idle := granted(Terms{})
	if ended, running := idle.End(Closed, driver.ErrClosed); !ended || running {
		t.Errorf("without a function: ended %v, running %v", ended, running)
	}
}

// What a waiter makes of a lease that asks to be told of it.
func TestWanted(t *testing.T) {
	l := granted(Terms{})
	if l.Listen(); !l.Asking() || l.Want(false) || l.Wanted() {
		t.Error("nothing waits yet")
	}
	if !l.Want(true) || !l.Want(false) || !l.Wanted() {
		t.Error("a later answer takes it back")
	}
	if l.Listen(); l.Asking() {
		t.Error("it asks for what it knows")
	}
	over := granted(Terms{})
	over.Released()
	if over.Listen(); over.Asking() {
		t.Error("it asks once it is over")
	}
}

// released is one Release of a lease of the caller's: w writes, r reads; + was in a function of Do, ! that
// panicked; = was released before.
type released struct {
	how  string
	want Release
	end  driver.End // of Last
}

// The last lease ends it, and the worst end counts. What Close left to functions ends with the last of them.
func TestRelease(t *testing.T) {
	const done, broken, unused = driver.EndFinished, driver.EndUnfinished, driver.EndUnused
	for _, c := range []struct {
		name   string
		leases string // those of the caller; + those in a function of Do
		state  State  // before that; Held
		steps  []released
		after  State
	}{
		{"one", "w", Held, []released{{"w", Last, done}, {"w=", Nothing, 0}}, Passing},
		{"one that is not used", "w", Held, []released{{"w?", Last, unused}}, Released},
		{"one that panicked", "w+", Held, []released{{"w!", Last, broken}}, Released},
		{"two", "ww", Held, []released{{"w", Fewer, 0}, {"w=", Nothing, 0}, {"w", Last, done}}, Passing},
		{"the first of two panicked", "w+w", Held, []released{{"w!", Fewer, 0}, {"w", Last, broken}}, Released},
		{"a reader within a writer", "wr", Held, []released{{"r", Fewer, 0}, {"w", Last, done}}, Passing},
		{"lost", "w", Lost, []released{{"w", Last, done}}, Lost},
		{"two that are lost", "ww", Lost, []released{{"w", Fewer, 0}, {"w", Last, done}}, Lost},
		{"closed", "w", Closed, []released{{"w", Fewer, 0}, {"w=", Nothing, 0}}, Closed},
		{"closed, and a function runs", "w+", Closed, []released{{"w+", Last, done}}, Closed},
		{"closed, and the function panics", "w+", Closed, []released{{"w!", Last, broken}}, Closed},
		{"closed, and two functions run", "w+w+", Closed, []released{{"w+", Fewer, 0}, {"w+", Last, done}}, Closed},
		{"closed, and one was released by hand", "w+w+", Closed, []released{{"w", Fewer, 0}, {"w+=", Nothing, 0}, {"w+", Last, done}}, Closed},
		{"closed, and both were", "w+w+", Closed, []released{{"w", Fewer, 0}, {"w", Fewer, 0}, {"w+=", Nothing, 0}, {"w+=", Last, done}}, Closed},
	} {
		l := granted(Terms{})
		for i, r := range c.leases {
			if r == '+' {
				continue
			}
			l.Add(r == 'w')
			if strings.HasPrefix(c.leases[i+1:], "+") {
				_ = l.Run()
			}
		}
		writers := int32(strings.Count(c.leases, "w"))
		if c.state != Held {
			l.End(c.state, errTrouble)
		}
		for i, s := range c.steps {
			end := done
			if strings.Contains(s.how, "!") {
				end = broken
			} else if strings.Contains(s.how, "?") {
				end = unused
			}
			again := strings.Contains(s.how, "=")
			got, how := l.Release(s.how[0] == 'w', again, strings.ContainsAny(s.how, "+!"), end)
			if got != s.want || got == Last && how != s.end {
				t.Errorf("%s, step %d: %d, %v", c.name, i+1, got, how)
			}
			if s.how[0] == 'w' && !again {
				writers--
			}
			if l.writers != writers {
				t.Errorf("%s, step %d: %d write, not %d", c.name, i+1, l.writers, writers)
			}
		}
		if l.State() != c.after {
			t.Errorf("%s: the state is %d", c.name, l.State())
		}
	}
}

// A lease counts as shared before the store is asked, and again until the store has granted it.
func TestConvert(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(l *Lifetime)
		write    bool
		released bool
		ask      bool
		err      error
	}{
		{"a writer", func(*Lifetime) {}, true, false, true, nil},
		{"a writer beside a reader", func(l *Lifetime) { l.Add(false) }, true, false, true, nil},
		{"a writer beside another", func(l *Lifetime) { l.Add(true) }, true, false, false, driver.ErrHeld},
		{"a reader beside two writers", func(l *Lifetime) { l.Add(true) }, false, false, false, nil},
		{"a reader", func(*Lifetime) {}, false, false, false, nil},
		{"a reader, which the store may not know", func(l *Lifetime) { _, _ = l.Convert(true, false) }, false, false, true, nil},
		{"one that was released", func(*Lifetime) {}, true, true, false, driver.ErrNotHeld},
		{"one that was lost", func(l *Lifetime) { l.End(Lost, driver.ErrLost) }, true, false, false, driver.ErrLost},
		{"one that was lost and released", func(l *Lifetime) { l.End(Lost, driver.ErrLost) }, true, true, false, driver.ErrLost},
	} {
		l := granted(Terms{})
		l.Settled = true
		l.Add(true)
		c.change(l)
		ask, err := l.Convert(c.write, c.released)
		if ask != c.ask || !errors.Is(err, c.err) || ask == l.Settled || ask != (l.State() == Converting) || ask && l.writers != 0 {
			t.Errorf("%s: ask %v, %v, state %d, %d writers", c.name, ask, err, l.State(), l.writers)
		}
	}
	for _, c := range []struct {
		name   string
		change func(l *Lifetime)
		now    time.Duration
		state  State
		moved  bool
	}{
		{"in time", func(*Lifetime) {}, 11 * time.Second, Held, true},
		{"after the deadline", func(*Lifetime) {}, 30 * time.Second, Held, false},
		{"after the loss", func(l *Lifetime) { l.End(Lost, driver.ErrLost) }, 11 * time.Second, Lost, false},
	} {
		l := granted(Terms{})
		l.Add(true)
		_, _ = l.Convert(true, false)
		c.change(l)
		l.Converted(at(10*time.Second), at(c.now), 30*time.Second)
		if l.State() != c.state || (l.Age(at(c.now)) < c.now) != c.moved {
			t.Errorf("%s: state %d, age %v", c.name, l.State(), l.Age(at(c.now)))
		}
	}
}

// An Extend to less than what renewals ask for leaves that as it is.
func TestExtendedNeverShortens(t *testing.T) {
	l := granted(Terms{})
	before := l.TTL()
	for _, c := range []struct{ to, want time.Duration }{{before - 1, before}, {before + 1, before + 1}, {before, before + 1}} {
		if l.Extended(c.to); l.TTL() != c.want {
			t.Errorf("extended to %v, renewals ask for %v, want %v", c.to, l.TTL(), c.want)
		}
	}
}

// The error of a loss says why: an operator will look into that.
func TestWhyLost(t *testing.T) {
	for _, c := range []struct {
		name   string
		said   error
		change func(l *Lifetime)
		want   string
	}{
		{"the store says so", driver.ErrNotHeld, func(*Lifetime) {}, "the store says that this owner no longer holds the key"},
		{"MaxHold", nil, func(l *Lifetime) { l.terms.MaxHold = 1; l.Give(at(0)) }, "reached its MaxHold of 1ns"},
		{"dropped", nil, (*Lifetime).Forget, "dropped without Release"},
		{"NoRenew", nil, func(l *Lifetime) { l.terms.NoRenew = true; l.Extended(40 * time.Second) }, "its TTL of 40s is over"},
		{"an error", nil, func(l *Lifetime) { l.trouble = errTrouble }, "last error: trouble"},
		{"no answer", nil, func(l *Lifetime) { l.renewing = true }, "the store has not answered"},
		{"neither", nil, func(l *Lifetime) { l.Extended(time.Second) }, "by the clock of this machine"},
	} {
		l := granted(Terms{})
		c.change(l)
		err := l.WhyLost(at(time.Hour), c.said)
		if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if errors.Is(err, errTrouble) != (l.trouble != nil) {
			t.Errorf("%s: the last error: %v", c.name, err)
		}
	}
}

// Events of several goroutines overtake one another, and the sum is exact all the same: a lease
// counts once from when its caller has it to the first end.
func TestLeasesCountOnce(t *testing.T) {
	type step struct {
		state State
		event string
		want  int
	}
	for name, steps := range map[string][]step{
		"released":                  {{Held, "began", 1}, {Released, "released", -1}},
		"passed on":                 {{Held, "began", 1}, {Passing, "released", -1}},
		"lost, then released":       {{Held, "began", 1}, {Lost, "lost", -1}, {Lost, "released", 0}},
		"the release is told first": {{Held, "began", 1}, {Lost, "released", 0}, {Lost, "lost", -1}},
		"closed":                    {{Held, "began", 1}, {Closed, "released", -1}},
		"lost before it was had":    {{Lost, "lost", 0}, {Lost, "began", 0}, {Lost, "released", 0}},
		"lost, which is told later": {{Lost, "began", 0}, {Lost, "lost", 0}},
		"closed before it was had":  {{Closed, "released", 0}, {Closed, "began", 0}},
		"a turn without a caller":   {{Released, "released", 0}},
	} {
		l := &Lifetime{}
		for i, s := range steps {
			l.state = s.state
			var got int
			if s.event == "began" {
				got = l.Began()
			} else {
				got = l.Ended(s.event == "released")
			}
			if got != s.want {
				t.Errorf("%s: step %d counts %d, want %d", name, i+1, got, s.want)
			}
		}
	}
}

func TestStates(t *testing.T) {
	all := []State{Held, Converting, Kept, Passing, Released, Lost, Closed}
	if len(all) != int(states) {
		t.Fatalf("%d states here, %d in all", len(all), states)
	}
	ends := []State{Passing, Released, Lost, Closed}
	for _, c := range []struct {
		from   State
		stands bool
		to     []State
	}{
		{Held, true, append([]State{Converting}, ends...)},
		{Converting, true, append([]State{Held, Converting}, ends...)},
		{Kept, true, []State{Held, Released, Lost, Closed}},
		{Passing, false, []State{Released}},
		{Released, false, nil},
		{Lost, false, nil},
		{Closed, false, nil},
	} {
		if c.from.stands() != c.stands {
			t.Errorf("state %d stands: %v", c.from, !c.stands)
		}
		for _, to := range all {
			l := Lifetime{state: c.from}
			ok := slices.Contains(c.to, to)
			if got := l.become(to); got != ok || ok && l.state != to || !ok && l.state != c.from {
				t.Errorf("from %d to %d: %v, and then it is %d", c.from, to, got, l.state)
			}
			if ok && !c.from.stands() && to.stands() { // work under it was stopped
				t.Errorf("state %d becomes %d, which stands", c.from, to)
			}
		}
	}
}
