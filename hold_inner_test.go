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
	"github.com/hasplock/hasp/memdriver"
)

// innerClient is a client whose parts a test inspects.
func innerClient(t *testing.T, d driver.Driver, o *Options) *Client {
	t.Helper()
	c, err := New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	c.now = func() clock.Instant { // without what no bubble stops
		now := clock.System()
		now.Boot = 0
		return now
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func innerLock(t *testing.T, l interface {
	Lock(context.Context) (*Lease, error)
}) *Lease {
	t.Helper()
	lease, err := l.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// A hold that has ended is not renewed, and neither is one that was dropped;
// one that was released meanwhile has no reader of the answer, so it may be sent.
func TestWhatIsRenewed(t *testing.T) {
	for _, c := range []struct {
		name     string
		state    state
		dropped  bool
		noRenew  bool
		valid    time.Duration // at 10 s
		renewAt  time.Duration
		due      bool
		over     bool
		sent     bool
		nextLook time.Duration
	}{
		{"due", held, false, false, time.Minute, 10 * time.Second, true, false, true, 10*time.Second + 10*time.Second},
		{"not yet", held, false, false, time.Minute, 20 * time.Second, false, false, true, 20 * time.Second},
		{"over", held, false, false, 10 * time.Second, 10 * time.Second, false, true, true, 10 * time.Second},
		{"NoRenew", held, false, true, time.Minute, 10 * time.Second, false, false, true, time.Minute},
		{"dropped", held, true, false, time.Minute, 10 * time.Second, false, false, false, time.Minute},
		{"released meanwhile", released, false, false, time.Minute, 10 * time.Second, true, false, true, 10*time.Second + 10*time.Second},
	} {
		h := newHold(&core{}, driver.RenewRequest{Claim: driver.Claim{Key: "k"}}, &LockOptions{NoRenew: c.noRenew}, at(0))
		h.state, h.term.valid, h.term.renewAt = c.state, c.valid, c.renewAt
		h.handles.forgotten, h.handles.pinned = c.dropped, c.state == held // somebody can reach it
		due, over := h.Due(at(10*time.Second), false)
		if due != c.due || over != c.over {
			t.Errorf("%s: due is %v, over %v", c.name, due, over)
		}
		if next := h.NextLook(at(10 * time.Second)); next != c.nextLook {
			t.Errorf("%s: the next look is at %v", c.name, next)
		}
		if _, ok := h.Request(); ok != c.sent {
			t.Errorf("%s: sent is %v", c.name, ok)
		}
	}
}

// An unreachable lease is not renewed again.
func TestForgottenIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		h := newHold(c.core, driver.RenewRequest{Claim: driver.Claim{Key: "k"}}, &LockOptions{}, c.now())
		h.handles.known = make([]weakLease, 1)
		for range 2 {
			if _, ok := h.Request(); ok || !h.handles.forgotten {
				t.Errorf("sent is %v, forgotten %v", ok, h.handles.forgotten)
			}
		}
	})
}

// A hold ends once: the observer gets one loss, and a later caller that ends it learns
// that it had ended.
func TestLossIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		c := innerClient(t, memdriver.New(), &Options{Observe: func(e Event) {
			if e.Kind == EventLost {
				told++
			}
		}})
		lease := innerLock(t, c.Mutex("k", nil))
		for range 2 {
			lease.h.lose(nil)
		}
		if told != 1 {
			t.Errorf("the loss was told %d times", told)
		}
		_ = lease.h.run()
		if ended, running := lease.h.finish(closed, ErrClosed); ended || running || !errors.Is(lease.Err(), ErrLost) {
			t.Errorf("Close ended it again: %v, %v, %v", ended, running, lease.Err())
		}
	})
}

