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
	"github.com/hasplock/hasp/internal/wait"
)

// Rule: a call that was not sent says what kept it, and does not count as one whose context ended.
func TestNotAsked(t *testing.T) {
	err := error(&silentError{limit: 2 * time.Second, why: driver.NotSent(fmt.Errorf("%w: waited for a connection", context.DeadlineExceeded))})
	if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not asked within 2s: ") || !strings.Contains(err.Error(), "waited for a connection") {
		t.Error(err)
	}
}

// A place gives its sign of life a tick before a third of its patience has passed, or sooner when others are sent anyway.
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

// What the store says of a place wakes its waiter at the moment that it names, and at no other.
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
		p := &place{now: func() clock.Instant { return at(time.Second) }, wake: make(chan wait.News, 1)}
		p.Renewed(at(0), c.r)
		select {
		case n := <-p.wake:
			in := n.At - time.Second
			if n.Asked != 0 || !c.woken || in > c.most || c.r.RetryIn != 0 && in != c.r.RetryIn {
				t.Errorf("%s: woken in %v", c.name, in)
			}
		default:
			if c.woken {
				t.Errorf("%s: not woken", c.name)
			}
		}
	}
}

// A waiter that has not looked at what was learned before is woken once, at the earliest of the moments.
func TestPlaceIsWokenOnce(t *testing.T) {
	for _, ins := range [][]time.Duration{{time.Second, time.Minute}, {time.Minute, time.Second}} {
		p := &place{now: func() clock.Instant { return at(time.Hour) }, wake: make(chan wait.News, 1)}
		for i, in := range ins {
			p.Renewed(at(time.Duration(i+1)), driver.Renewal{RetryIn: in})
		}
		if n, want := <-p.wake, (wait.News{Asked: 2, At: time.Hour + time.Second}); n != want || len(p.wake) > 0 {
			t.Errorf("%v: woken with %+v, want %+v, and %d more", ins, n, want, len(p.wake))
		}
	}
}

// That a place is gone is not forgotten for what is learned after it, or was before.
func TestPlaceStaysGone(t *testing.T) {
	gone, later := driver.Renewal{Err: ErrNotHeld}, driver.Renewal{RetryIn: time.Minute}
	for _, all := range [][]driver.Renewal{{gone, later}, {later, gone}} {
		p := &place{now: func() clock.Instant { return at(time.Hour) }, wake: make(chan wait.News, 1)}
		for i, r := range all {
			p.Renewed(at(time.Duration(i+1)), r)
		}
		if n, want := <-p.wake, (wait.News{Asked: 2, At: time.Hour, Gone: true}); n != want {
			t.Errorf("%+v: woken with %+v, want %+v", all, n, want)
		}
	}
}
