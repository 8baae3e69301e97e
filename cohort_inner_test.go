// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/memdriver"
)

// passingHold is one that its cohort may pass on.
func passingHold(c *Client) *hold {
	h := newHold(c.core, driver.RenewRequest{Claim: driver.Claim{Key: "k"}, Fence: 7}, &LockOptions{Cohort: 10 * time.Second}, c.now())
	h.state = passing
	h.turn = turn{behind: alone{}, began: c.now(), spare: 1}
	h.term.grant(c.now(), c.now(), DefaultTTL)
	return h
}

// What is passed on to the next turn, and with which marks.
func TestFollower(t *testing.T) {
	for _, c := range []struct {
		name      string
		change    func(h *hold)
		follower  bool
		clean     bool
		abandoned bool
	}{
		{"fit", func(*hold) {}, true, false, false},
		{"not offered", func(h *hold) { h.state = held }, false, false, false},
		{"no fence left", func(h *hold) { h.turn.spare = 0 }, false, false, false},
		{"just within its time", func(h *hold) { h.term.opts.Cohort = 3*time.Second + 1 }, true, false, false},
		{"its time is over", func(h *hold) { h.term.opts.Cohort = 3 * time.Second }, false, false, false},
		{"extended", func(h *hold) { h.term.longest = h.term.opts.TTL + 1 }, false, false, false},
		{"in trouble", func(h *hold) { h.term.lastErr = errors.New("trouble") }, false, false, false},
		{"abandoned, and nobody was given it", func(h *hold) { h.grant.abandoned = true }, true, false, true},
		{"abandoned, and worked under", func(h *hold) { h.grant.abandoned, h.term.used = true, true }, true, true, false},
		{"abandoned, and worked under before", func(h *hold) { h.grant.abandoned, h.turn.clean = true, true }, true, true, false},
		{"worked under", func(h *hold) { h.term.used = true }, true, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := innerClient(t, memdriver.New(), nil)
			h := passingHold(client)
			c.change(h)
			follower := h.follower(alone{}, later(client.now(), 3*time.Second))
			if (follower != nil) != c.follower {
				t.Fatalf("%s: there is a follower: %v", c.name, follower != nil)
			}
			if follower == nil {
				return
			}
			lease := follower.lease(Exclusive)
			if follower.turn.clean != c.clean || lease.Abandoned() != c.abandoned || lease.Fence() != h.req.Fence+1 {
				t.Errorf("%s: clean %v, abandoned %v, fence %d", c.name, follower.turn.clean, lease.Abandoned(), lease.Fence())
			}
		})
	}
}

// Close that has begun leaves nothing to pass on: the key goes back to the store.
func TestNothingIsPassedDuringClose(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := innerClient(t, memdriver.New(), nil)
			next := &caller{given: make(chan gift, 1)}
			co := &cohort{all: &c.cohorts, queue: []*caller{next}}
			h := passingHold(c)
			c.renewer.Add(h, c.now())
			if closing {
				c.renewer.Shut()
			}
			passed := co.pass(h)
			if passed == closing || len(next.given) > 0 == closing {
				t.Errorf("closing is %v: passed %v, given %d", closing, passed, len(next.given))
			}
		})
	}
}

// Without a word of what keeps the leader, a turn waits for somebody unknown; with
// one it knows its place behind the leader.
func TestWhatATurnWaitsFor(t *testing.T) {
	all := &cohorts{}
	first, second := &caller{}, &caller{}
	co := &cohort{all: all, queue: []*caller{first, second}}
	for _, c := range []struct {
		why   error
		ahead int // of the second
	}{{nil, 1}, {&HeldError{Ahead: 3}, 4}} {
		co.why = c.why
		var held *HeldError
		if err := co.waits(second); !errors.As(err, &held) || held.Ahead != c.ahead {
			t.Errorf("beside %v: %v", c.why, err)
		}
	}
	trouble := errors.New("trouble")
	if co.why = trouble; co.waits(second) != trouble {
		t.Errorf("beside trouble: %v", co.waits(second))
	}
}

func later(i clock.Instant, d time.Duration) clock.Instant {
	i.Mono, i.Wall = i.Mono+d, i.Wall+d
	return i
}

// A caller who gives up when it is made the leader of nothing, and is the last, ends the
// cohort.
func TestQuitAsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		co, _ := c.cohorts.join(cohortID{key: "k"})
		_, turn := c.cohorts.join(cohortID{key: "k"})
		co.promote(nil)
		co.quit(c.core, turn)
		synctest.Wait()
		if len(c.cohorts.byID) > 0 {
			t.Error("the cohort goes on")
		}
	})
}

// Where all who waited for a turn have given up, the key goes back to the store.
func TestNothingIsPassedToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		for _, co := range []*cohort{
			{all: &c.cohorts},
			{all: &c.cohorts, id: cohortID{opts: LockOptions{Keep: 1}}, keeper: keeper{shy: true}},
		} {
			h := passingHold(c)
			c.renewer.Add(h, c.now())
			if co.pass(h) {
				t.Error("passed")
			}
			c.renewer.Remove(h)
		}
	})
}

func TestStates(t *testing.T) {
	all := []state{held, converting, kept, passing, released, lost, closed}
	if len(all) != int(states) {
		t.Fatalf("%d states here, %d in all", len(all), states)
	}
	ends := []state{passing, released, lost, closed}
	for _, c := range []struct {
		from   state
		stands bool
		to     []state
	}{
		{held, true, append([]state{converting}, ends...)},
		{converting, true, append([]state{held, converting}, ends...)},
		{kept, true, []state{held, released, lost, closed}},
		{passing, false, []state{released}},
		{released, false, nil},
		{lost, false, nil},
		{closed, false, nil},
	} {
		if c.from.stands() != c.stands {
			t.Errorf("state %d stands: %v", c.from, !c.stands)
		}
		for _, to := range all {
			s := c.from
			want := c.from
			ok := slices.Contains(c.to, to)
			if ok {
				want = to
			}
			if got := s.become(to); got != ok || s != want {
				t.Errorf("from %d to %d: %v, and then it is %d", c.from, to, got, s)
			}
		}
	}
}

// An ended lease is never valid again: work under it was stopped.
func TestNothingStandsAgain(t *testing.T) {
	for s := range states {
		for n := range states {
			if next[s][n] && !s.stands() && n.stands() {
				t.Errorf("state %d becomes %d", s, n)
			}
		}
	}
}
