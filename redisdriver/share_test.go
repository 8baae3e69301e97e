// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

func reader(key string) contend.Owner {
	r := ask(key)
	r.Mode = driver.Shared
	return r
}

func sharer(key string, limit int) contend.Owner {
	r := reader(key)
	r.Limit = limit
	return r
}

// convert has the lease of a writer shared from now on.
func (w *world) convert(d *Driver, r contend.Owner) contend.Owner {
	w.Helper()
	r.Mode, r.Convert = driver.Shared, true
	w.grant(d, r)
	r.Convert = false
	return r
}

// sharers are the owners that share a key.
func (w *world) sharers(d *Driver, key string) (owners []string) {
	w.Helper()
	for _, h := range w.inspect(d, key).Holders {
		owners = append(owners, h.Holder.Owner)
	}
	return owners
}

// ofKey are the names of what the server has for lock:k and its queue.
func (w *world) ofKey() []string {
	w.Helper()
	return slices.DeleteFunc(w.keys(), func(k string) bool {
		return k == markKey || k == recordKey || k == proposedKey || strings.HasPrefix(k, wire.Sidecars+"gone:")
	})
}

// A shared lock is one string that expires: whoever asks with NX is refused
// until the last of those who share it is gone, and nothing else stays.
func TestSharedLockIsAString(t *testing.T) {
	w, d := newPlain(t)
	a, b := reader("k"), reader("k")
	a.Settled, b.Settled = true, true
	b.TTL = time.Hour
	w.grant(d, a)
	text, begun := w.admin.Get(w.ctx, "lock:k").Val(), time.Now()
	w.grant(d, b)
	if got := w.admin.Get(w.ctx, "lock:k").Val(); got != text || !strings.HasPrefix(got, sharedValue) || holderOf(got).Foreign {
		t.Errorf("the key held %q, holds %q", text, got)
	}
	if left := w.admin.PTTL(w.ctx, "lock:k").Val(); !lasts(left, b.TTL, begun) {
		t.Errorf("the key expires in %v", left)
	}
	for range 2 {
		failIf(t, w.admin.SetNX(w.ctx, "lock:k", "peer", time.Minute).Val(), "SET NX of a peer took a shared key")
		if n := w.do("EVAL", compareAndDelete, 1, "lock:k", "peer"); n != int64(0) {
			t.Error("a peer's release took a shared key")
		}
		w.release(d, b)
		b = a
	}
	if keys := w.ofKey(); len(keys) != 0 {
		t.Errorf("after the last release there is %q", keys)
	}
	w.do("SET", "lock:k", "peer")
	if res := w.refuse(d, reader("k")); !res.Holder.Foreign || res.Holder.Label != "peer" {
		t.Errorf("the holder is %+v", res.Holder)
	}
	if got := w.admin.Get(w.ctx, "lock:k").Val(); got != "peer" {
		t.Errorf("the peer's value became %q", got)
	}
}

// What one sharing left beside the lock says nothing in the next: a lease of
// the first does not come back to life.
func TestSharesOfAnotherTime(t *testing.T) {
	w, d := newPlain(t)
	for name, between := range map[string]func(){
		"a peer":   func() { w.do("SET", "lock:k", "peer"); w.do("DEL", "lock:k") },
		"a writer": func() { a := ask("k"); w.grant(d, a); w.release(d, a) },
		"a writer that shares": func() {
			a := ask("k")
			w.on(d).grant(a).release(w.convert(d, a))
		},
		"its grant forgotten": func() { w.do("DEL", "hasp.grant:{lock:k}") },
	} {
		w.do("FLUSHALL")
		old, fresh := sharer("k", 3), reader("k")
		w.on(d).grant(old).do("DEL", "lock:k")
		between()
		w.grant(d, fresh)
		if err := w.renew(d, old)[0]; !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Renew of a lease before says %v", name, err)
		}
		if got := w.sharers(d, "k"); len(got) != 1 || got[0] != fresh.Owner {
			t.Errorf("%s: the key is shared by %q", name, got)
		}
		if err := contend.Release(w.ctx, d, old); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Release of a lease before says %v", name, err)
		}
		if err := w.renew(d, fresh)[0]; err != nil {
			t.Errorf("%s: then Renew says %v", name, err)
		}
	}
}

