// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// loss is what a Tell reported.
type loss struct {
	id    driver.ID
	fence uint64
}

// told is what d reports from now on.
func told(d *Driver) <-chan loss {
	ch := make(chan loss, 100)
	d.Tell(func(id driver.ID, fence uint64) { ch <- loss{id, fence} })
	return ch
}

// comes checks the next that is reported. What must not be reported is made to happen before it.
func (w *world) comes(losses <-chan loss, want loss) {
	w.Helper()
	select {
	case got := <-losses:
		failIf(w, got != want, "reported is %+v, want %+v", got, want)
	case <-w.ctx.Done():
		w.Fatalf("nothing is reported, want %+v", want)
	}
}

// renewed renews leases and places that stand.
func (w *world) renewed(d *Driver, rs ...contend.Owner) {
	w.Helper()
	for i, err := range w.renew(d, rs...) {
		stopIf(w, err != nil, "Renew of number %d: %v", i, err)
	}
}

// hold has d hold and renew a key, and returns what its loss is.
func (w *world) hold(d *Driver, r contend.Owner) loss {
	w.Helper()
	fence := w.grant(d, r).Fence
	w.renewed(d, r)
	return loss{r.Claim().ID(), fence}
}

// broken is r as somebody else releases it.
func broken(r contend.Owner) contend.Owner {
	r.End = driver.EndUnfinished
	return r
}

// listeners counts the connections that hear of broken leases.
func (w *world) listeners() int64 {
	w.Helper()
	return w.admin.PubSubNumSub(w.ctx, brokenChannel).Val()[brokenChannel]
}

// What another client releases is reported, of every mode and on every kind of server; what
// this client released, or never had, is not.
func TestTell(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) (w *world, d, other *Driver){
		"plain": func(t *testing.T) (w *world, d, other *Driver) {
			w = newWorld(t)
			return w, w.driver(nil), w.driver(nil)
		},
		"node": func(t *testing.T) (w *world, d, other *Driver) {
			w = newWorld(t)
			d = w.node()
			w.admit(d)
			return w, d, w.node()
		},
		"cluster": func(t *testing.T) (w *world, d, other *Driver) {
			w = newCluster(t)
			return w, w.over(w.clusterClient(nil), nil), w.over(w.clusterClient(nil), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, d, other := open(t)
			losses := told(d)
			for _, r := range []contend.Owner{ask("k"), reader("r"), sharer("s", 2), ask("a \x00}\xff")} {
				r.Label = "a \x00\xff"
				w.hold(d, ask("stands"+r.Key))
				own := ask("own")
				w.hold(d, own)
				w.release(d, own) // without Settled
				again := ask("again")
				w.hold(d, again)
				ended, cancel := context.WithCancel(w.ctx)
				cancel()
				_ = contend.Release(ended, d, again) // not sent
				_ = contend.Release(w.ctx, d, again)
				others := ask("others")
				w.on(other).grant(others).on(d).release(broken(others))

				want := w.hold(d, r)
				if r.Mode == driver.Shared { // one beside it that is another's
					beside := r
					beside.Owner = ask("").Owner
					w.on(other).grant(beside).release(beside)
				}
				w.release(other, broken(r))
				w.comes(losses, want)
				w.renewsNothing(d, r)
			}
		})
	}
}

// What an owner, or whoever cleans up after it, releases itself is published to nobody: nor does
// a place, or a lease that was never claimed, have a holder that wants to hear of it.
func TestOwnReleasesAreNotPublished(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	a, b, c := ask("k"), ask("k"), ask("k")
	w.on(d).grant(a).on(other).join(b, c)
	quiet := func(what string, f func()) {
		t.Helper()
		w.do("CONFIG", "RESETSTAT")
		f()
		if n := w.calls()["publish"]; n != 0 {
			t.Errorf("%s: %d messages", what, n)
		}
	}
	quiet("a place that is broken", func() { w.release(d, broken(c)) })
	quiet("one's own, unsettled", func() { w.release(d, a) }) // to b, who polls
	quiet("an unanswered Try", func() {
		b.End = driver.EndUnused
		w.release(d, b)
	})
	e := ask("e")
	e.Settled = true
	w.grant(d, e)
	quiet("one's own, unfinished", func() { w.release(d, broken(e)) })
	f := reader("f")
	w.on(d).grant(f).do("CONFIG", "RESETSTAT").on(other).release(broken(f))
	if n := w.calls()["publish"]; n != 1 {
		t.Errorf("one that is broken: %d messages", n)
	}
}