// How the end of a hold is reported to the next holder.
func TestOutcome(t *testing.T) {
	over := errors.New("over")
	for _, c := range []struct {
		name        string
		used, clean bool
		over        error
		end, want   driver.End
	}{
		{"worked to the end", true, false, nil, driver.Finished, driver.Finished},
		{"worked, and not to the end", true, false, nil, driver.Unfinished, driver.Unfinished},
		{"the same, after a turn that came to its end", true, true, nil, driver.Unfinished, driver.Unfinished},
		{"lost", true, false, over, driver.Finished, driver.Unfinished},
		{"lost, after a turn that came to its end", true, true, over, driver.Finished, driver.Unfinished},
		{"nobody was given it", false, false, nil, driver.Unused, driver.Unused},
		{"nobody was given it, and it was lost", false, false, over, driver.Finished, driver.Unused},
		{"nobody, but the turn before came to its end", false, true, nil, driver.Unused, driver.Finished},
	} {
		h := newHold(nil, driver.RenewRequest{}, &LockOptions{}, at(0))
		h.term.used, h.turn.clean, h.end, h.settled = c.used, c.clean, c.over, true
		if got := h.outcome(c.end); got != c.want {
			t.Errorf("%s: %v, must be %v", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		name                    string
		settled, marked, claims bool
		want                    driver.End
	}{
		{"a Try may come late", false, false, false, driver.Unused},
		{"every Try was answered", true, false, false, driver.Finished},
		{"it was told of the mark", false, true, false, driver.Finished},
		{"it entered, and the store does not know that yet", false, false, true, driver.Finished},
	} {
		h := newHold(nil, driver.RenewRequest{}, &LockOptions{}, at(0))
		h.term.used, h.settled, h.grant.marked, h.claims = true, c.settled, c.marked, c.claims
		if got := h.outcome(driver.Finished); got != c.want {
			t.Errorf("%s: %v, must be %v", c.name, got, c.want)
		}
	}
}

// A longer Extend is for one turn: the hold is not passed on after it, whatever
// comes later. One to the TTL is a renewal.
func TestExtendedStaysExtended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lease := innerLock(t, innerClient(t, memdriver.New(), nil).Mutex("k", nil))
		for _, c := range []struct {
			ttl      time.Duration
			extended bool
		}{{DefaultTTL, false}, {DefaultTTL / 2, false}, {2 * DefaultTTL, true}, {DefaultTTL, true}, {DefaultTTL / 2, true}} {
			if err := lease.Extend(t.Context(), c.ttl); err != nil || lease.h.term.extended() != c.extended {
				t.Errorf("after an Extend to %v it is extended: %v, %v", c.ttl, lease.h.term.extended(), err)
			}
		}
	})
}

// Once Done has returned a channel, somebody may wait for it, whoever else checks the lease.
func TestDonePins(t *testing.T) {
	h := newHold(nil, driver.RenewRequest{}, &LockOptions{}, at(0))
	for _, c := range []struct{ pin, pinned bool }{{false, false}, {true, true}, {false, true}} {
		if h.over(c.pin); h.handles.pinned != c.pinned {
			t.Errorf("after a look that pins: %v, it is pinned: %v", c.pin, h.handles.pinned)
		}
	}
}

// Wanted stays closed, also when the channel is asked for after the waiter has left.
func TestWantedStays(t *testing.T) {
	h := newHold(nil, driver.RenewRequest{}, &LockOptions{}, at(0))
	for _, wanted := range []bool{true, false} {
		h.signals.want(wanted)
	}
	if h.wish().Err() == nil {
		t.Error("a later renewal took it back")
	}
	if h.signals.want(false) == nil {
		t.Error("who asked meanwhile is not told")
	}
}

// What Close left to a function of Do is released when the last of them has returned,
// and by nothing else.
func TestCloseLeavesTheKeyToFunctions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c := innerClient(t, store, nil)
		m := c.Mutex("k", &LockOptions{Reentrant: true})
		var inner *Lease
		ends := make(chan struct{})
		go func() {
			_ = m.Do(t.Context(), func(ctx context.Context, outer *Lease) error {
				if l, err := m.Lock(ctx); err != nil {
					t.Error(err)
				} else {
					inner = l
				}
				ended := make(chan struct{})
				go func() {
					_ = m.Do(ctx, func(context.Context, *Lease) error {
						<-ends
						return nil
					})
					close(ended)
				}()
				synctest.Wait()
				go func() { _ = c.Close() }()
				<-ctx.Done()
				_ = inner.release(false, driver.Finished)
				_ = outer.release(false, driver.Finished)
				ends <- struct{}{}
				<-ended
				if info, err := store.Inspect(context.Background(), "k"); err != nil || !info.Held {
					t.Errorf("the key is free while a function runs: %v", err)
				}
				return nil
			})
		}()
		time.Sleep(time.Second)
		if info, err := store.Inspect(t.Context(), "k"); err != nil || info.Held {
			t.Errorf("held: %v, %v", info.Held, err)
		}
	})
}

// A Downgrade of a lease that has just ended sends nothing.
func TestDowngradeOfWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		lost := innerLock(t, c.RWMutex("a", nil))
		lost.h.lose(nil)
		if ask, err := lost.beginConversion(); ask || !errors.Is(err, ErrLost) {
			t.Errorf("of a lost one: %v, %v", ask, err)
		}
		o := &LockOptions{Reentrant: true}
		outer := innerLock(t, c.RWMutex("b", o))
		inner, err := c.RWMutex("b", o).Lock(outer.Context(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if err := inner.Release(); err != nil {
			t.Fatal(err)
		}
		if ask, err := inner.beginConversion(); ask || !errors.Is(err, ErrNotHeld) || outer.Mode() != Exclusive {
			t.Errorf("of a released one: %v, %v", ask, err)
		}
	})
}

