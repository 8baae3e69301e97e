// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/driver/voting"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// full has the server take no more data, and off ends that.
func (w *world) full() (off func()) {
	w.Helper()
	w.do("CONFIG", "SET", "maxmemory", "1")
	return func() { w.do("CONFIG", "SET", "maxmemory", "0") }
}

// A full server still renews, claims, converts and releases what is shared, and
// hands it over; it takes no new holder.
func TestFullServerAndSharers(t *testing.T) {
	for _, node := range []bool{false, true} {
		for _, limit := range []int{0, 5} {
			t.Run(fmt.Sprintf("node=%v limit=%d", node, limit), func(t *testing.T) {
				w, d := newPlain(t)
				if node {
					d = w.node()
					w.admit(d)
				}
				writing := ask
				ask := func(r contend.Owner) contend.Owner {
					if node {
						r.Fence = w.micros() + 2_000_000
					}
					return r
				}
				a, b, claims, waits := ask(sharer("k", limit)), ask(sharer("k", limit)), ask(sharer("k", limit)), ask(sharer("k", limit))
				writer, alone, other := ask(writing("k")), ask(writing("alone")), ask(sharer("alone", limit))
				w.on(d).grant(a).join(writer, claims).release(writer) // lets claims in
				w.grant(d, b)
				writer = ask(writing("k"))
				w.refuse(d, queued(writer))
				hints := w.wait(d, waits)
				w.on(d).grant(alone).wait(other)

				off := w.full()
				for _, r := range []contend.Owner{sharer("new", limit), sharer("alone", limit), ask(sharer("new", limit))} {
					if _, err := contend.Try(w.ctx, seen(d), queued(r)); d.Classify(err) != driver.ClassFull {
						t.Errorf("Try of %q says %v", r.Key, err)
					}
				}
				if keys := w.keys(); slices.Contains(keys, "lock:new") {
					t.Errorf("there is %q", keys)
				}
				w.on(d).claim(claims).grant(a).renew(a, b, claims)
				w.convert(d, alone)
				w.grant(d, other) // granted, and claimed
				w.on(d).release(writer).hint(hints).grant(waits)
				for _, r := range []contend.Owner{a, claims, waits} {
					w.release(d, r)
				}
				b.End = driver.EndUnfinished
				w.release(d, b)
				off()
				failIf(t, w.inspect(d, "k").Held, "it is still held")
				again := ask(writing("k"))
				again.Fence += 1_000_000
				if !node {
					again.Fence = 0
				}
				if res := w.grant(d, again); res.Abandoned != (limit > 0) {
					t.Errorf("then %+v", res)
				}
			})
		}
	}
}

// A lock that a person made permanent is granted to nobody, and shared with
// no waiter; its holders keep it until they release it.
func TestPermanentLocks(t *testing.T) {
	w, d := newPlain(t)
	permanent := func(step string) {
		t.Helper()
		if left := w.admin.PTTL(w.ctx, "lock:k").Val(); left != wire.Forever {
			t.Errorf("%s: the lock expires in %v", step, left)
		}
	}
	a, b, writer := ask("k"), reader("k"), ask("k")
	w.on(d).grant(a).do("PERSIST", "lock:k").join(b)
	a = w.convert(d, a)
	permanent("converted")
	w.grant(d, queued(b)) // its holder let it in
	permanent("shared")

	// A lease that has expired by its record is still held.
	past := float64(time.Now().Add(-time.Hour).UnixMilli())
	for _, r := range []contend.Owner{a, b} {
		w.admin.ZAdd(w.ctx, "hasp.shares:{lock:k}", redis.Z{Score: past, Member: value(r.Claim())})
	}
	if res := w.refuse(d, queued(writer)); res.Left != 0 || res.RetryIn <= 0 {
		t.Errorf("a writer got %+v", res)
	}
	if info := w.inspect(d, "k"); info.Leases != 2 || info.Left != wire.Forever || info.Holders[1].Left != wire.Forever {
		t.Errorf("Inspect says %+v", info)
	}
	w.on(d).renew(a, b).grant(a)
	permanent("renewed")
	w.release(d, b)
	permanent("one released")
	w.on(d).release(a).claim(writer)

	// Even if its holders are unknown.
	c := reader("k")
	w.on(d).release(writer).grant(c).do("PERSIST", "lock:k").
		do("DEL", "hasp.shares:{lock:k}", "hasp.held:{lock:k}", "hasp.grant:{lock:k}")
	for _, r := range []contend.Owner{ask("k"), reader("k"), c} {
		w.refuse(d, r)
		w.releasesNothing(seen(d), r)
	}
	permanent("nobody's")
}

// An unclaimed lease of a permanent lock does not lapse, and is claimed late.
func TestPermanentAndUnclaimed(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), reader("k")
	b.TTL = 20 * time.Millisecond
	w.on(d).grant(a).wait(b).release(a).do("PERSIST", "lock:k")
	w.admin.ZAdd(w.ctx, "hasp.shares:{lock:k}", redis.Z{Score: 1, Member: value(b.Claim())})
	w.on(d).refuse(ask("k")).grant(b).release(b).grant(ask("k"))
}