// A lock that is held briefly costs neither a command nor a connection more.
func TestBriefLocksDoNotListen(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	c := newClient(t, d)
	m := c.Mutex("k", nil)
	pair := func() {
		lease, err := m.Lock(w.ctx)
		if err == nil {
			err = lease.Release()
		}
		must(t, err)
	}
	pair() // the script is loaded, and the mark is there
	if n := w.cost(pair); n != 10 {
		t.Errorf("a lock and its release cost %d commands, those of TestShortWays are 10", n)
	}
	if n := w.calls()["subscribe"]; n != 0 || w.listeners() != 0 || len(d.boxes.Open) != 0 {
		t.Errorf("%d subscriptions, %d listen", n, w.listeners())
	}
	failIf(t, len(d.leases.all) != 0, "noted are still %v", d.leases.all)
	r := ask("long")
	w.hold(d, r)
	if n := w.listeners(); n != 1 {
		t.Errorf("after a Renew %d listen", n)
	}
	w.on(d).do("CONFIG", "RESETSTAT").renew(r)
	if n := w.calls()["subscribe"]; n != 0 {
		t.Errorf("the second Renew subscribed %d times more", n)
	}
}

// newClient is hasp on a driver.
func newClient(t *testing.T, d driver.Driver) *hasp.Client {
	t.Helper()
	c, err := hasp.New(d, nil)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Anybody who may publish can say anything. What is not about exactly this lease, or about an
// earlier one of its owner, ends nothing.
func TestForgedLosses(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	losses := told(d)
	r := ask("k")
	want := w.hold(d, r)
	message := func(fence string, value, lock string) string {
		return fmt.Sprintf("%s%03d%s%s", fence, len(value), value, lock)
	}
	fence, v := digits(want.fence), value(r.Claim())
	for _, text := range []string{
		"", "x", fence, fence + "1", fence[:15], strings.Repeat("9", 1000),
		message(fence, v, ""), message(fence, v, "lock:"), message(fence, v, "lock:kk"), message(fence, v, "k"), message(fence, v, "other:k"),
		message(fence, r.Owner+" other", "lock:k"), message(fence, ask("k").Owner+" "+r.Label, "lock:k"), message(fence, r.Owner, "lock:k"),
		message(digits(want.fence-1), v, "lock:k"), message(digits(0), v, "lock:k"),
		message(fence[:15]+"x", v, "lock:k"), message("-"+fence[1:], v, "lock:k"), message(fence[1:], v, "lock:k"), message("0"+fence, v, "lock:k"),
		fence + "+5 " + message("", v, "lock:k"), fence + "999" + v + "lock:k", fence + "-01" + v + "lock:k",
		message("", v, "lock:k"),
	} {
		w.do("PUBLISH", brokenChannel, text)
	}
	w.on(d).do("PUBLISH", d.inboxName(), message(fence, v, "lock:k")).renew(r).on(w.driver(nil)).
		release(broken(r))
	w.comes(losses, want)

	r = ask("k")
	want = w.hold(d, r)
	w.do("PUBLISH", brokenChannel, message(digits(want.fence), value(r.Claim()), "lock:k"))
	w.comes(losses, want) // the doc says so
	w.do("PUBLISH", brokenChannel, message(digits(want.fence), value(r.Claim()), "lock:k"))
	next := w.hold(d, ask("next")) // told once
	w.do("PUBLISH", brokenChannel, message(digits(next.fence), next.id.Owner+" "+next.id.Label, "lock:next"))
	w.comes(losses, next)
}

// An owner that was broken, and holds the key again, has a larger fence: late news of its
// earlier lease ends nothing.
func TestLateLossSparesTheNextLease(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	losses := told(d)
	sub := w.admin.Subscribe(w.ctx, brokenChannel)
	t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(w.ctx)
	w.succeeds(err)
	r := ask("k")
	first := w.hold(d, r)
	w.release(other, broken(r))
	late := w.came(sub)
	w.comes(losses, first)
	w.do("DEL", d.names("k").gone(r.Owner)) // ten seconds later
	second := w.hold(d, r)
	stopIf(t, second.fence <= first.fence, "the fence is %d after %d", second.fence, first.fence)
	w.on(other).do("PUBLISH", brokenChannel, late).release(broken(r))
	w.comes(losses, second)

	// One that was adopted may not know its fence: the core compares it.
	adopted := ask("adopted")
	fence := w.grant(other, adopted).Fence
	w.on(d).renew(adopted).on(w.driver(nil)).release(broken(adopted))
	w.comes(losses, loss{adopted.Claim().ID(), fence})
}

// A lease whose grant is gone has no fence to name. It is broken all the same.
func TestBreakWithoutGrant(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	losses := told(d)
	r := ask("k")
	w.hold(d, r)
	w.on(other).do("DEL", d.names("k").grant).release(broken(r))
	w.renewsNothing(d, r)
	next := ask("k")
	want := w.hold(d, next)
	w.release(other, broken(next))
	w.comes(losses, want)
}

// Without the right to publish, or to subscribe, a lease is broken as well, and its renewal says so.
func TestBreakWithoutTheRights(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"-publish", "resetchannels", "-subscribe"} {
		t.Run(change, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			bob, d := w.as("bob", change), w.driver(nil)
			losses := told(d)
			r := ask("k")
			want := w.hold(d, r)
			w.release(bob, broken(r))
			if change == "-subscribe" {
				w.comes(losses, want)
			}
			w.renewsNothing(d, r)

			_ = told(bob)
			mine := ask("mine")
			w.hold(bob, mine) // waits for no subscription that will not come
			w.release(d, broken(mine))
			w.renewsNothing(bob, mine)
		})
	}
}

