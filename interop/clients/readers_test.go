// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package clients

import (
	"fmt"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// duo is a process of hasp and one of Java on one server.
type duo struct {
	*testing.T
	server *testserver.Server
	rdb    *redis.Client
	pair   [2]*peer
}

func newDuo(t *testing.T) *duo {
	s := testserver.Redis(t)
	d := &duo{T: t, server: s, rdb: redis.NewClient(&redis.Options{Addr: s.Addr()})}
	t.Cleanup(func() { d.rdb.Close() })
	d.pair = [2]*peer{start(t, haspPeer, longTTL, s.Addr()), start(t, java, longTTL, s.Addr())}
	return d
}

// Rule: readers of both sides hold a lock together, and writers of both are refused until the last of them has unlocked it.
func TestReadersShareRedissons(t *testing.T) {
	d := newDuo(t)
	for i := range d.pair {
		first, second := d.pair[i], d.pair[1-i]
		refused := func() {
			t.Helper()
			for _, p := range d.pair {
				p.refused("w", "write", "k")
			}
		}
		a, b, c := first.locks("r", "read", "k", 0), second.locks("r", "read", "k", 0), second.locks("s", "read", "k", 0)
		refused()
		a.unlock()
		refused()
		b.unlock()
		refused()
		a = first.locks("r", "read", "k", 0)
		c.unlock()
		refused()
		a.unlock()
		for _, p := range d.pair {
			w := p.locks("w", "write", "k", 0)
			for _, q := range d.pair {
				q.refused("r", "read", "k")
			}
			w.unlock()
		}
	}
}

// Rule: a reader that died keeps nobody out for longer than its TTL, also when a reader of the other side kept the lock meanwhile.
func TestDeadReadersOfRedissons(t *testing.T) {
	if !*long {
		t.Skip("part of the long form: -long")
	}
	d := newDuo(t)
	for i, p := range []*program{haspPeer, java} {
		for _, writer := range d.pair {
			key := fmt.Sprintf("dead.%s.%s", p.name, writer.name)
			dead, alive := start(t, p, shortTTL, d.server.Addr()), d.pair[1-i]
			if p == java { // no TTL of hasp's may be longer than Java's
				alive = start(t, haspPeer, shortTTL, d.server.Addr())
			}
			dead.locks("r", "read", key, 0)
			r := alive.locks("r", "read", key, 0)
			w := writer.asks("w", "write", key, soon)
			dead.kill()
			d.holds(key, 1)
			w.quiet()
			left := r.unlock()
			got := w.granted().at
			t.Logf("a reader of %s died; a writer of %s has the lock %v after the unlock of the other reader", p.name, writer.name, since(left, got))
			if since(left, got) > longTTL/2 {
				t.Errorf("the writer of %s was not told", writer.name)
			}
			w.unlock()
		}
	}
}

// Rule: a reader of hasp's keeps the lock when a reader of Java's is killed that the watchdog has renewed.
func TestReaderOutlivesTheWatchdogOfRedisson(t *testing.T) {
	if !*long {
		t.Skip("part of the long form: -long")
	}
	d := newDuo(t)
	dead, alive := start(t, java, shortTTL, d.server.Addr()), start(t, haspPeer, shortTTL, d.server.Addr())
	dead.locks("r", "read", "k", forever)
	hold := d.holds("k", 1)[0]
	r := alive.locks("r", "read", "k", 0)
	first := d.rdb.PExpireTime(t.Context(), hold).Val()
	for end := time.Now().Add(soon); d.rdb.PExpireTime(t.Context(), hold).Val() <= first+shortTTL/2; time.Sleep(10 * time.Millisecond) { // no event says so
		if time.Now().After(end) {
			t.Fatal("its watchdog does not renew it")
		}
	}
	dead.kill()
	d.holds("k", 1)
	for _, writer := range d.pair {
		writer.refused("w", "write", "k")
	}
	r.unlock()
	for _, writer := range d.pair {
		writer.locks("w", "write", "k", 0).unlock()
	}
}

// holds waits until so many holds of readers have not expired, and returns them.
func (d *duo) holds(key string, n int) []string {
	d.Helper()
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) { // no event says so
		all, err := d.rdb.Keys(d.Context(), "{"+key+"}:*:rwlock_timeout:*").Result()
		if err != nil || time.Now().After(end) {
			d.Fatalf("%q: %v, want %d", all, err, n)
		}
		if len(all) == n {
			return all
		}
	}
}