// trying is a driver that calls a function before it answers a Try.
type trying struct {
	driver.Driver
	before func()
}

func (d *trying) Try(ctx context.Context, r driver.TryRequest) (driver.Result, error) {
	if r.Convert {
		d.before()
	}
	return d.Driver.Try(ctx, r)
}

// A Downgrade that the store grants after the lease was lost does not move its deadline.
func TestDowngradeOfALossUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &trying{Driver: memdriver.New()}
		lease := innerLock(t, innerClient(t, d, nil).RWMutex("k", nil))
		time.Sleep(time.Second)
		before := lease.Deadline()
		d.before = func() { lease.h.lose(nil) }
		if err := lease.Downgrade(t.Context()); !errors.Is(err, ErrLost) || lease.Deadline().After(before) {
			t.Errorf("%v, the deadline moved by %v", err, lease.Deadline().Sub(before))
		}
	})
}

// Where a lease was taken is where its turn was taken, outside of this package, and
// nothing when it is not recorded.
func TestTaken(t *testing.T) {
	if s := (&origin{}).String(); s != "" {
		t.Errorf("taken by nobody: %q", s)
	}
	if s := (*origin)(nil).String(); s != "" {
		t.Errorf("not recorded: %q", s)
	}
	c := &core{recordTaken: true}
	got := make(chan *origin)
	go func() { got <- c.origin() }() // the runtime began this one
	if s := (<-got).String(); strings.Contains(s, "runtime.goexit") || strings.Contains(s, "hasp.TestTaken") {
		t.Errorf("taken by %q", s)
	}
	for _, record := range []bool{false, true} {
		first, second := &origin{1}, &origin{2}
		l := &Lease{h: newHold(&core{recordTaken: record}, driver.RenewRequest{}, &LockOptions{}, at(0)), taken: first}
		if l.takenHere(); (l.taken == first) == record || l.taken == nil || l.taken == second {
			t.Errorf("recorded is %v: taken %v", record, l.taken)
		}
	}
}

// A Release of a hold that Close has ended sends nothing: Close does.
func TestReleaseOfWhatCloseEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &releasing{Driver: memdriver.New(), answer: func(int) error { return nil }}
		c := innerClient(t, d, nil)
		lease := innerLock(t, c.Mutex("k", nil))
		if err := c.Close(); err != nil || d.n != 1 {
			t.Fatalf("%v, %d releases", err, d.n)
		}
		if err := lease.release(false, driver.Finished); !errors.Is(err, ErrClosed) || d.n != 1 {
			t.Errorf("%v, %d releases", err, d.n)
		}
	})
}

// Events of several goroutines overtake one another, and the sum of Event.Leases is exact
// all the same: a lease counts once from when its caller has it to the first end.
func TestLeasesCountOnce(t *testing.T) {
	type step struct {
		state state
		kind  EventKind
		want  int
	}
	for name, steps := range map[string][]step{
		"released":                  {{held, EventAcquired, 1}, {held, EventRenewed, 0}, {released, EventReleased, -1}},
		"passed on":                 {{held, EventAcquired, 1}, {passing, EventReleased, -1}},
		"lost, then released":       {{held, EventAcquired, 1}, {lost, EventLost, -1}, {lost, EventReleased, 0}},
		"the release is told first": {{held, EventAcquired, 1}, {lost, EventReleased, 0}, {lost, EventLost, -1}},
		"closed":                    {{held, EventAcquired, 1}, {closed, EventReleased, -1}},
		"lost before it was had":    {{held, EventRenewed, 0}, {lost, EventLost, 0}, {lost, EventAcquired, 0}, {lost, EventReleased, 0}},
		"lost, which is told later": {{lost, EventAcquired, 0}, {lost, EventLost, 0}},
		"closed before it was had":  {{closed, EventReleased, 0}, {closed, EventAcquired, 0}},
		"turn that nobody came for": {{released, EventReleased, 0}},
		"forgotten":                 {{held, EventAcquired, 1}, {held, EventForgotten, 0}, {lost, EventLost, -1}},
		"downgraded":                {{held, EventAcquired, 1}, {converting, EventDowngraded, 0}, {released, EventReleased, -1}},
	} {
		h := &hold{}
		for i, s := range steps {
			h.state = s.state
			if got := h.count(s.kind); got != s.want {
				t.Errorf("%s: step %d, %v counts %d, want %d", name, i+1, s.kind, got, s.want)
			}
		}
	}
}
