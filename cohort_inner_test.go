// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/memdriver"
)

// passingTurn is one that its cohort may pass on.
func passingTurn(c *Client, co *cohort, o LockOptions) *turn {
	set := &settings{}
	_ = set.set(&o, c.core.traits)
	h := newHold(c.core, driver.RenewRequest{Claim: driver.Claim{Key: "k"}, Fence: 7}, set, c.core.now(), lifetime.Facts{})
	h.life.Grant(c.core.now(), c.core.now(), DefaultTTL)
	h.life.Add(true)
	h.life.Release(true, false, false, driver.EndFinished)
	return &turn{hold: h, co: co, began: c.core.now(), spare: 1}
}

// What is passed on to the next turn, and with which marks.
func TestFollower(t *testing.T) {
	for _, c := range []struct {
		name      string
		cohort    time.Duration
		change    func(t *turn)
		follower  bool
		abandoned bool
	}{
		{"fit", time.Hour, func(*turn) {}, true, false},
		{"not offered", time.Hour, func(t *turn) { t.life.Released() }, false, false},
		{"no fence left", time.Hour, func(t *turn) { t.spare = 0 }, false, false},
		{"just within its time", 3*time.Second + 1, func(*turn) {}, true, false},
		{"its time is over", 3 * time.Second, func(*turn) {}, false, false},
		{"abandoned, and given to no caller", time.Hour, func(t *turn) { t.grant.abandoned = true }, true, true},
		{"abandoned, and worked under", time.Hour, func(t *turn) { t.grant.abandoned = true; t.life.Give(t.c.now()) }, true, false},
		{"abandoned, and worked under before", time.Hour, func(t *turn) { t.grant.abandoned, t.life.Clean = true, true }, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := innerClient(t, memdriver.New(), nil)
			h := passingTurn(client, nil, LockOptions{Cohort: c.cohort})
			c.change(h)
			follower := h.follower(later(client.core.now(), 3*time.Second))
			if (follower != nil) != c.follower {
				t.Fatalf("%s: there is a follower: %v", c.name, follower != nil)
			}
			if follower == nil {
				return
			}
			lease := follower.lease(Exclusive)
			failed := follower.spare != 0 || follower.after != afterHold(follower) || !follower.grant.unasked
			if failed {
				t.Errorf("%s: the next turn is %+v", c.name, follower)
			}
			if lease.Abandoned() != c.abandoned || lease.Fence() != h.req.Fence+1 {
				t.Errorf("%s: abandoned %v, fence %d", c.name, lease.Abandoned(), lease.Fence())
			}
		})
	}
}

// Nothing waits for a turn that Close has given back: its end is told to no caller.
func TestReleasedOfATurnThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := passingTurn(innerClient(t, memdriver.New(), nil), nil, LockOptions{Cohort: time.Hour})
		h.life.Released()
		select {
		case <-h.released():
		default:
			t.Error("a caller would wait for it")
		}
	})
}

// Close that has begun leaves nothing to pass on: the key goes back to the store.
func TestNothingIsPassedDuringClose(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := innerClient(t, memdriver.New(), nil)
			next := &queuedCall{given: make(chan gift, 1)}
			co := &cohort{all: &c.core.cohorts, queue: []*queuedCall{next}}
			h := passingTurn(c, co, LockOptions{Cohort: 10 * time.Second})
			c.core.renewer.Add(h, c.core.now())
			if closing {
				c.core.renewer.Shut()
			}
			passed := co.handOn(h)
			if passed == closing || len(next.given) > 0 == closing {
				t.Errorf("closing is %v: passed %v, given %d", closing, passed, len(next.given))
			}
		})
	}
}

// Without a word of what keeps the leader, a turn does not know whom it waits for; with one it knows its place behind the leader.
func TestWhatATurnWaitsFor(t *testing.T) {
	all := &cohorts{}
	first, second := &queuedCall{}, &queuedCall{}
	co := &cohort{all: all, queue: []*queuedCall{first, second}}
	for _, c := range []struct {
		why   error
		ahead int // of the second
	}{{nil, 1}, {&HeldError{Ahead: 3}, 4}} {
		co.why = c.why
		var held *HeldError
		if err := co.whyQueued(second); !errors.As(err, &held) || held.Ahead != c.ahead {
			t.Errorf("beside %v: %v", c.why, err)
		}
	}
	trouble := errors.New("trouble")
	if co.why = trouble; co.whyQueued(second) != trouble {
		t.Errorf("beside trouble: %v", co.whyQueued(second))
	}
}

func later(i clock.Instant, d time.Duration) clock.Instant {
	i.Mono, i.Wall = i.Mono+d, i.Wall+d
	return i
}

// A waiter that is made leader as it gives up, and is the cohort's last, ends the cohort.
func TestQuitAsTheLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		co, _ := c.core.cohorts.join(cohortID{key: "k"})
		_, turn := c.core.cohorts.join(cohortID{key: "k"})
		co.promote(nil)
		co.quit(turn)
		synctest.Wait()
		if len(c.core.cohorts.byID) > 0 {
			t.Error("the cohort goes on")
		}
	})
}

// Where all who waited for a turn have given up, the key goes back to the store.
func TestNothingIsPassedToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		for _, co := range []*cohort{
			{all: &c.core.cohorts},
			{all: &c.core.cohorts, id: cohortID{opts: LockOptions{Keep: 1}}, keeper: keeper{shy: true}},
		} {
			h := passingTurn(c, co, LockOptions{Cohort: 10 * time.Second})
			c.core.renewer.Add(h, c.core.now())
			if co.handOn(h) {
				t.Error("passed")
			}
			c.core.renewer.Remove(h)
		}
	})
}
