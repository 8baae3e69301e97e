// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

// Whether somebody renews a lease without an expiry says the expiry of its grant, of a node by the longest TTL that
// its record allows.
func TestGrantSaysWhoRenews(t *testing.T) {
	for _, node := range []bool{false, true} {
		t.Run(fmt.Sprintf("node=%v", node), func(t *testing.T) {
			w := newWorld(t)
			d, a, keeps := w.driver(nil), ask("k"), keep
			if node {
				d, keeps = w.node(), nodeMaxTTL
				w.admit(d)
				a.Fence = w.micros()
			}
			w.on(d).grant(a).do("PERSIST", "lock:k")
			grant := d.names("k").grant
			is := func(when, want string) {
				t.Helper()
				l := w.only(d)
				if got, _, _ := strings.Cut(strings.TrimPrefix(l.State, leaseRemnant+" "), " "); got != want || l.Live != (want == "live") {
					t.Errorf("%s: listed as %q, want %s: %+v", when, got, want, l)
				}
			}
			for _, c := range []struct {
				left time.Duration
				want string
			}{{keeps + 10*time.Minute, "live"}, {keeps - time.Second, "dead"}} {
				w.do("PEXPIRE", grant, c.left.Milliseconds())
				is(fmt.Sprint("its grant stays for ", c.left), c.want)
			}
			if node {
				record := w.do("GET", recordKey)
				for _, bad := range []string{"wait 0 x", ""} {
					w.do("SET", recordKey, bad)
					is(fmt.Sprintf("the record is %q", bad), "unknown")
				}
				w.do("DEL", recordKey)
				is("without a record", "unknown")
				w.do("SET", recordKey, record)
			}
			w.do("PERSIST", grant)
			is("its grant is permanent", "unknown")
			w.do("DEL", grant)
			is("without a grant", "unknown")
			l := w.only(d)
			w.do("SET", grant, "x", "PX", (keeps + time.Minute).Milliseconds())
			w.leaves(d, l)
		})
	}
}

// What stands beside a shared lock where the leases should be tells nothing, whatever it is.
func TestSharedLeftoverWithoutItsLeases(t *testing.T) {
	for _, spoil := range []string{"no shares", "other shares", "other sharing"} {
		w, d := newPlain(t)
		w.on(d).grant(reader("k")).do("PERSIST", "lock:k")
		n := d.names("k")
		switch spoil {
		case "no shares":
			w.do("DEL", n.shares)
		case "other shares":
			w.do("SET", n.shares, "x", "PX", 60000)
		case "other sharing":
			w.do("HSET", n.held, "!", w.micros())
		}
		l := w.only(d)
		failIf(t, !strings.HasPrefix(l.State, leaseRemnant+" unknown ") || l.Live, "%s: listed as %+v", spoil, l)
		w.removes(d, l, keep)
		if left := w.admin.PTTL(w.ctx, "lock:k").Val(); left <= 0 || left > keep {
			t.Errorf("%s: the lock has %v left", spoil, left)
		}
	}
}

// What was listed and is something else now stays.
func TestLeftoverThatIsAnother(t *testing.T) {
	w, d := newPlain(t)
	n := d.names("k")
	w.do("SET", n.lock, "peer")
	foreign := w.only(d)
	w.do("DEL", n.lock)
	w.leaves(d, foreign)
	w.do("LPUSH", n.lock, "x")
	w.leaves(d, foreign)
	w.do("DEL", n.lock)

	w.do("ZADD", n.shares, 1, "a")
	shares := w.only(d)
	w.do("ZADD", n.shares, 1, "b")
	w.leaves(d, shares)
	w.do("DEL", n.shares)
	w.do("SET", n.shares, "1") // as many as there were members
	w.leaves(d, shares)
	w.removes(d, w.only(d), keep)
}

// A place that is not over, or has left the queue, is no leftover, whoever says so.
func TestPlaceThatIsNotOver(t *testing.T) {
	w, d := newPlain(t)
	n := d.names("k")
	w.many(d, "k", 1, "p", 1)
	l := w.only(d)
	alive := strings.Replace(l.State, "0000000000001 ", fmt.Sprintf("%013d ", w.micros()/1000), 1)
	place, _, _ := strings.Cut(alive, "\n")
	old, _, _ := strings.Cut(l.State, "\n")
	w.do("HSET", n.places, l.Holder.Owner, place)
	forged := l
	forged.State = alive
	w.leaves(d, forged)
	if info := w.inspect(d, "k"); info.Waiters != 1 {
		t.Errorf("%d wait", info.Waiters)
	}
	w.do("HSET", n.places, l.Holder.Owner, old)
	member := w.admin.ZRange(w.ctx, n.queue, 0, 0).Val()[0]
	w.do("ZREM", n.queue, member)
	w.leaves(d, l)
}

// Beside a queue nothing is left over while one of its places is not over, wherever it stands, nor while nobody has
// looked at all of them.
func TestNothingIsLeftBesideAWaiter(t *testing.T) {
	for name, c := range map[string]struct {
		dead int
		live bool
		want bool // that the grant is left over
	}{
		"all are over":             {dead: 150, want: true},
		"the first one is not":     {dead: 150, live: true},
		"more than are looked at":  {dead: 1001},
		"as many as are looked at": {dead: 1000},
		"one less":                 {dead: 900, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, d := newPlain(t)
			n := d.names("k")
			w.many(d, "k", c.dead, "p", 1)
			if c.live {
				member := w.admin.ZRange(w.ctx, n.queue, 0, 0).Val()[0]
				w.do("HSET", n.places, member[:driver.OwnerLen], fmt.Sprintf("%013d 10000 100 p -", w.micros()/1000))
			}
			w.do("SET", n.grant, "x")
			l, left := w.leftovers(d, "")[n.grant]
			stopIf(t, left != c.want, "the grant is left over: %v, want %v", left, c.want)
			if left {
				w.removes(d, l, keep)
			}
		})
	}
}