// If the sharers of a lock are unknown, it is held until it expires.
func TestSharersAreForgotten(t *testing.T) {
	for _, lost := range []string{"hasp.held:{lock:k}", "hasp.shares:{lock:k}", "hasp.grant:{lock:k}", "hasp.room:{lock:k}"} {
		w, d := newPlain(t)
		a := sharer("k", 2)
		w.on(d).grant(a).do("DEL", lost)
		err := w.renew(d, a)[0]
		switch lost {
		case "hasp.held:{lock:k}", "hasp.shares:{lock:k}":
			for _, r := range []contend.Owner{ask("k"), reader("k"), a} {
				if res := w.refuse(d, r); res.Left <= 20*time.Second || res.Holder.Foreign {
					t.Errorf("without %q: %+v", lost, res)
				}
			}
			if info := w.inspect(d, "k"); !info.Held || info.Left <= 20*time.Second {
				t.Errorf("without %q: %+v", lost, info)
			}
			for info, err := range d.List(w.ctx, "") {
				failIf(t, err != nil || !info.Held, "without %q: %+v, %v", lost, info, err)
			}
			w.until("it is over", func() bool { w.do("PEXPIRE", "lock:k", 1); return w.try(d, ask("k")).Granted })
			failIf(t, !errors.Is(err, driver.ErrNotHeld), "without %q Renew says %v", lost, err)
		default:
			failIf(t, err != nil, "without %q Renew says %v", lost, err)
			w.on(d).refuse(ask("k")).grant(reader("k")).release(a)
		}
	}
}

// A release lets in a bounded number from the front of the queue, and each that
// claims its lease brings more: all get hints, in order, none is left out.
func TestManyReadersAreLetIn(t *testing.T) {
	w, d := newPlain(t)
	const n = 100
	a, last := ask("k"), ask("k")
	w.grant(d, a)
	rs, hints := make([]contend.Owner, n), make([]<-chan driver.Hint, n)
	for i := range rs {
		rs[i] = reader("k")
		hints[i] = w.wait(d, rs[i])
	}
	w.on(d).wait(last).release(a)
	if info := w.inspect(d, "k"); info.Leases > 33 || info.Leases < 10 || info.Waiters != n+1-info.Leases {
		t.Errorf("one release let in %d, and %d wait", info.Leases, info.Waiters)
	}
	for i := range rs {
		w.on(d).hint(hints[i]).claim(rs[i])
	}
	if info := w.inspect(d, "k"); info.Leases != n || info.Waiters != 1 {
		t.Errorf("%d hold, %d wait", info.Leases, info.Waiters)
	}
	if owners := w.sharers(d, "k"); len(owners) != n {
		t.Errorf("%d are named", len(owners))
	}
	for _, r := range rs {
		w.release(d, r)
	}
	w.grant(d, queued(last))
}

// Leases that were handed over, and not claimed when the lock was gone, go back
// to their places, however many there are.
func TestManyUnclaimedLeasesKeepTheirPlaces(t *testing.T) {
	w, d := newPlain(t)
	const n = 350
	a := ask("k")
	w.grant(d, a)
	calls := []*wire.Call{}
	var owners []string
	for range n {
		r := sharer("k", n+1)
		owners = append(owners, r.Owner)
		calls = append(calls, tries(d, queued(r))...)
	}
	w.together(d, calls...)
	w.release(d, a)
	w.until("all were let in", func() bool {
		w.refuse(d, ask("k"))
		return w.inspect(d, "k").Leases == n
	})
	w.do("DEL", "lock:k")
	w.do("CONFIG", "RESETSTAT")
	w.until("a writer has it", func() bool {
		res := w.try(d, ask("k"))
		stopIf(t, !res.Granted && res.RetryIn <= 0, "refused with %+v", res)
		return res.Granted // the others gave no sign of life
	})
	if n := w.calls()["zrange"]; n > 100 {
		t.Errorf("%d times ZRANGE", n)
	}
	var got []string
	for _, h := range w.inspect(d, "k").Queue {
		got = append(got, h.Owner)
	}
	failIf(t, !slices.Equal(got, owners), "%d of %d are in the queue, or in another order", len(got), n)
}

