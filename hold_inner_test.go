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
	"github.com/hasplock/hasp/event"
	"github.com/hasplock/hasp/internal/clock"
	"github.com/hasplock/hasp/internal/lifetime"
	"github.com/hasplock/hasp/memdriver"
)

// innerClient is a client whose parts a test inspects.
func innerClient(t *testing.T, d driver.Driver, o *Options) *Client {
	t.Helper()
	c, err := New(d, o)
	if err != nil {
		t.Fatal(err)
	}
	c.core.now = func() clock.Instant { // without what no bubble stops
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

// bareHold is a hold of "k" that was not granted.
func bareHold(c *core) *hold {
	return newHold(c, driver.RenewRequest{Claim: driver.Claim{Key: "k"}}, &settings{}, clock.System(), lifetime.Facts{})
}

// An unreachable lease is not renewed again.
func TestForgottenIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := innerClient(t, memdriver.New(), nil)
		h := bareHold(c.core)
		h.handles.known = make([]weakLease, 1)
		for range 2 {
			if _, ok := h.Request(); ok || !h.life.Forgotten() {
				t.Errorf("sent is %v, forgotten %v", ok, h.life.Forgotten())
			}
		}
	})
}

// A renewal of what was released meanwhile may be sent: nothing reads its answer.
func TestReleasedMeanwhileIsSent(t *testing.T) {
	h := bareHold(nil)
	h.life.Released()
	if _, ok := h.Request(); !ok || h.life.Forgotten() {
		t.Errorf("sent is %v, forgotten %v", ok, h.life.Forgotten())
	}
}

// The store goes on to tell the cohort of waiters, which knows the latest turn, also when the holder asks to be told.
func TestRenewalTellsTheCohort(t *testing.T) {
	h, told := bareHold(nil), false
	h.req.Wanted = func() { told = true }
	h.signals.wishCtx = t.Context()
	if h.renewal().Wanted(); !told {
		t.Error("a renewal replaced the cohort's request by the holder's")
	}
}

// A channel of Wanted that is asked for after the waiter has left is closed.
func TestWantedStays(t *testing.T) {
	h := bareHold(&core{})
	h.life.Want(true)
	h.life.Want(false)
	if h.wish().Err() == nil {
		t.Error("it is open")
	}
}

// A hold ends once: the observer gets one loss, and a later caller that ends it learns that it had ended.
func TestLossIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		c := innerClient(t, memdriver.New(), &Options{Observe: func(_ context.Context, e *event.Event) {
			if e.Kind == event.Lost {
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
		if ended, running := lease.h.finish(lifetime.Closed, ErrClosed); ended || running || !errors.Is(lease.Err(), ErrLost) {
			t.Errorf("Close ended it again: %v, %v, %v", ended, running, lease.Err())
		}
	})
}

// Once Done has returned a channel, somebody may wait for it, whoever else checks the lease.
func TestDonePins(t *testing.T) {
	h := bareHold(nil)
	for _, c := range []struct{ pin, pinned bool }{{false, false}, {true, true}, {false, true}} {
		if h.end(c.pin); h.handles.pinned != c.pinned {
			t.Errorf("after a look that pins: %v, it is pinned: %v", c.pin, h.handles.pinned)
		}
	}
}

// What Close left to a function of Do is released when the last of them has returned, and by nothing else.
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
				_ = inner.release(false, driver.EndFinished)
				_ = outer.release(false, driver.EndFinished)
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

// Where a lease was taken is where its turn was taken, outside of this package, and nothing when it is not recorded.
func TestTaken(t *testing.T) {
	if s := (&origin{}).String(); s != "" {
		t.Errorf("taken by nobody: %q", s)
	}
	if s := (*origin)(nil).String(); s != "" {
		t.Errorf("not recorded: %q", s)
	}
	c := &core{recordCallers: true}
	got := make(chan *origin)
	go func() { got <- c.origin() }() // the runtime began this one
	if s := (<-got).String(); strings.Contains(s, "runtime.goexit") || strings.Contains(s, "hasp.TestTaken") {
		t.Errorf("taken by %q", s)
	}
	for _, record := range []bool{false, true} {
		first, second := &origin{1}, &origin{2}
		l := &Lease{h: bareHold(&core{recordCallers: record}), taken: first}
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
		if err := lease.release(false, driver.EndFinished); !errors.Is(err, ErrClosed) || d.n != 1 {
			t.Errorf("%v, %d releases", err, d.n)
		}
	})
}
