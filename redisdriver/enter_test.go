// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// enters is an owner that may enter.
func enters(key string) contend.Owner {
	r := ask(key)
	r.Enters, r.Entered = true, true
	return r
}

// handed has d's owner b handed the key by a, and returns what the hint said.
func (w *world) handed(d *Driver, a, b contend.Owner) driver.Handover {
	w.Helper()
	hints := w.wait(d, b)
	w.release(d, a)
	to := w.hint(hints)
	stopIf(w, to.Fence == 0, "the hint did not say what was handed over")
	return to
}

// What the hint says is what the store has.
func TestHandoverSaysWhatTheStoreHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, end := range []driver.End{driver.EndFinished, driver.EndUnfinished} {
		for _, key := range []string{"k", "a}{b\x00 \xff"} {
			d := w.driver(nil)
			a, b := ask(key), enters(key)
			w.grant(d, a)
			a.End = end
			before := w.micros()
			begun := time.Now()
			to := w.handed(d, a, b)
			if after := w.micros(); to.At < time.Duration(before)*time.Microsecond || to.At > time.Duration(after)*time.Microsecond {
				t.Errorf("At is %d, between %d and %d", to.At.Microseconds(), before, after)
			}
			info := w.inspect(d, key)
			failIf(t, info.Holder.Owner != b.Owner || info.Fence != to.Fence || to.Abandoned != (end == driver.EndUnfinished), "the hint says %+v, the store %+v", to, info)
			if left := w.admin.PTTL(w.ctx, d.names(key).lock).Val(); !lasts(left, to.TTL, begun) {
				t.Errorf("it lasts %v, the hint says %v", left, to.TTL)
			}
			w.release(d, b)
		}
	}
}

// A copy of the message that finds nobody waiting takes no key from one that may have entered; a message to one
// that never waited here gives the key on.
func TestCopyOfAHandover(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	a, b, c := ask("k"), enters("k"), ask("k")
	w.grant(d, a)
	sub := w.news(d)
	ctx, cancel := context.WithCancel(w.ctx)
	hints, err := contend.Watch(ctx, d, b)
	w.succeeds(err)
	w.on(d).join(b).on(other).wait(c).on(d).release(a)
	said := w.hint(hints)
	message := ""
	for !strings.HasPrefix(message, "=") {
		message = w.came(sub)
	}
	in := d.boxes.Open[-1]
	in.deliver(strings.Replace(message, " 600000 ", " 700000 ", 1))
	in.deliver("=9" + message[2:])
	if again := w.hint(hints); again != (driver.Handover{}) || said.TTL != d.delay.most {
		t.Errorf("the message said %+v, its copies %+v", said, again)
	}
	cancel() // the wait is over, since it entered
	w.until("nobody waits here", in.unwatched)
	answered := func() bool { return len(d.giving) == 0 }
	in.deliver(message)
	w.until("it was answered", answered)
	w.on(d).has(b).release(b).has(c)
	d.leases.drop(b.Claim().ID())
	in.deliver(message) // it was released: there is nothing to give back
	w.has(d, c)
	elsewhere := w.driver(nil)
	w.wait(elsewhere, enters("k")) // opens its subscription
	elsewhere.boxes.Open[-1].deliver("=" + fmt.Sprintf("%016d %016d 500 00 ", w.micros(), w.micros()) + fmt.Sprintf("%03d%slock:k", len(value(c.Claim())), value(c.Claim())))
	w.until("the key went on", func() bool { return w.holder(d, "k") != c.Owner })
}

// A handover is noted before its hint is sent: a waiter that enters, finishes and releases at once leaves no note behind.
func TestHandoverIsNotedFirst(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a, b := ask("k"), enters("k")
	w.grant(d, a)
	w.watch(d, b)
	w.refuse(d, queued(b))
	in := d.boxes.Open[-1]
	hints := make(chan driver.Hint) // without room: to send the hint takes a waiter that receives it
	in.mu.Lock()
	in.watchers[b.Owner][0].hint = hints
	in.mu.Unlock()
	w.release(d, a)
	w.until("the handover is noted, and the hint is still to come", func() bool {
		d.leases.mu.Lock()
		defer d.leases.mu.Unlock()
		return d.leases.all[b.Claim().ID()].fence != 0
	})
	if to := w.hint(hints); to.Fence == 0 {
		t.Error("the hint did not say what was handed over")
	}
	w.release(d, b)
	if noted, _ := d.leases.drop(b.Claim().ID()); noted {
		t.Error("the note of a released lease stays")
	}
}

