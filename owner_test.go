// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp_test

import (
	"context"
	"fmt"
	"os/user"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/event"
)

// Break takes the key from one of its sharers, and from no other.
func TestBreakOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		s := newClient(t, store, nil).Semaphore("k", 3, nil)
		a, b, d := must(s.Lock(t.Context())), must(s.Lock(t.Context())), must(s.Lock(t.Context()))
		need(t, c.Operator().Break(t.Context(), "k", b.Owner()))
		err := c.Operator().Break(t.Context(), "k", b.Owner())
		wantIs(t, err, hasp.ErrNotHeld)
		failIf(t, !strings.Contains(err.Error(), "and 1 more"), "the error does not count the holders: %v", err)
		time.Sleep(ttl)
		wantIs(t, b.Err(), hasp.ErrLost)
		failIf(t, a.Err() != nil || d.Err() != nil, "the others: %v, %v", a.Err(), d.Err())
		next := must(s.TryLock(t.Context()))
		if next.Slot() != b.Slot() || !next.Abandoned() {
			t.Errorf("slot %d, was %d; Abandoned %v", next.Slot(), b.Slot(), next.Abandoned())
		}
		for _, l := range []*hasp.Lease{a, d, next} {
			release(t, l)
		}
		mustBeFree(t, store, "k")
	})
}

// An adopted lease keeps its mode, slot and fence, of whichever holder.
func TestAdoptOneOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		old := newClient(t, store, nil)
		noRenew := &hasp.LockOptions{NoRenew: true}
		must(old.Semaphore("k", 3, noRenew).Lock(t.Context()))
		was := must(old.Semaphore("k", 3, noRenew).Lock(t.Context()))
		c := newClient(t, store, nil)
		l := must(c.Operator().Adopt(t.Context(), "k", was.Owner(), reentrant))
		if l.Mode() != hasp.Shared || l.Slot() != 1 || l.Fence() != was.Fence() || l.Owner() != was.Owner() {
			t.Errorf("%v, slot %d, fence %d", l.Mode(), l.Slot(), l.Fence())
		}
		check(t, l.Downgrade(t.Context()))
		_, err := c.Mutex("k", nil).TryLock(l.Context(t.Context()))
		if wantIs(t, err, hasp.ErrHeld); !strings.Contains(err.Error(), "Downgrade") {
			t.Error(err)
		}
		release(t, must(c.Semaphore("k", 3, reentrant).Lock(l.Context(t.Context()))))
		time.Sleep(3 * ttl)
		if l.Err() != nil {
			t.Error(l.Err())
		}
		_, err = c.Operator().Adopt(t.Context(), "k", "", nil)
		wantIs(t, err, hasp.ErrNotHeld)
		release(t, l)
		mustBeFree(t, store, "k")
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, c := newMem(t)
		first := lock(t, c, "k", &hasp.LockOptions{TTL: time.Hour})
		second := make(chan *hasp.Lease)
		go func() {
			l, err := c.Mutex("k", nil).Lock(t.Context())
			check(t, err)
			second <- l
		}()
		synctest.Wait()
		op := newClient(t, &hooked{Driver: store, release: func(ctx context.Context, r driver.ReleaseRequest, next releaseFunc) error {
			failIf(t, r.TTL != time.Hour, "the owner may have asked for %v, not just for %v", time.Hour, r.TTL)
			return next(ctx, r)
		}}, nil)
		wantIs(t, op.Operator().Break(t.Context(), "k", ""), hasp.ErrNotHeld)
		need(t, op.Operator().Break(t.Context(), "k", first.Owner()))
		next := <-second
		wantIs(t, op.Operator().Break(t.Context(), "k", first.Owner()), hasp.ErrNotHeld)
		stopIf(t, next.Err() != nil, "the successor was broken: %v", next.Err())
		<-first.Done()
		wantIs(t, first.Err(), hasp.ErrLost)
		wantIs(t, first.Release(), hasp.ErrLost)
		if next.Err() != nil || next.Fence() <= first.Fence() {
			t.Fatal("the release of a broken lease hurt the successor")
		}
	})
}

