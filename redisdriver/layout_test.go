// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
)

// compareAndDelete is how redsync, redislock and the Redis manual release.
const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

func TestLockIsTheCanonicalString(t *testing.T) {
	w, d := newPlain(t)
	r := ask("orders/42")
	begun := time.Now()
	w.grant(d, r)
	if got := w.admin.Get(w.ctx, "lock:orders/42").Val(); got != r.Owner+" "+r.Label {
		t.Errorf("the key holds %q", got)
	}
	if left := w.admin.PTTL(w.ctx, "lock:orders/42").Val(); !lasts(left, r.TTL, begun) {
		t.Errorf("the key expires in %v", left)
	}
	if res := w.refuse(d, ask("orders/42")); !lasts(res.Left, r.TTL, begun) {
		t.Errorf("refused with %+v", res)
	}
	if ok := w.admin.SetNX(w.ctx, "lock:orders/42", "peer", time.Minute).Val(); ok {
		t.Error("SET NX of a peer took a held key")
	}
	if n := w.do("EVAL", compareAndDelete, 1, "lock:orders/42", "peer"); n != int64(0) {
		t.Error("a peer's release took our lock")
	}
	w.release(d, r)
	if ok := w.admin.SetNX(w.ctx, "lock:orders/42", "peer", time.Minute).Val(); !ok {
		t.Error("SET NX of a peer failed on a released key")
	}
	if res := w.refuse(d, ask("orders/42")); !res.Holder.Foreign || res.Holder.Label != "peer" {
		t.Errorf("the holder is %+v", res.Holder)
	}
	w.on(d).do("EVAL", compareAndDelete, 1, "lock:orders/42", "peer").grant(ask("orders/42"))
}

func TestPrefix(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		o   *Options
		key string
	}{
		"default": {nil, "lock:k"},
		"own":     {&Options{Prefix: "app:"}, "app:k"},
		"none":    {&Options{NoPrefix: true}, "k"},
	} {
		d := w.driver(c.o)
		w.grant(d, ask("k"))
		failIf(t, w.admin.Exists(w.ctx, c.key).Val() != 1, "%s: there is no key %q among %q", name, c.key, w.keys())
	}
}

// What is not of our form is shown, and never changed or deleted.
func TestForeignHolderIsLeftAlone(t *testing.T) {
	for name, value := range map[string]string{
		"word": "peer", "empty": "", "like ours": strings.Repeat("A", 26), "long": strings.Repeat("x", 70000),
		"label too long": strings.Repeat("A", 26) + " " + strings.Repeat("x", driver.MaxLabel+1), "bytes": "\x00\xff\n",
	} {
		for _, ttl := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprint(name, ttl), func(t *testing.T) {
				w, d := newPlain(t)
				w.admin.Set(w.ctx, "lock:k", value, ttl)
				r := ask("k")
				res := w.refuse(d, queued(r))
				failIf(t, !res.Holder.Foreign || !strings.HasPrefix(value, res.Holder.Label), "the holder is %+v", res.Holder)
				if (res.Left == 0) != (ttl == 0) || res.RetryIn <= 0 || res.RetryIn > lookAfter {
					t.Errorf("refused with %+v", res)
				}
				w.renewsNothing(d, r)
				w.release(d, r) // its place
				info := w.inspect(d, "k")
				failIf(t, !info.Held || !info.Holder.Foreign || (info.Left < 0) != (ttl == 0) || info.Fence != 0, "Inspect says %+v", info)
				if got := w.admin.Get(w.ctx, "lock:k").Val(); got != value {
					t.Errorf("the value became %q", got)
				}
				if left := w.admin.PTTL(w.ctx, "lock:k").Val(); (left < 0) != (ttl == 0) || left > ttl {
					t.Errorf("the expiry became %v", left)
				}
			})
		}
	}
}

func TestOtherTypeIsAnError(t *testing.T) {
	for kind, command := range map[string][]any{
		"hash": {"HSET", "lock:k", "f", "v"}, "list": {"RPUSH", "lock:k", "v"}, "set": {"SADD", "lock:k", "v"},
		"zset": {"ZADD", "lock:k", 1, "v"}, "stream": {"XADD", "lock:k", "*", "f", "v"},
	} {
		t.Run(kind, func(t *testing.T) {
			w, d := newPlain(t)
			w.do(command...)
			before := w.do("DUMP", "lock:k")
			refused := func(what string, err error) {
				t.Helper()
				failIf(t, d.Classify(err) != driver.ClassImpossible || !strings.Contains(fmt.Sprint(err), `"lock:k" holds a `+kind), "%s says: %v", what, err)
			}
			for _, r := range []contend.Owner{queued(ask("k")), reader("k"), queued(sharer("k", 2))} {
				_, err := contend.Try(w.ctx, d, r)
				refused("Try", err)
				w.releasesNothing(d, r)
			}
			_, err := d.Inspect(w.ctx, "k")
			refused("Inspect", err)
			for info, err := range d.List(w.ctx, "") {
				t.Errorf("List shows %+v, %v", info, err)
			}
			failIf(t, w.do("DUMP", "lock:k") != before, "the key was changed")
		})
	}
}