// A writer that gives up lets in the readers behind it, also where it is not
// the first in the queue because the first is passed over.
func TestWriterLeavesBehindAStruckPlace(t *testing.T) {
	w, d := newPlain(t)
	hung := w.driver(nil)
	a, dead, writer, b := reader("k"), ask("k"), ask("k"), reader("k")
	w.on(d).grant(a).on(hung).wait(dead).on(d).wait(writer)
	hints := w.wait(d, b)
	w.strike("k", hung)
	w.on(d).release(writer).hint(hints)
	if got := w.sharers(d, "k"); !slices.Contains(got, b.Owner) {
		t.Errorf("the key is shared by %q", got)
	}
}

// The server's work does not grow with those who share a key, nor with those
// who wait for it.
func TestCommandsOfSharersAreFlat(t *testing.T) {
	w, d := newPlain(t)
	cost := map[string]map[int]int{}
	count := func(what string, n int, f func()) {
		if cost[what] == nil {
			cost[what] = map[int]int{}
		}
		cost[what][n] = w.cost(f)
		t.Logf("%s beside %d: %d commands", what, n, cost[what][n])
	}
	warm := reader("warm")
	w.grant(d, warm)
	w.renew(d, warm) // both scripts are loaded
	for _, n := range []int{2, 500} {
		for limit, name := range map[int]string{0: "reader", 1000: "semaphore"} {
			w.do("FLUSHALL")
			var held []contend.Owner
			for range n {
				r := sharer("k", limit)
				r.Settled = true
				held = append(held, r)
				w.grant(d, r)
			}
			r := sharer("k", limit)
			r.Settled = true
			count(name+"'s grant", n, func() { w.grant(d, r) })
			count(name+"'s renewal", n, func() { w.renew(d, r) })
			count(name+"'s release", n, func() { w.release(d, r) })
			for range n {
				w.refuse(d, queued(ask("k")))
			}
			count(name+"'s release before writers", n, func() { w.release(d, held[0]) })
			count("refusal by "+name+"s", n, func() { w.refuse(d, r) })
		}
	}
	for what, by := range cost {
		failIf(t, by[500] > by[2], "%s costs %d commands beside 2, and %d beside 500", what, by[2], by[500])
	}
}

// A refusal says when there will be room for the one that asked.
func TestRefusalBesideSharers(t *testing.T) {
	w, d := newPlain(t)
	for _, ttl := range []time.Duration{time.Hour, 10 * time.Minute, 20 * time.Minute} {
		r := reader("k")
		r.TTL = ttl
		w.grant(d, r)
	}
	for limit, most := range map[int]time.Duration{3: 10 * time.Minute, 2: 20 * time.Minute, 1: time.Hour} {
		if left := w.refuse(d, sharer("k", limit)).Left; left > most || left < most/2+time.Minute {
			t.Errorf("with a limit of %d it is refused for %v, want %v", limit, left, most)
		}
	}
	if left := w.refuse(d, ask("k")).Left; left < 50*time.Minute {
		t.Errorf("a writer is refused for %v", left)
	}
}

// A renewal of several leases says of each whether others wait for it.
func TestWantedOfSeveralLeases(t *testing.T) {
	w, d := newPlain(t)
	a, b, c := ask("{k}a"), ask("{k}b"), reader("{k}c")
	for _, r := range []contend.Owner{a, b, c} {
		w.grant(d, r)
	}
	w.wait(d, ask("{k}b"))
	for i, r := range w.answers(d, a, b, c) {
		failIf(t, r.Err != nil || r.Wanted != (i == 1), "renewal %d: %+v", i, r)
	}
}

// A lease that is converted keeps the time that it had left, and since when it is held.
func TestConvertKeepsTheTime(t *testing.T) {
	w, d := newPlain(t)
	before := time.UnixMicro(int64(w.micros())).Truncate(time.Millisecond)
	a := ask("k")
	w.grant(d, a)
	since := w.inspect(d, "k").Holders[0].Holder.Since
	failIf(t, since.Before(before) || since.After(time.UnixMicro(int64(w.micros()))), "held since %v, granted after %v", since, before)
	w.tick()
	a.TTL = time.Second
	w.convert(d, a)
	if h := w.inspect(d, "k").Holders[0]; !h.Holder.Since.Equal(since) || h.Left < 20*time.Second {
		t.Errorf("held since %v and for %v, not since %v and for 30 s", h.Holder.Since, h.Left, since)
	}
}