// A waiter's connection hears of broken leases, too: nobody may want to know.
func TestNobodyWantsToKnow(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	a, b, r := ask("k"), ask("k"), ask("r")
	w.grant(other, a)
	hints := w.wait(d, b)
	w.hold(d, r)
	w.on(other).release(broken(r), a).hint(hints) // comes behind it
	w.grant(d, queued(b))
}

// A subscription that was lost comes back with the renewals, and claims nothing of what it missed.
func TestListensAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var closes atomic.Bool
	closes.Store(true)
	d := w.deaf(&closes)
	other := w.driver(nil)
	losses := told(d)
	r, missed := ask("k"), ask("missed")
	var conn string
	back := func() {
		t.Helper()
		in := d.boxes.Open[-1]
		w.until("it listens again", func() bool {
			w.renewed(d, r)
			now := w.admin.Do(w.ctx, "CLIENT", "LIST", "TYPE", "pubsub").String()
			id := regexp.MustCompile(`id=\d+`).FindString(now)
			if up, _ := in.Up(); !up || id == "" || id == conn { // the one that was killed may not have noticed
				return false
			}
			conn = id
			return true
		})
	}
	want := w.hold(d, r) // the first attempt fails
	w.hold(d, missed)
	w.release(other, broken(missed))
	if n := w.listeners(); n != 0 {
		t.Fatalf("%d listen", n)
	}
	closes.Store(false)
	back()
	closes.Store(true) // until it has noticed: the client itself connects again before that
	w.do("CLIENT", "KILL", "TYPE", "pubsub")
	w.until("it listens no more", func() bool { up, _ := d.boxes.Open[-1].Up(); return !up })
	closes.Store(false)
	back()
	w.release(other, broken(r))
	w.comes(losses, want)
	w.renewsNothing(d, missed)
}

// Leases that were neither released nor renewed are forgotten at last.
func TestForgottenLeasesAreNotNoted(t *testing.T) {
	l := leases{all: map[driver.ID]lease{}}
	for i := range 10_000 {
		l.note(driver.ID{Key: fmt.Sprint(i)}, 1, -time.Second, nil)
		l.note(driver.ID{Key: "stands"}, 7, time.Hour, nil)
	}
	if n := len(l.all); n > 110 {
		t.Errorf("%d are noted", n)
	}
	for _, want := range []bool{true, false} {
		if noted, _ := l.drop(driver.ID{Key: "stands"}); noted != want {
			t.Error("one that stands is not noted, or noted for ever")
		}
	}
	for i := range 1000 {
		l.note(driver.ID{Key: fmt.Sprint(i)}, 1, time.Hour, nil)
	}
	if n := len(l.all); n != 1000 {
		t.Errorf("of 1000 leases that stand %d are noted", n)
	}
}
