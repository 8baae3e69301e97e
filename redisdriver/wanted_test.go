// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// asks has a holder ask to be told of who joins, and returns what it is told.
func (w *world) asks(d *Driver, r contend.Owner) <-chan struct{} {
	w.Helper()
	told := make(chan struct{}, 10)
	r.Wanted = func() { told <- struct{}{} }
	w.renewed(d, r)
	return told
}

// listens opens the subscription of a driver.
func (w *world) listens(d *Driver) {
	w.Helper()
	r := ask("listens")
	w.grant(d, r)
	w.asks(d, r)
}

// heard waits for the news.
func (w *world) heard(told <-chan struct{}) {
	w.Helper()
	select {
	case <-told:
	case <-w.ctx.Done():
		w.Fatal("the holder was not told")
	}
}

// published is how many messages to holders f is the reason of. There is nobody else on the server.
func (w *world) published(f func()) (n int) {
	w.Helper()
	sub := w.admin.PSubscribe(w.ctx, wire.Sidecars+"*")
	defer sub.Close()
	_, err := sub.Receive(w.ctx)
	w.succeeds(err)
	f()
	w.do("PUBLISH", wire.Sidecars+"over", "over")
	for {
		switch text := w.came(sub); {
		case text == "over":
			return n
		case strings.HasPrefix(text, joinMark):
			n++
		}
	}
}

// written is how many commands f is the reason of, without those by which a subscription is checked now and then.
func (w *world) written(f func()) int {
	w.Helper()
	total := w.cost(f)
	calls := w.calls()
	return total - calls["publish"] - calls["ping"]
}

// A holder that does not ask costs nothing; one that does costs a command more with the renewal that asks,
// and the first waiter one message for each driver that asked.
func TestCostOfAsking(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	r := ask("k")
	w.hold(d, r)
	w.listens(d)
	plain := w.written(func() { w.renewed(d, r) })
	if n := w.published(func() { w.refuse(other, queued(ask("k"))) }); n != 0 {
		t.Errorf("nobody asked, and the first to wait sends %d messages", n)
	}
	w.do("DEL", d.names("k").queue, d.names("k").places)

	r.Wanted = func() {}
	for i, more := range []int{1, 0, 0} {
		if got := w.written(func() { w.renewed(d, r) }); got != plain+more {
			t.Errorf("renewal %d that asks costs %d commands, the others %d, want %d more", i, got, plain, more)
		}
	}
	for i, want := range []int{1, 0, 0} {
		if n := w.published(func() { w.refuse(other, queued(ask("k"))) }); n != want {
			t.Errorf("waiter %d sends %d messages, want %d", i, n, want)
		}
	}

	both := []*Driver{d, other, d, other}
	for i := range both {
		s := reader("s")
		w.grant(both[i], s)
		w.asks(both[i], s)
	}
	if n := w.published(func() { w.refuse(other, queued(ask("s"))) }); n != 2 {
		t.Errorf("holders in two processes cost %d messages", n)
	}
}

// What the grant says beside the inboxes stays: whether somebody did not finish, the fence of the last who had
// the key Exclusive, and the state; and whoever has the key next is told nothing.
func TestAskingChangesNothingElse(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).on(other).release(broken(a))
	if res := w.grant(d, b); !res.Abandoned {
		t.Fatalf("granted with %+v", res)
	}
	grant := func() string { return w.admin.Get(w.ctx, d.names("k").grant).Val() }
	before, was := w.inspect(d, "k"), grant()
	told := w.asks(d, b)
	if now, want := grant(), was+digits(before.Fence)+" "+d.inboxName(); now != want {
		t.Errorf("the grant is %q, want %q", now, want)
	}
	if after := w.inspect(d, "k"); fmt.Sprint(after.Holder, after.Fence) != fmt.Sprint(before.Holder, before.Fence) {
		t.Errorf("the holder was %+v, is %+v", before, after)
	}
	b.End = driver.EndUnused
	w.release(d, b) // the mark is on the key again
	c := ask("k")
	if res := w.grant(other, c); !res.Abandoned || res.Fence <= before.Fence {
		t.Errorf("after that: %+v, want the mark, and a fence above %d", res, before.Fence)
	}
	if n := w.published(func() { w.refuse(d, queued(ask("k"))) }); n != 0 || len(told) != 0 {
		t.Errorf("the next holder did not ask, and %d messages were sent", n)
	}

	// One who has the slot after it.
	s1, s2 := sharer("s", 1), sharer("s", 1)
	w.grant(d, s1)
	told = w.asks(d, s1)
	w.refuse(other, queued(s2))
	w.heard(told)
	w.on(d).release(s1).on(other).claim(s2)
	if n := w.published(func() { w.refuse(d, queued(sharer("s", 1))) }); n != 0 {
		t.Errorf("the next holder of the slot did not ask, and %d messages were sent", n)
	}

	// A lease that is over: its grant is still there.
	for _, state := range []any{"elsewhere", value(ask("x").Claim())} {
		dead := ask("dead")
		w.grant(d, dead)
		told := w.asks(d, dead)
		w.do("SET", "lock:dead", state)
		if n := w.published(func() { w.refuse(other, queued(ask("dead"))) }); n != 0 || len(told) != 0 {
			t.Errorf("%v has the key, and %d messages were sent", state, n)
		}
		w.do("DEL", "lock:dead", d.names("dead").queue, d.names("dead").places, d.names("dead").grant)
	}
}