func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		gone := driver.Claim{Key: "k", Owner: strings.Repeat("A", driver.OwnerLen), Label: `{"host":"h"}`}
		res, err := store.Try(t.Context(), driver.TryRequest{Claim: gone, TTL: ttl})
		need(t, err)
		c := newClient(t, store, nil)
		_, err = c.Operator().Adopt(t.Context(), "k", strings.Repeat("B", driver.OwnerLen), nil)
		wantIs(t, err, hasp.ErrNotHeld)
		_, err = c.Operator().Adopt(t.Context(), "free", gone.Owner, nil)
		wantIs(t, err, hasp.ErrNotHeld)
		lease, err := c.Operator().Adopt(t.Context(), "k", gone.Owner, nil)
		need(t, err)
		if lease.Fence() != res.Fence || lease.Owner() != gone.Owner {
			t.Fatalf("adopted fence %d of %d", lease.Fence(), res.Fence)
		}
		time.Sleep(5 * ttl)
		need(t, lease.Err())
		need(t, lease.Release())
		mustBeFree(t, store, "k")
	})
}

// Break of an owner that waits takes its place: it rejoins at the end.
func TestBreakOfAWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		holder := lock(t, newClient(t, store, nil), "k", nil)
		got := make(chan string, 2)
		for _, name := range []string{"first", "second"} {
			c := newClient(t, store, nil)
			go func() {
				l, err := c.Mutex("k", nil).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got <- name
				_ = l.Release()
			}()
			synctest.Wait()
		}
		op := newClient(t, store, nil)
		info, err := op.Operator().Inspect(t.Context(), "k")
		if err != nil || len(info.Queue) != 2 {
			t.Fatal(info, err)
		}
		need(t, op.Operator().Break(t.Context(), "k", info.Queue[0].Owner))
		failIf(t, holder.Err() != nil, "the holder was broken")
		time.Sleep(ttl) // it learns of that with its next sign of life
		release(t, holder)
		if name := <-got; name != "second" {
			t.Errorf("the %s waiter had the key first", name)
		}
		<-got
	})
}

// Break releases only an owner that the store shows, as it shows it.
func TestBreakAsksForNobodyElse(t *testing.T) {
	for _, c := range []struct {
		name  string
		info  driver.Info
		owner string
		label string // of the release; "": none
	}{
		{"a foreign holder", driver.Info{Held: true, Holder: driver.Holder{Foreign: true}}, "", ""},
		{"a foreign waiter", driver.Info{Held: true, Holder: driver.Holder{Owner: "A"}, Queue: []driver.Holder{{Foreign: true}}}, "", ""},
		{"a free key", driver.Info{Holder: driver.Holder{Owner: "A"}}, "A", ""},
		{"a free key of nobody", driver.Info{}, "", ""},
		{"another", driver.Info{Held: true, Holder: driver.Holder{Owner: "A"}, Queue: []driver.Holder{{Owner: "B"}}}, "C", ""},
		{"who holds and waits", driver.Info{Held: true, Holder: driver.Holder{Owner: "A", Label: "holds"}, Queue: []driver.Holder{{Owner: "A", Label: "waits"}}}, "A", "holds"},
		{"a waiter", driver.Info{Held: true, Holder: driver.Holder{Owner: "A"}, Queue: []driver.Holder{{Owner: "B", Label: "one"}, {Owner: "C", Label: "two"}}}, "B", "one"},
	} {
		released := ""
		d := &hooked{Driver: newStore()}
		d.release = func(_ context.Context, r driver.ReleaseRequest, _ releaseFunc) error {
			released = r.Label
			return nil
		}
		client := newClient(t, &inspecting{d, func(context.Context) (driver.Info, error) { return c.info, nil }}, nil)
		err := client.Operator().Break(t.Context(), "k", c.owner)
		if (err == nil) != (c.label != "") || released != c.label || (d.releases.Load() > 0) != (c.label != "") {
			t.Errorf("%s: %v, released %q", c.name, err, released)
		}
		if err != nil {
			wantIs(t, err, hasp.ErrNotHeld)
		}
	}
}

