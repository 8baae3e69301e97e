// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

func (w *world) list(d *Driver, prefix string) map[string]driver.Info {
	w.Helper()
	out := map[string]driver.Info{}
	for info, err := range d.List(w.ctx, prefix) {
		must(w, err)
		out[info.Key] = info
	}
	return out
}

// List walks with SCAN over many keys, most of them not locks, and sees a queue
// whose key is free.
func TestListWalks(t *testing.T) {
	w, d := newPlain(t)
	pipe := w.admin.Pipeline()
	for i := range 5000 {
		pipe.Set(w.ctx, fmt.Sprint("other:", i), "x", 0)
		if i%2 == 0 {
			pipe.Set(w.ctx, fmt.Sprint("lock:n", i), value(ask("n").Claim()), time.Minute)
		}
	}
	if _, err := pipe.Exec(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.on(d).grant(ask("k")).wait(ask("k")).do("DEL", "lock:k").do("CONFIG", "RESETSTAT")
	got := w.list(d, "")
	if len(got) != 2501 || got["k"].Held || got["k"].Waiters != 1 || !got["n0"].Held {
		t.Errorf("List has %d keys, and of a free one with a queue: %+v", len(got), got["k"])
	}
	if calls := w.calls(); calls["keys"] != 0 || calls["scan"] < 5 {
		t.Errorf("it took %v", calls)
	}
	n := 0
	for _, err := range d.List(w.ctx, "") {
		must(t, err)
		if n++; n == 3 {
			break
		}
	}
}

// What Inspect gives to look by hand is understood by redis-cli, whatever the
// key is made of.
func TestByHand(t *testing.T) {
	t.Parallel()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("there is no redis-cli")
	}
	w := newWorld(t)
	for _, key := range hostile {
		d := w.driver(nil)
		a, b := ask(key), ask(key)
		w.on(d).grant(a).wait(b)
		statements := w.inspect(d, key).LookCommands
		for i, want := range []string{a.Owner, "", a.Owner, b.Owner, b.Owner} {
			if s := statements[i]; strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("not printable: %q", s)
			}
			cmd := exec.Command(cli, "-s", w.server.Socket())
			cmd.Stdin = strings.NewReader(statements[i] + "\n")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) || strings.HasPrefix(string(out), "(nil)") || strings.HasPrefix(string(out), "ERR") {
				t.Errorf("%s says %q, %v", statements[i], out, err)
			}
		}
	}
}

// What Inspect gives to free a foreign key without expiry works in redis-cli,
// whatever key and value are made of, and takes nothing from a later one.
func TestFreeByHand(t *testing.T) {
	t.Parallel()
	cli, err := exec.LookPath("redis-cli")
	if err != nil {
		t.Skip("there is no redis-cli")
	}
	w, d := newPlain(t)
	paste := func(statement string) string {
		t.Helper()
		if strings.ContainsFunc(statement, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("not printable: %q", statement)
		}
		cmd := exec.Command(cli, "-s", w.server.Socket())
		cmd.Stdin = strings.NewReader(statement + "\n")
		out, err := cmd.CombinedOutput()
		stopIf(t, err != nil, "%s: %v: %s", statement, err, out)
		return strings.TrimSpace(string(out))
	}
	values := []string{"", "peer", "a b", `"`, `\`, "'", "\x00\xff\r\n", "$(touch X)`touch X`", strings.Repeat("x", maxShown-1)}
	for i, key := range append(hostile, values[1:len(values)-1]...) {
		value := values[i%len(values)]
		w.admin.Set(w.ctx, "lock:"+key, value, 0)
		free := w.inspect(d, key).FreeCommands
		stopIf(t, len(free) != 1, "%q with %q: %q", key, value, free)
		w.admin.Set(w.ctx, "lock:"+key, value+".", 0)
		if said := paste(free[0]); said != "0" || w.admin.Get(w.ctx, "lock:"+key).Val() != value+"." {
			t.Errorf("%s says %q to another value", free[0], said)
		}
		w.admin.Set(w.ctx, "lock:"+key, value, 0)
		if said := paste(free[0]); said != "1" || w.admin.Exists(w.ctx, "lock:"+key).Val() != 0 {
			t.Errorf("%s says %q, and there are %q", free[0], said, w.keys())
		}
	}
	w.admin.Set(w.ctx, "lock:expires", "peer", time.Minute)
	w.admin.Set(w.ctx, "lock:large", strings.Repeat("x", maxShown), 0)
	w.on(d).grant(ask("ours")).do("PERSIST", "lock:ours")
	w.admin.Set(w.ctx, "lock:never", "peer", 0)
	if free := w.list(d, "never")["never"].FreeCommands; free != nil {
		t.Errorf("List has %q, which is for Inspect", free)
	}
	for _, key := range []string{"free", "expires", "large", "ours"} {
		if free := w.inspect(d, key).FreeCommands; free != nil {
			t.Errorf("%s is freed by %q", key, free)
		}
	}
}

// A lock that lasts for longer than a time.Duration can say lasts for long.
func TestListOfALongLease(t *testing.T) {
	w, d := newPlain(t)
	w.on(d).grant(ask("k")).do("PEXPIRE", "lock:k", int64(math.MaxInt64/time.Millisecond)+60_000)
	if left := w.list(d, "")["k"].Left; left != w.inspect(d, "k").Left || left < 24*time.Hour {
		t.Errorf("List says %v, Inspect %v", left, w.inspect(d, "k").Left)
	}
}
