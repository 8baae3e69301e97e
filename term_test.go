// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/keepalive"
	"github.com/hasplock/hasp/memdriver"
)

// An answer to a renewal that comes after the deadline never revives a lease,
// also when nobody has noticed its loss yet: another may have had the key since.
func TestLateAnswerRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(memdriver.New(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease, err := c.Mutex("k", nil).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.renewer.Remove(lease.h) // a loop that does not run
		time.Sleep(DefaultTTL - time.Second)
		sent := c.now()
		time.Sleep(2 * time.Second)
		lease.h.Renewed(sent, driver.Renewal{TTL: DefaultTTL})
		if err := lease.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("the lease: %v, want ErrLost", err)
		}
	})
}

// at is an instant by all clocks of a machine.
func at(d time.Duration) clock.Instant { return clock.Instant{Mono: d, Wall: d} }

// The deadline counts from before the call, and moves only forward; a shorter answer
// changes when to renew, and nothing else.
func TestGrantMovesTheDeadlineForward(t *testing.T) {
	tm := term{opts: &LockOptions{}}
	tm.grant(at(10*time.Second), at(11*time.Second), 30*time.Second)
	if left, want := tm.left(at(12*time.Second)), 28*time.Second-drift(30*time.Second); left != want {
		t.Errorf("%v are left of the first answer, must be %v", left, want)
	}
	tm.lastErr = errors.New("trouble")
	tm.grant(at(12*time.Second), at(12*time.Second), 20*time.Second)
	if left, want := tm.left(at(12*time.Second)), 28*time.Second-drift(30*time.Second); left != want || tm.lastErr != nil {
		t.Errorf("after a shorter answer %v are left, must be %v: %v", left, want, tm.lastErr)
	}
	if want := 12*time.Second + (20*time.Second-drift(20*time.Second))/3; tm.renewAt != want {
		t.Errorf("renewed at %v, must be %v", tm.renewAt, want)
	}
	tm.grant(at(14*time.Second), at(14*time.Second), 30*time.Second)
	if left, want := tm.left(at(14*time.Second)), 30*time.Second-drift(30*time.Second); left != want {
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
		tm := term{opts: &LockOptions{}, valid: 30 * time.Second, renewAt: 10 * time.Second}
		due := tm.due(at(c.at), c.hurry)
		again := c.at + tm.span()/6
		if due != c.due || tm.renewing != due || due != (tm.renewAt == again) {
			t.Errorf("%s: due is %v, the next at %v", c.name, due, tm.renewAt)
		}
	}
}

// MaxHold ends what somebody works under, less the lead, and nothing else.
func TestTooLong(t *testing.T) {
	for _, c := range []struct {
		name string
		term term
		opts LockOptions
		long bool
	}{
		{"no bound", term{used: true}, LockOptions{}, false},
		{"not used yet", term{}, LockOptions{MaxHold: time.Second}, false},
		{"at the bound", term{used: true}, LockOptions{MaxHold: time.Minute}, true},
		{"just before", term{used: true}, LockOptions{MaxHold: time.Minute + 1}, false},
		{"at the lead", term{used: true}, LockOptions{MaxHold: time.Minute + 5*time.Second, Lead: 5 * time.Second}, true},
		{"it was idle", term{used: true, idle: time.Second}, LockOptions{MaxHold: time.Minute}, false},
	} {
		c.term.opts = &c.opts
		if got := c.term.tooLong(at(time.Minute)); got != c.long {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What is passed on to the next turn has more than half of its time, and no renewal
// that is under way or failed.
func TestHealthy(t *testing.T) {
	const lead = 2 * time.Second
	for _, c := range []struct {
		name    string
		term    term
		now     time.Duration
		healthy bool
	}{
		{"fresh", term{}, time.Second, true},
		{"half of it", term{}, 10 * time.Second, false},
		{"just over half of it", term{}, 10*time.Second - 1, true},
		{"the renewal failed", term{lastErr: errors.New("trouble")}, time.Second, false},
		{"the renewal is under way", term{renewing: true}, time.Second, false},
	} {
		c.term.opts, c.term.valid = &LockOptions{Lead: lead}, 20*time.Second+lead
		if got := c.term.healthy(at(c.now)); got != c.healthy {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// slow is a driver whose answers to Try take a while, whatever its context says.
type slow struct {
	driver.Driver
	wait time.Duration
}

func (d *slow) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	res, err := d.Driver.Try(ctx, r)
	time.Sleep(d.wait)
	return res, err
}

// The same of the answer to a Downgrade.
func TestLateDowngradeRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slow{Driver: memdriver.New()}
		c, err := New(d, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		lease, err := c.RWMutex("k", nil).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.renewer.Remove(lease.h) // a loop that does not run
		time.Sleep(DefaultTTL - time.Second)
		d.wait = 2 * time.Second
		if err := lease.Downgrade(t.Context()); !errors.Is(err, ErrLost) {
			t.Errorf("the downgrade: %v, want ErrLost", err)
		}
		d.wait = 0
		if err := lease.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("the lease: %v, want ErrLost", err)
		}
	})
}

// The error of a loss says why: an operator will look into that.
func TestWhyLost(t *testing.T) {
	trouble := errors.New("trouble")
	for _, c := range []struct {
		name string
		said error
		hold *hold
		want string
	}{
		{"the store says so", ErrNotHeld, &hold{term: term{opts: &LockOptions{}}}, "the store says that this owner no longer holds the key"},
		{"MaxHold", nil, &hold{term: term{used: true, opts: &LockOptions{MaxHold: 1}}}, "held for its MaxHold of 1ns"},
		{"dropped", nil, &hold{term: term{opts: &LockOptions{}}, handles: handles{forgotten: true}}, "dropped without Release"},
		{"NoRenew", nil, &hold{term: term{opts: &LockOptions{NoRenew: true}}}, "its TTL of 7s is over"},
		{"an error", nil, &hold{term: term{opts: &LockOptions{}, lastErr: trouble}}, "last error: trouble"},
		{"no answer", nil, &hold{term: term{opts: &LockOptions{}, renewing: true}}, "the store has not answered"},
		{"neither", nil, &hold{term: term{opts: &LockOptions{}}}, "by the clock of this machine"},
	} {
		h := c.hold
		h.c, h.req = &core{now: func() clock.Instant { return at(time.Hour) }}, driver.RenewRequest{TTL: 7 * time.Second}
		err := h.whyLost(c.said)
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if errors.Is(err, trouble) != (h.term.lastErr != nil) {
			t.Errorf("%s: the last error: %v", c.name, err)
		}
	}
}