// Whoever acquired a lease may have been told of a mark, and repaired: released by another process, the lease takes the mark with it.
func TestAdoptedLeaseClearsTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		abandon(t, newClient(t, store, nil), nil)
		for _, want := range []bool{true, false} {
			l := lock(t, newClient(t, store, nil), "k", nil)
			failIf(t, l.Abandoned() != want, "abandoned: %v", l.Abandoned())
			release(t, must(newClient(t, store, nil).Operator().Adopt(t.Context(), "k", l.Owner(), nil)))
		}
	})
}

// An Adopt that fails has nothing to lose.
func TestAdoptThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		lease := lock(t, newClient(t, store, nil), "k", nil)
		d := &hooked{Driver: store}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			store.Lose("k") // since it was looked at
			next(ctx, rs, done)
		}
		c := newClient(t, d, &hasp.Options{Observe: func(_ context.Context, e *event.Event) { t.Errorf("%v of %q", e.Kind, e.Key) }})
		_, err := c.Operator().Adopt(t.Context(), "k", lease.Owner(), nil)
		wantIs(t, err, hasp.ErrNotHeld)
		synctest.Wait()
	})
}

// The answer to an Adopt that comes too late is no lease.
func TestAdoptThatIsAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		short := &hasp.LockOptions{TTL: 2 * time.Second, NoRenew: true}
		lease := lock(t, newClient(t, store, nil), "k", short)
		d := &hooked{Driver: store}
		d.renew = func(ctx context.Context, rs []driver.RenewRequest, done func(int, driver.Renewal), next renewFunc) {
			next(ctx, rs, func(i int, r driver.Renewal) { time.Sleep(2 * time.Second); done(i, r) })
		}
		c := newClient(t, d, nil)
		_, err := c.Operator().Adopt(t.Context(), "k", lease.Owner(), short)
		wantIs(t, err, hasp.ErrLost)
	})
}

// A label says when its acquisition began, whatever else it says.
func TestLabelSaysWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, newStore(), nil)
		for _, reason := range []string{"", "deploy", "2006-01-02T15:04:05.001Z", "\x00\"}"} {
			time.Sleep(time.Minute)
			lease := lock(t, c, "k", &hasp.LockOptions{Reason: reason})
			info, err := c.Operator().Inspect(t.Context(), "k")
			need(t, err)
			l, ok := driver.ParseLabel(info.Holder.Label)
			if !ok || l.Reason != reason || !l.Since.Equal(time.Now().Truncate(time.Millisecond)) {
				t.Errorf("%q: the label is %s", reason, info.Holder.Label)
			}
			release(t, lease)
		}
	})
}

// A label says who runs the process.
func TestLabelSaysWho(t *testing.T) {
	u, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	c := newClient(t, newStore(), nil)
	lock(t, c, "k", nil)
	info, err := c.Operator().Inspect(t.Context(), "k")
	need(t, err)
	l := info.Holder.Describe()
	failIf(t, l.User != u.Username, "the user is %q, must be %q", l.User, u.Username)

	// That of another process has its own reason and time.
	other := driver.Label{Host: "h", PID: 7, User: "u", Process: "p", Reason: "not this one", Since: time.Unix(1, 0)}
	lock(t, c, "other", &hasp.LockOptions{Label: &other, Reason: "mine"})
	info, err = c.Operator().Inspect(t.Context(), "other")
	need(t, err)
	l = info.Holder.Describe()
	failIf(t, time.Since(l.Since) > time.Hour || other.Reason != "not this one", "it began at %v, or the caller's label was changed", l.Since)
	other.Reason, other.Since = "mine", l.Since
	failIf(t, l != other, "the label is %+v", l)
}