// The documented rights are enough for all that sharers do.
func TestDocumentedRightsAreEnoughToShare(t *testing.T) {
	w := newWorld(t)
	d := w.as("bob")
	a, b, c, writer := ask("k"), sharer("k", 3), sharer("k", 3), ask("k")
	w.grant(d, a)
	hints, late := w.wait(d, b), w.wait(d, c)
	a = w.convert(d, a)
	w.on(d).hint(hints).hint(late).claim(b).join(writer).renew(a, b, queued(writer))
	w.inspect(d, "k")
	for _, err := range d.List(w.ctx, "") {
		if err != nil {
			t.Error(err)
		}
	}
	b.End = driver.EndUnfinished
	for _, r := range []contend.Owner{a, b, c} {
		w.release(d, r)
	}
	w.on(d).do("DEL", "lock:k").claim(writer)
	if denied := w.do("ACL", "LOG"); len(denied.([]any)) != 0 {
		t.Errorf("the server refused: %v", denied)
	}
}

// Without the right to PUBLISH whoever lets others in finds out before anything
// is written, and says so from then on.
func TestNoRightToPublishToSharers(t *testing.T) {
	for name, change := range map[string]string{"command": "-publish", "channel": "resetchannels"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			mute, d := w.as("bob", change), w.driver(nil)
			a, b, c := ask("k"), reader("k"), reader("k")
			w.on(mute).grant(a).on(d).wait(b, c).on(mute).release(a)
			if info := w.inspect(d, "k"); info.Held || info.Waiters != 2 {
				t.Fatalf("after Release there is %+v", info)
			}
			w.grant(d, queued(b)) // and lets in c
			if info := w.inspect(d, "k"); info.Leases == 2 {
				w.grant(d, queued(c))
			} else if res := w.try(d, queued(c)); !res.Granted {
				t.Errorf("the next reader got %+v, beside %+v", res, info)
			}
			w.on(d).release(c, b)

			again, writer := reader("k"), ask("k")
			w.grant(mute, again)
			w.mustLook(d, writer)
			convert := ask("other")
			w.on(mute).grant(convert).on(d).wait(reader("other"))
			w.convert(mute, convert)
			if info := w.inspect(d, "other"); info.Leases != 1 || info.Waiters != 1 {
				t.Errorf("after a conversion there is %+v", info)
			}
		})
	}
}

// That a sharer may not publish is known as long as the key is shared, and of no other key.
func TestMuteSharerIsRemembered(t *testing.T) {
	w := newWorld(t)
	mute, d := w.as("bob", "-publish"), w.driver(nil)
	queue := ask("k")
	first := ask("k")
	w.on(mute).grant(first).on(d).wait(queue).on(mute).release(first) // and learns that it may not publish
	w.release(d, queue)
	for key, by := range map[string]*Driver{"quiet": mute, "loud": d} {
		want := map[*Driver]byte{mute: 'S', d: 's'}[by]
		for i, holder := range []*Driver{by, d, d} {
			w.grant(holder, sharer(key, 5))
			if text := w.admin.Get(w.ctx, d.names(key).grant).Val(); text[58] != want {
				t.Errorf("%s: the grant of number %d is %q, want %c", key, i, text, want)
			}
		}
	}
}

// Servers before 7.0 know no PEXPIRE with GT.
func TestSharersWithoutExpireGreaterThan(t *testing.T) {
	w := newWorld(t)
	old := w.client(nil)
	old.AddHook(oldServer)
	d := w.over(old, nil)
	a, b, writer := reader("k"), sharer("k", 2), ask("k")
	w.on(d).grant(a, b).wait(writer)
	short := a
	short.TTL = time.Second
	w.on(d).grant(short).renew(short, b)
	if left := w.inspect(d, "k").Left; left < 20*time.Second {
		t.Errorf("a shorter Try left %v", left)
	}
	a.TTL = time.Hour
	w.renewed(d, a)
	for _, k := range []string{"lock:k", "hasp.grant:{lock:k}", "hasp.shares:{lock:k}", "hasp.held:{lock:k}"} {
		if left := w.admin.PTTL(w.ctx, k).Val(); left < 50*time.Minute {
			t.Errorf("%q expires in %v", k, left)
		}
	}
	w.on(d).release(a, b).claim(writer)
}

// A node that does not vote grants nobody a shared key, prolongs nothing, and
// a release there hands nothing on.
func TestNodeHoldsSharersBack(t *testing.T) {
	w, d := newVoting(t)
	a, b, writer, next := reader("k"), reader("k"), ask("k"), reader("k")
	a.Fence = w.micros()
	w.on(d).grant(a, b).wait(writer, next)
	record := w.admin.Get(w.ctx, recordKey).Val()
	w.do("SET", recordKey, "ok 0000000000000000000000000000000000000000 60000")
	w.heldBack(d, a, b, next, sharer("new", 2))
	if res := w.refuse(d, func() contend.Owner { r := a; r.Convert = true; return r }()); res.Why != voting.NotVoting {
		t.Errorf("a conversion says %+v", res)
	}
	w.on(d).release(writer, a, b)
	if info := w.inspect(d, "k"); info.Held || info.Waiters != 1 {
		t.Errorf("a Release handed on: %+v", info)
	}
	w.on(d).do("SET", recordKey, record).claim(next)
}
