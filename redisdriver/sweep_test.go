// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/operator"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// leftovers lists what is left over, by its name in Redis; of a queue by the owner of the place.
func (w *world) leftovers(d *Driver, prefix string) map[string]operator.Leftover {
	w.Helper()
	all := map[string]operator.Leftover{}
	for l, err := range d.ListLeftovers(w.ctx, prefix, nil) {
		stopIf(w, err != nil, "ListLeftovers: %v", err)
		name := l.Name
		if l.Kind == operator.LeftPlace {
			name = l.Holder.Owner
		}
		all[name] = l
	}
	return all
}

// only returns the one thing that is left over.
func (w *world) only(d *Driver) operator.Leftover {
	w.Helper()
	all := w.leftovers(d, "")
	stopIf(w, len(all) != 1, "left over are %+v, want one", all)
	return slices.Collect(maps.Values(all))[0]
}

// removes fails unless a leftover is removed, and kept for so long nevertheless.
func (w *world) removes(d *Driver, l operator.Leftover, stays time.Duration) {
	w.Helper()
	if got, err := d.RemoveLeftover(w.ctx, l); err != nil || got != stays {
		w.Fatalf("RemoveLeftover of %+v: %v, %v, want %v", l, got, err, stays)
	}
}

// leaves fails unless a leftover is no longer as it was listed.
func (w *world) leaves(d *Driver, l operator.Leftover) {
	w.Helper()
	if _, err := d.RemoveLeftover(w.ctx, l); !errors.Is(err, driver.ErrNotHeld) {
		w.Fatalf("RemoveLeftover of %+v: %v, want ErrNotHeld", l, err)
	}
}

// A lock that another tool set without an expiry is listed as foreign, and goes only while it has the value that was seen.
func TestForeignLeftovers(t *testing.T) {
	w, d := newPlain(t)
	for i, key := range hostile {
		w.admin.Set(w.ctx, "lock:"+key, fmt.Sprint("peer\x00\n", i), 0)
	}
	w.admin.Set(w.ctx, "lock:expires", "peer", time.Minute)
	w.admin.Set(w.ctx, "lock:large", strings.Repeat("x", maxShown), 0) // we see a part
	w.do("LPUSH", "lock:list", "x")
	w.admin.Set(w.ctx, "unlock:x", "peer", 0)
	all := w.leftovers(d, "")
	failIf(t, len(all) != len(hostile), "left over are %d, want %d", len(all), len(hostile))
	for i, key := range hostile {
		l := all["lock:"+key]
		value := fmt.Sprint("peer\x00\n", i)
		stopIf(t, l.Key != key || !l.Foreign() || l.Live || l.Holder.Label != value, "%q is listed as %+v", key, l)
		w.admin.Set(w.ctx, "lock:"+key, value+".", 0)
		w.leaves(d, l)
		w.admin.Set(w.ctx, "lock:"+key, value, time.Minute)
		w.leaves(d, l)
		w.admin.Set(w.ctx, "lock:"+key, value, 0)
		w.removes(d, l, 0)
		a := ask(key)
		w.grant(d, a)
		w.leaves(d, l)
		failIf(t, w.holder(d, key) != a.Owner, "%q was taken from its holder", key)
		w.release(d, a)
	}
	bare := w.driver(&Options{NoPrefix: true})
	if all := w.leftovers(bare, ""); len(all) != 0 {
		t.Errorf("without a prefix, data of others is left over: %+v", all)
	}
}