// A renewal that asks leaves alone what is not the grant of a lease that stands.
func TestAskingOfNoGrant(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	w.listens(d)
	r := ask("k")
	w.grant(d, r)
	name := d.names("k").grant
	good := w.admin.Get(w.ctx, name).Val()
	for _, text := range []string{"", "x", strings.Replace(good, r.Owner, ask("").Owner, 1), good[:58] + "F", good[:58] + "c " + strings.Repeat("0", 16) + " 1 place"} {
		w.do("SET", name, text)
		w.asks(d, r)
		if got := w.admin.Get(w.ctx, name).Val(); got != text {
			t.Errorf("%q is now %q", text, got)
		}
	}
	w.do("DEL", name)
	w.do("HSET", name, "a", "b")
	w.asks(d, r)
	w.do("DEL", name)
	w.asks(d, r)
	if n := w.admin.Exists(w.ctx, name).Val(); n != 0 {
		t.Error("it made a grant")
	}
}

// However many processes come to share a key, its grant names the last 32 that asked.
func TestInboxesAreBounded(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	r := reader("k")
	w.grant(d, r)
	w.asks(d, r)
	grant := func() []string { return strings.Fields(w.admin.Get(w.ctx, d.names("k").grant).Val()) }
	all := grant()
	for i := range 40 {
		of := w.driver(nil)
		all = append(all, of.inboxName())
		call := of.leaseJobs([]driver.RenewRequest{{Claim: r.Claim(), TTL: r.TTL, Wanted: func() {}}}, []int{0}, of.inboxName(), nil)[0].call
		if _, err := of.send.Do(w.ctx, call); err != nil {
			t.Fatal(err)
		}
		if got := grant(); len(got) != min(7+i, 37) || got[5] != of.inboxName() {
			t.Fatalf("after %d: %d parts, %q", i, len(got), got)
		}
	}
	told := w.asks(d, r) // it had been forgotten
	w.refuse(w.driver(nil), queued(ask("k")))
	w.heard(told)
}

// Who joined while the subscription did not stand is in the answer to the next renewal; and whoever joined between a renewal
// that asked before it stood and that moment is told of once it does.
func TestJoinsBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var closes atomic.Bool
	d := w.deaf(&closes)
	other := w.driver(nil)
	r, waiter := ask("k"), ask("k")
	w.grant(d, r)
	told := w.asks(d, r)
	in := d.boxes.Open[-1]
	cut := func() {
		t.Helper()
		closes.Store(true)
		w.do("CLIENT", "KILL", "TYPE", "pubsub")
		w.until("it is gone", func() bool { up, _ := in.Up(); return !up })
	}
	cut()
	closes.Store(false)
	w.until("it stands again by itself, since a holder wants to hear", func() bool { up, _ := in.Up(); return up })
	cut()
	w.refuse(other, queued(waiter))
	r.Wanted = func() { t.Error("it was told") }
	if answer := w.answers(d, r)[0]; answer.Err != nil || !answer.Wanted || len(told) != 0 {
		t.Errorf("the renewal answers %+v, told %d times", answer, len(told))
	}
	r.Wanted = nil
	w.on(d).renew(r).on(other).release(waiter)

	// The answer says that nobody waits, and then somebody does, before the subscription stands.
	w.until("the subscription comes back while the renewal is under way", func() bool {
		waiter = ask("k")
		later := make(chan struct{}, 10)
		r.Wanted = func() { later <- struct{}{} }
		contend.Renew(w.ctx, d, []contend.Owner{r}, func(_ int, a driver.Renewal) {
			failIf(t, a.Err != nil || a.Wanted, "the renewal answers %+v", a)
			w.refuse(other, queued(waiter))
			closes.Store(false)
		})
		w.release(other, waiter)
		if up, _ := in.Up(); up && len(later) > 0 {
			return true
		}
		cut() // an attempt that had begun before failed
		return false
	})

	// The attempt that the renewal waits for fails, and a waiter joins before a later one succeeds.
	cut()
	told = w.asks(d, r)
	w.refuse(other, queued(ask("k")))
	closes.Store(false)
	w.heard(told)
}