// A mistake of the program panics in hasp's words, and leaves the client usable.
func TestMistakesPanicInWords(t *testing.T) {
	c := newClient(t, newStore(), nil)
	l := lock(t, c, "held", nil)
	var none context.Context
	run := func(context.Context, *hasp.Lease) error { return nil }
	ctx := t.Context()
	for name, mistake := range map[string]func(){
		"Lock(nil)":        func() { _, _ = c.Mutex("k", nil).Lock(none) },
		"TryLock(nil)":     func() { _, _ = c.Mutex("k", nil).TryLock(none) },
		"Locks.Lock(nil)":  func() { _, _ = mutexes(c, "k").Lock(none) },
		"Do(nil)":          func() { _ = c.Mutex("k", nil).Do(none, run) },
		"Do without f":     func() { _ = c.Mutex("k", nil).Do(ctx, nil) },
		"Lead without f":   func() { _ = c.Election("k", nil).Lead(ctx, nil) },
		"Leader(nil)":      func() { _, _ = c.Election("k", nil).Leader(none) },
		"Leaders(nil)":     func() { c.Election("k", nil).Leaders(none) },
		"Inspect(nil)":     func() { _, _ = c.Operator().Inspect(none, "k") },
		"Extend(nil)":      func() { _ = l.Extend(none, time.Minute) },
		"Context(nil)":     func() { l.Context(none) },
		"zero Mutex":       func() { _, _ = new(hasp.Mutex).Lock(ctx) },
		"zero Mutex's Do":  func() { _ = new(hasp.Mutex).Do(ctx, run) },
		"zero RWMutex":     func() { _, _ = new(hasp.RWMutex).RLock(ctx) },
		"zero Election":    func() { _, _ = new(hasp.Election).Leader(ctx) },
		"Locks of zeros":   func() { _, _ = hasp.Locks{new(hasp.Mutex)}.Lock(ctx) },
		"zero Client":      func() { new(hasp.Client).Mutex("k", nil) },
		"nil Client":       func() { (*hasp.Client)(nil).Mutex("k", nil) },
		"zero Lease":       func() { _ = new(hasp.Lease).Release() },
		"zero Lease's Err": func() { _ = new(hasp.Lease).Err() },
		"nil Lease":        func() { _ = (*hasp.Lease)(nil).Release() },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				said := fmt.Sprint(recover())
				failIf(t, !strings.HasPrefix(said, "hasp: "), "it says %s", said)
			}()
			mistake()
		})
	}
	release(t, l)
	release(t, lock(t, c, "k", nil))
}

// A copy of a Lease does not give back what the original still has; go vet finds it.
func TestCopyOfALeaseReleasesNothing(t *testing.T) {
	d := &hooked{Driver: newStore()}
	l := lock(t, newClient(t, d, nil), "k", nil)
	was := reflect.ValueOf(l).Elem()
	copied := reflect.New(was.Type()) // so that go vet does not see it
	copied.Elem().Set(was)
	func() {
		defer func() {
			said := fmt.Sprint(recover())
			failIf(t, !strings.HasPrefix(said, "hasp: a copy of a Lease"), "it says %s", said)
		}()
		_ = copied.Interface().(*hasp.Lease).Release()
	}()
	failIf(t, l.Err() != nil || d.releases.Load() != 0, "the original: %v; %d releases", l.Err(), d.releases.Load())
	release(t, l)
}

// What no engine can add to its clock is an error before the store is asked.
func TestTTLOfCenturies(t *testing.T) {
	d, c := newHooked(t)
	const centuries = 290 * 365 * 24 * time.Hour
	if _, err := c.Mutex("k", &hasp.LockOptions{TTL: centuries}).Lock(t.Context()); err == nil || d.tries.Load() != 0 {
		t.Errorf("Lock: %v after %d requests", err, d.tries.Load())
	}
	if err := lock(t, c, "k", nil).Extend(t.Context(), centuries); err == nil || d.renews.Load() != 0 {
		t.Errorf("Extend: %v after %d requests", err, d.renews.Load())
	}
}