// The prefix is text, and what is below it is found by SCAN in steps.
func TestLeftoversWalk(t *testing.T) {
	w, d := newPlain(t)
	pipe := w.admin.Pipeline()
	for i := range 3000 {
		pipe.Set(w.ctx, fmt.Sprint("other:", i), "x", 0)
		pipe.Set(w.ctx, fmt.Sprint("lock:n", i), value(ask("n").Claim()), time.Minute)
	}
	for _, key := range []string{"a*", "ab", "a[b]", "b"} {
		pipe.Set(w.ctx, "lock:"+key, "peer", 0)
	}
	if _, err := pipe.Exec(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.do("CONFIG", "RESETSTAT")
	held := 0
	for _, err := range d.ListLeftovers(w.ctx, "", func(i driver.Info) {
		if held++; !i.Held || i.Left <= 0 || i.Left > time.Minute || i.Holder.Foreign {
			t.Errorf("held is %+v", i)
		}
	}) {
		must(t, err)
	}
	if calls := w.calls(); held != 3000 || calls["keys"] != 0 || calls["scan"] < 20 {
		t.Errorf("%d are held, and it took %v", held, calls)
	}
	for prefix, want := range map[string]int{"a": 3, "a*": 1, "a[": 1, "": 4, "none": 0} {
		if all := w.leftovers(d, prefix); len(all) != want {
			t.Errorf("of %q there are %d left over, want %d", prefix, len(all), want)
		}
	}
	for _, err := range d.ListLeftovers(w.ctx, "", nil) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	for l, err := range d.ListLeftovers(ctx, "", nil) {
		failIf(t, !errors.Is(err, context.Canceled), "after the end of its context: %+v, %v", l, err)
	}
}

// Of a lease without a grant nobody knows whether it is renewed: it gets an expiry, which a holder that renews moves.
func TestLeftoverWithoutAGrant(t *testing.T) {
	w, d := newPlain(t)
	for name, spoil := range map[string]string{"gone": "DEL", "permanent": "PERSIST"} {
		a := ask("k")
		w.on(d).grant(a).do("PERSIST", "lock:k").do(spoil, d.names("k").grant)
		l := w.leftovers(d, "")["lock:k"]
		stopIf(t, l.Live || l.Foreign() || l.Holder.Owner != a.Owner, "%s: listed as %+v", name, l)
		w.removes(d, l, keep)
		w.leaves(d, l)
		if left := w.inspect(d, "k").Left; left <= 0 || left > keep {
			t.Errorf("%s: %v left", name, left)
		}
		w.renewed(d, a)
		if left := w.inspect(d, "k").Left; left < a.TTL-time.Minute {
			t.Errorf("%s: %v left after a renewal", name, left)
		}
		w.release(d, a)
	}
}

// A shared lock is live while one of those who share it renews.
func TestSharedLeftover(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	a.Mode, b.Mode = driver.Shared, driver.Shared
	w.on(d).grant(a, b).do("PERSIST", "lock:k")
	n := d.names("k")
	over := func(o contend.Owner) { w.do("ZADD", n.shares, "XX", 1, value(o.Claim())) }
	over(a)
	l := w.only(d)
	if !l.Live || l.Holder.Mode != driver.Shared || l.Holder.Owner == "" || l.Fence == 0 {
		t.Errorf("shared by one that renews: listed as %+v", l)
	}
	w.leaves(d, l)
	over(b)
	dead := w.only(d)
	failIf(t, dead.Live, "shared by none that renews: listed as %+v", dead)
	w.renewed(d, b)
	w.leaves(d, dead)
	over(b)
	w.removes(d, dead, 0)
	w.grant(d, ask("k"))

	c := ask("torn")
	c.Mode = driver.Shared
	w.on(d).grant(c).do("PERSIST", "lock:torn").do("DEL", d.names("torn").held) // nobody knows who shares it
	w.removes(d, w.only(d), keep)
}

// What stands beside a lock is left over once it has no expiry and the lock is gone, and nobody waits; it gets an expiry.
func TestSidecarsLeftOver(t *testing.T) {
	w, d := newPlain(t)
	n := d.names("k")
	a, b := ask("k"), ask("k")
	a.Mode, a.Limit, b.Patience = driver.Shared, 2, time.Hour
	w.on(d).grant(a).wait(b)
	gone := n.gone(ask("k").Owner)
	w.do("SET", gone, "")
	all := []string{n.grant, n.queue, n.places, n.shares, n.held, n.room}
	for _, name := range all {
		w.do("PERSIST", name)
	}
	w.do("SET", recordKey, "ok", "KEEPTTL")
	w.do("SET", wire.Sidecars+"guard:"+n.side, "1")
	w.do("SET", wire.Sidecars+"queue", "1")
	w.do("SET", wire.Sidecars+"queue:no lock", "1")
	w.do("PERSIST", n.mark)
	if l := w.only(d); l.Name != gone || l.Kind != operator.LeftSidecar {
		t.Errorf("while the lock is held: %+v", l)
	}
	w.removes(d, w.only(d), keep)
	w.do("DEL", n.lock)
	if all := w.leftovers(d, ""); len(all) != 0 {
		t.Errorf("while somebody waits: %+v", all)
	}
	w.do("HSET", n.places, "!", "")
	w.do("HDEL", n.places, b.Owner) // it is no waiter any more
	listed := w.leftovers(d, "")
	if len(listed) != len(all)+1 { // and its place in the queue
		t.Errorf("of a lock that is gone: %q", slices.Sorted(maps.Keys(listed)))
	}
	c := ask("k")
	w.do("ZADD", n.queue, 1, value(c.Claim()))
	w.do("HSET", n.places, c.Owner, fmt.Sprintf("%013d 3600000 500 p -", w.micros()/1000))
	w.leaves(d, listed[n.queue])
	w.do("ZREM", n.queue, value(c.Claim()))
	w.do("HDEL", n.places, c.Owner)
	w.do("SET", n.grant, "other")
	w.leaves(d, listed[n.grant])
	listed = w.leftovers(d, "")
	for _, name := range all {
		w.removes(d, listed[name], keep)
		w.leaves(d, listed[name])
	}
	w.removes(d, listed[b.Owner], 0)
	w.leaves(d, listed[b.Owner])
	if all := w.leftovers(d, ""); len(all) != 0 {
		t.Errorf("left over are still %+v", all)
	}
	w.do("DEL", n.grant) // it is not what hasp wrote
	w.grant(d, ask("k"))
}

// Redis keys of other types where hasp has its own are left over, too, and end nobody's walk.
func TestSidecarsOfOtherTypes(t *testing.T) {
	w, d := newPlain(t)
	for _, key := range []string{"held", "gone"} {
		n := d.names(key)
		if key == "held" {
			w.grant(d, ask(key))
		}
		for _, name := range []string{n.queue, n.places, n.shares, n.held, n.room} {
			w.do("SET", name, "x")
		}
		w.do("LPUSH", n.grant+"x}", "x") // the grant of another
	}
	listed := w.leftovers(d, "")
	if len(listed) != 5 {
		t.Errorf("left over are %q", slices.Sorted(maps.Keys(listed)))
	}
	for _, l := range listed {
		w.removes(d, l, keep)
	}
}

// A place is left over when its waiter has been silent for a minute longer than its patience; behind it somebody waits.
func TestPlacesLeftOver(t *testing.T) {
	w, d := newPlain(t)
	holder, dead, live := ask("k"), ask("k"), ask("k")
	w.on(d).grant(holder).wait(dead, live)
	places := d.names("k").places
	if all := w.leftovers(d, ""); len(all) != 0 {
		t.Fatalf("of waiters there is left over %+v", all)
	}
	silent := func(r contend.Owner, since time.Duration) {
		_, rest, _ := strings.Cut(w.do("HGET", places, r.Owner).(string), " ")
		w.do("HSET", places, r.Owner, fmt.Sprintf("%013d %s", int64(w.micros()/1000)-since.Milliseconds(), rest))
	}
	begun := time.Now()
	silent(dead, dead.Patience+linger/2)
	if all := w.leftovers(d, ""); len(all) != 0 && time.Since(begun) < linger/2 {
		t.Fatalf("of a waiter that has been silent for half a minute more there is left over %+v", all)
	}
	silent(dead, dead.Patience+linger)
	l := w.only(d)
	if l.Kind != operator.LeftPlace || l.Holder.Owner != dead.Owner || l.Holder.Label != dead.Label || l.Live {
		t.Fatalf("listed as %+v", l)
	}
	silent(dead, 0) // a sign of life
	w.leaves(d, l)
	silent(dead, dead.Patience+2*linger)
	w.leaves(d, l)
	w.removes(d, w.only(d), 0)
	if info := w.inspect(d, "k"); info.Waiters != 1 || info.Queue[0].Owner != live.Owner {
		t.Errorf("the queue is %+v", info.Queue)
	}
	w.on(d).release(holder).claim(live)
}

// A State that came from elsewhere removes nothing.
func TestLeftoversOfOthersAreRefused(t *testing.T) {
	w, d := newPlain(t)
	w.do("SET", "lock:k", "peer")
	l := w.only(d)
	for _, change := range []func(*operator.Leftover){
		func(l *operator.Leftover) { l.Key = "" }, func(l *operator.Leftover) { l.Key = "other" }, func(l *operator.Leftover) { l.Name = "other:k" },
		func(l *operator.Leftover) { l.State = "" }, func(l *operator.Leftover) { l.State = "foreign" }, func(l *operator.Leftover) { l.Kind = "other" },
		func(l *operator.Leftover) { l.Kind = operator.LeftPlace }, func(l *operator.Leftover) { l.State = "foreign x" },
	} {
		bad := l
		change(&bad)
		if _, err := d.RemoveLeftover(w.ctx, bad); err == nil {
			t.Errorf("removed %+v", bad)
		}
	}
	failIf(t, w.do("GET", "lock:k") != "peer", "it is gone")
	broken := New(nil, nil)
	for _, err := range broken.ListLeftovers(w.ctx, "", nil) {
		failIf(t, err == nil, "a driver without a client lists")
	}
	if _, err := broken.RemoveLeftover(w.ctx, l); err == nil {
		t.Error("a driver without a client removes")
	}
}