// Without the rights that a message needs a lease is renewed, and joined, as ever, and renewals say who waits.
func TestAskingWithoutTheRights(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ who, change string }{{"holder", "-subscribe"}, {"holder", "resetchannels"}, {"waiter", "-publish"}, {"waiter", "resetchannels"}} {
		t.Run(c.who+" "+c.change, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			bob, d := w.as("bob", c.change), w.driver(nil)
			holder, waiter := d, bob
			if c.who == "holder" {
				holder, waiter = bob, d
			}
			r, b := ask("k"), ask("k")
			w.grant(holder, r)
			told := w.asks(holder, r)
			w.refuse(waiter, queued(b))
			if answer := w.answers(holder, r)[0]; answer.Err != nil || !answer.Wanted || len(told) != 0 {
				t.Errorf("the renewal answers %+v, told %d times", answer, len(told))
			}
		})
	}
}

// Anybody who may publish can say that a key is wanted, and nothing else by that. What is not about a lease that asked, or
// about an earlier one, is nothing.
func TestForgedJoins(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	r := ask("k")
	fence := w.grant(d, r).Fence
	told := w.asks(d, r)
	quiet := ask("quiet")
	w.hold(d, quiet)
	for _, text := range []string{
		"*", "*x", "*" + digits(fence), "*" + digits(fence) + "lock:", "*" + digits(fence) + "lock:kk", "*" + digits(fence) + "k",
		digits(fence) + "lock:k", "+5 *" + digits(fence) + "lock:k", "*" + digits(fence-1) + "lock:k", "*" + digits(fence)[1:] + "lock:k",
		"*-" + digits(fence)[1:] + "lock:k", "*" + strings.Repeat("9", 1000), "*" + digits(maxFence) + "lock:quiet",
	} {
		w.do("PUBLISH", d.inboxName(), text)
	}
	w.do("PUBLISH", brokenChannel, "*"+digits(fence)+"lock:k")
	last := ask("last")
	w.grant(d, last)
	passed := w.asks(d, last)
	w.refuse(w.driver(nil), queued(ask("last")))
	w.heard(passed)
	failIf(t, len(told) != 0, "it was told %d times", len(told))
	w.do("PUBLISH", d.inboxName(), "*"+digits(fence)+"lock:k")
	w.heard(told)
	w.renewed(d, r)
}

// What is released, lost, or asks no more is noted no more.
func TestAskersAreForgotten(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	_ = told(d)
	noted := func(want int) {
		t.Helper()
		d.leases.mu.Lock()
		defer d.leases.mu.Unlock()
		n := 0
		for _, all := range d.leases.askers {
			n += len(all)
		}
		stopIf(t, n != want || want == 0 && len(d.leases.askers) != 0, "%d are noted, want %d", n, want)
	}
	released, broke, gone, stops := reader("k"), reader("k"), ask("gone"), reader("k")
	for _, r := range []contend.Owner{released, broke, gone, stops} {
		w.grant(d, r)
		w.asks(d, r)
		w.asks(d, r) // is noted once
	}
	noted(4)
	w.renewed(d, stops)
	noted(3)
	w.release(d, released)
	noted(2)
	w.release(other, broken(broke))
	w.until("the loss is heard of", func() bool { d.leases.mu.Lock(); defer d.leases.mu.Unlock(); return len(d.leases.askers["k"]) == 0 })
	noted(1)
	w.do("DEL", "lock:gone")
	if err := w.renew(d, gone)[0]; err == nil {
		t.Error("one that is gone was renewed")
	}
	noted(0)

	l := leases{all: map[driver.ID]lease{}, askers: map[string][]asker{}}
	for i := range 1000 {
		l.renewed(&driver.RenewRequest{Claim: driver.Claim{Key: fmt.Sprint(i)}, TTL: -time.Second, Wanted: func() {}})
	}
	if n := len(l.askers); n > 110 {
		t.Errorf("%d that were never released are noted", n)
	}
}