// After the end of a handover the store does not know whether the waiter entered, unless the waiter says so: with a Try, or a Release as EndUnused.
func TestAfterTheEndOfAHandover(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says func(w *world, d *Driver, b contend.Owner)
		want bool
	}{
		"it says nothing":    {func(*world, *Driver, contend.Owner) {}, true},
		"it tries":           {func(w *world, d *Driver, b contend.Owner) { w.grant(d, queued(b)); w.release(d, b) }, false},
		"it releases unused": {func(w *world, d *Driver, b contend.Owner) { b.End = driver.EndUnused; w.release(d, b) }, false},
		"it releases": {func(w *world, d *Driver, b contend.Owner) {
			w.releasesNothing(d, b)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, d := newPlain(t)
			hasty(d)
			a, b, next := ask("k"), enters("k"), ask("k")
			b.TTL = 50 * time.Millisecond // and so is its claim time
			w.grant(d, a)
			w.handed(d, a, b)
			w.until("the handover is over", func() bool { return w.admin.Exists(w.ctx, d.names("k").lock).Val() == 0 })
			b.TTL = ask("k").TTL
			c.says(w, d, b)
			if res := w.grant(w.driver(nil), next); res.Abandoned != c.want {
				t.Errorf("Abandoned is %v, want %v", res.Abandoned, c.want)
			}
			w.release(d, next)
			if left := w.admin.Exists(w.ctx, d.names("k").lock).Val(); left != 0 {
				t.Error("the key is not free")
			}
		})
	}
}

// Where a message may not come, or replicas must confirm, or fences are proposed, nobody is told that it may enter.
func TestWhoMayNotEnter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	node, muted := w.node(), w.driver(nil)
	w.admit(node)
	muted.muted.Store(true)
	for name, c := range map[string]struct {
		d       *Driver
		watches bool
		want    bool
	}{
		"as it is":     {w.driver(nil), true, true},
		"no watch":     {w.driver(nil), false, false},
		"replicas":     {w.driver(&Options{Replicas: 1}), true, false},
		"a node":       {node, true, false},
		"does not ask": {w.driver(nil), true, false},
	} {
		a, b := ask(name), enters(name)
		b.Enters = name != "does not ask"
		holder := w.driver(nil)
		if name == "a node" {
			holder = node
		}
		w.grant(holder, a)
		if c.watches {
			w.watch(c.d, b)
		}
		res := w.refuse(c.d, queued(b))
		place := w.admin.HGet(w.ctx, c.d.names(name).places, b.Owner).Val()
		if got := strings.Contains(strings.Fields(place)[3], "E"); got != c.want || res.At > 0 != c.want || seen(c.d).Traits().Tells.Has(driver.TellsHandover) != c.want && c.watches && b.Enters {
			t.Errorf("%s: the place is %q, the refusal of %v, the trait %v", name, place, res.At, c.d.Traits().Tells)
		}
	}
}

// A claim renews many leases that entered at once, beside one that asks to be told of who joins, and leaves
// alone what it does not concern.
func TestClaimsOfManyLeases(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	var entered []contend.Owner
	for i := range 3 {
		key := fmt.Sprint("k", i)
		a, b := ask(key), enters(key)
		w.grant(d, a)
		if i == 2 {
			a.End = driver.EndUnfinished
		}
		w.handed(d, a, b)
		entered = append(entered, b)
	}
	plain := ask("plain")
	w.grant(d, plain)
	told := make(chan struct{}, 1)
	entered[1].Wanted = func() { told <- struct{}{} }
	begun := time.Now()
	w.renewed(d, append(entered, plain)...)
	for i, b := range entered {
		grant := w.admin.Get(w.ctx, d.names(b.Key).grant).Val()
		if want := map[bool]string{true: "h!", false: "h"}[i == 2]; !strings.HasPrefix(grant[58:], want) {
			t.Errorf("the grant of %q is %q, want state %q", b.Key, grant, want)
		}
		if left := w.admin.PTTL(w.ctx, d.names(b.Key).lock).Val(); !lasts(left, b.TTL, begun) {
			t.Errorf("%q lasts %v", b.Key, left)
		}
	}
	w.refuse(w.driver(nil), queued(ask("k1")))
	w.heard(told)
	again := w.admin.Get(w.ctx, d.names("k2").grant).Val()
	w.renew(d, entered...)
	if now := w.admin.Get(w.ctx, d.names("k2").grant).Val(); now != again {
		t.Errorf("a second claim makes %q of %q", now, again)
	}
}