// A lock whose key was made something else while a queue stood, and one of 500
// in a Renew.
func TestOtherTypeInTheWay(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b).do("DEL", "lock:k").do("HSET", "lock:k", "f", "v")
	if _, err := contend.Try(w.ctx, d, queued(b)); d.Classify(err) != driver.ClassImpossible {
		t.Errorf("Try says: %v", err)
	}
	rs := []contend.Owner{a}
	for i := range 499 {
		r := ask(fmt.Sprint("n", i))
		w.grant(d, r)
		rs = append(rs, r)
	}
	for i, err := range w.renew(d, rs...) {
		if want := i == 0; errors.Is(err, driver.ErrNotHeld) != want || !want && err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
}

// hostile are keys that could break a name.
var hostile = []string{
	"k", "{k}", "{k", "k}", "}k{", "{}", "{}k", "a{b}c", "a{}b{c}", "{{k}}", "*", "?", "[k]", `\`, "k*",
	"\x00", "a\nb", "\xff\xfe", " ", `"`, "hasp.", "hasp.fence", "hasp.queue:{k}", "hasp.grant:=k", "#{0}k", "=k", "={k}",
	strings.Repeat("k", driver.MaxKey), strings.Repeat("}", driver.MaxKey),
}

// Keys of any bytes are locks of their own: holding one says nothing about
// another, each is listed under its own name, and all is gone after Release.
func TestHostileKeys(t *testing.T) {
	for _, o := range []*Options{nil, {NoPrefix: true}, {Prefix: "{app}*"}, {Prefix: "}"}} {
		w := newWorld(t)
		d := w.driver(o)
		held := map[string]contend.Owner{}
		for _, key := range hostile {
			if o != nil && o.NoPrefix && strings.HasPrefix(key, wire.Sidecars) {
				if _, err := contend.Try(w.ctx, d, ask(key)); d.Classify(err) != driver.ClassImpossible {
					t.Errorf("Try of %q, a name of ours, says %v", key, err)
				}
				continue
			}
			held[key] = ask(key)
			w.on(d).grant(held[key]).wait(ask(key))
		}
		listed := map[string]bool{}
		for info, err := range d.List(w.ctx, "") {
			failIf(t, err != nil || info.Holder.Owner != held[info.Key].Owner || info.Waiters != 1, "List shows %+v, %v", info, err)
			listed[info.Key] = true
		}
		for key, r := range held {
			failIf(t, !listed[key], "%+v: List leaves out %q", o, key)
			if got := w.holder(d, key); got != r.Owner {
				t.Errorf("%+v: %q is held by %q", o, key, got)
			}
			w.release(d, r)
		}
	}
}

// An expiry is only ever moved later: by a short Try, a short Renew, a place
// with less patience.
func TestExpiriesOnlyMoveLater(t *testing.T) {
	w, d := newPlain(t)
	a, b := ask("k"), ask("k")
	w.on(d).grant(a).wait(b)
	before := map[string]time.Duration{}
	for _, k := range w.keys() {
		if before[k] = w.admin.PExpireTime(w.ctx, k).Val(); before[k] < 0 {
			t.Errorf("%q does not expire", k)
		}
	}
	short, c := a, ask("k")
	short.TTL, c.Patience = time.Second, 10*time.Minute
	w.on(d).grant(short).join(c)
	b.Patience = 10 * time.Minute
	w.renewed(d, short, queued(b), queued(c))
	for k, was := range before {
		if now := w.admin.PExpireTime(w.ctx, k).Val(); now < was {
			t.Errorf("%q expires at %v, it was %v", k, now, was)
		}
	}
}

// Times are rounded up to milliseconds.
func TestTimesAreRoundedUp(t *testing.T) {
	w, d := newPlain(t)
	a := ask("k")
	a.TTL = 10*time.Millisecond + 1
	if res := w.grant(d, a); res.TTL < a.TTL {
		t.Errorf("the lease lasts %v", res.TTL)
	}
	if got := wire.Millis(10*time.Millisecond + 1); got != 11 {
		t.Errorf("rounded to %d", got)
	}
}