// A server that is full hands the key over, and the hint says so; one that has no fence to give sends a plain hint, and
// the key stays where it is.
func TestFullServerHandsOver(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a, b := ask("k"), enters("k")
	w.grant(d, a)
	hints := w.wait(d, b)
	off := w.full()
	w.release(d, a)
	to := w.hint(hints)
	if info := w.inspect(d, "k"); to.Fence == 0 || info.Fence != to.Fence || info.Holder.Owner != b.Owner {
		t.Errorf("the hint says %+v, the store %+v", to, info)
	}
	w.renewed(d, b)
	off()
	w.release(d, b)

	next, last := ask("k"), enters("k")
	w.grant(d, next)
	hints = w.wait(d, last)
	w.do("SET", "hasp.fence", "9007199254740991")
	w.succeeds(contend.Release(w.ctx, d, next))
	if to := w.hint(hints); to.Fence != 0 {
		t.Errorf("handed over without a fence: %+v", to)
	}
	if info := w.inspect(d, "k"); info.Held || info.Waiters != 1 {
		t.Errorf("the key is handed over without a fence: %+v", info)
	}
}

// A refusal without the queue names a keeper, and its inbox gets the news of who joins without the mark.
func TestKeeperInTheGrant(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	a := ask("k")
	w.grant(d, a)
	w.listens(d)
	failIf(t, w.refuse(other, ask("k")).Keeps, "a holder that did not ask keeps")
	told := make(chan struct{}, 10)
	a.Wanted, a.Keeps = func() { told <- struct{}{} }, true
	w.renewed(d, a)
	grant := w.admin.Get(w.ctx, d.names("k").grant).Val()
	failIf(t, !strings.HasSuffix(grant, " ~"+d.inboxName()), "the grant is %q, and has no keeper", grant)
	failIf(t, !w.refuse(other, ask("k")).Keeps, "no keeper is named")
	failIf(t, w.refuse(other, queued(ask("k"))).Keeps, "one who joins is told whom to ask")
	w.heard(told)
}

// A place that came back after a handover is not one that may enter until its owner asks, whatever sign of life was still under
// way: its late Release would end another handover as if it were its own.
func TestPlaceThatCameBackDoesNotEnter(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	hasty(d)
	a, b := ask("k"), enters("k")
	b.TTL = 50 * time.Millisecond
	w.grant(d, a)
	w.handed(d, a, b)
	w.until("the handover is over", func() bool { return w.admin.Exists(w.ctx, d.names("k").lock).Val() == 0 })
	other := ask("k")
	w.grant(w.driver(nil), other)
	entersNow := func() bool {
		place := w.admin.HGet(w.ctx, d.names("k").places, b.Owner).Val()
		return strings.Contains(strings.Fields(place)[3], "E")
	}
	if w.sign(d, queued(b)); entersNow() {
		t.Error("a sign of life has it enter")
	}
	if w.refuse(d, queued(b)); !entersNow() {
		t.Error("its Try does not have it enter")
	}
}

// A claim is of the handover whose fence it names, and of no other of its place.
func TestClaimOfAnotherHandover(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a, b := ask("k"), enters("k")
	w.grant(d, a)
	to := w.handed(d, a, b)
	late := b
	late.Fence = to.Fence - 1
	w.renewsNothing(d, late)
	if left := w.admin.PTTL(w.ctx, d.names("k").lock).Val(); left > to.TTL {
		t.Errorf("it prolonged the lease to %v", left)
	}
	b.Fence = to.Fence
	w.on(d).renew(b).release(b)
}

// A holder that asks in another way is named once, as it asked last; one that converts keeps nothing.
func TestKeeperAsksAnew(t *testing.T) {
	t.Parallel()
	w, d, other := newTwo(t)
	a := ask("k")
	w.grant(d, a)
	w.listens(d)
	a.Wanted = func() {}
	for _, keeps := range []bool{true, false, true, true} {
		a.Keeps = keeps
		w.renewed(d, a)
		grant := w.admin.Get(w.ctx, d.names("k").grant).Val()
		if n := strings.Count(grant, d.inboxName()); n != 1 || w.refuse(other, ask("k")).Keeps != keeps {
			t.Errorf("Keeps %v: the grant is %q", keeps, grant)
		}
	}
	w.convert(d, a)
	failIf(t, w.refuse(other, ask("k")).Keeps, "what is shared is kept")
}

// A refusal is read also where the key has no fence that is known.
func TestRefusalWithoutAFence(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a, b := sharer("k", 3), sharer("k", 3)
	a.TTL = 50 * time.Millisecond
	w.on(d).grant(a, b).do("DEL", d.names("k").grant)
	over := w.micros() + uint64(a.TTL.Microseconds())
	w.until("the first lease is over", func() bool { return w.micros() > over })
	for range 3 {
		w.refuse(w.driver(nil), queued(enters("k")))
	}
}

// Who may publish, and has seen all messages until now, cannot make a waiter enter: it does not know the token of the place.
func TestForgedHandover(t *testing.T) {
	t.Parallel()
	w, d := newPlain(t)
	a, b := ask("k"), enters("k")
	w.grant(d, a)
	hints := w.wait(d, b)
	about := fmt.Sprintf("%03d%slock:k", len(value(b.Claim())), value(b.Claim()))
	token := w.admin.HGet(w.ctx, d.names("k").places, b.Owner).Val()
	token = strings.TrimLeft(strings.Fields(token)[3], "cE")
	for _, forged := range []string{"", "0", strings.Repeat("0", len(token)), token[1:], strings.ToUpper(token) + "0"} {
		w.do("PUBLISH", d.inboxName(), fmt.Sprintf("=%016d %016d 500 %s %s", w.micros()+1000, w.micros(), forged, about))
		if to := w.hint(hints); to.Fence != 0 {
			t.Errorf("the token %q has it enter: %+v", forged, to)
		}
	}
	if noted := d.leases.all[b.Claim().ID()]; noted.fence != 0 {
		t.Errorf("it is noted as a lease: %+v", noted)
	}
	w.refuse(d, queued(b))
	if again := w.admin.HGet(w.ctx, d.names("k").places, b.Owner).Val(); strings.Contains(again, token) {
		t.Errorf("the next Try has the token again: %q", again)
	}
	w.do("PUBLISH", d.inboxName(), fmt.Sprintf("=%016d %016d 500 %s %s", w.micros()+1000, w.micros(), token, about))
	if to := w.hint(hints); to.Fence != 0 {
		t.Errorf("an old token has it enter: %+v", to)
	}
	w.release(d, a)
	said := w.hint(hints)
	failIf(t, said.Fence == 0, "the store's own message does not have it enter")
	for _, later := range []string{"", fmt.Sprintf("=%016d %016d 500  ", said.Fence+1, w.micros())} { // none is expected any more
		d.boxes.Open[-1].deliver(later + about)
		if again := w.hint(hints); again.Fence != 0 {
			t.Errorf("%q has it enter: %+v", later, again)
		}
	}
}

// A message that comes after its owner's own Try was granted the key changes nothing of what is noted of the lease.
func TestHandoverOfALeaseThatIsNoted(t *testing.T) {
	d := New(nil, nil)
	id := ask("k").Claim().ID()
	ready := new(wire.Call)
	d.leases.note(id, 7, time.Hour, ready)
	for _, fence := range []uint64{6, 7} {
		d.leases.handed(id, driver.Handover{Fence: fence, TTL: time.Second})
	}
	if of := d.leases.all[id]; of.fence != 7 || time.Until(time.Unix(0, of.until)) < time.Minute || of.gives != ready {
		t.Errorf("%+v", of)
	}
	d.leases.handed(id, driver.Handover{Fence: 8, TTL: time.Second})
	if of := d.leases.all[id]; of.fence != 8 || of.gives != nil {
		t.Errorf("of a later handover: %+v", of)
	}
}
