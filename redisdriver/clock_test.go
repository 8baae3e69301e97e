// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/testserver"
)

// clocked is a world whose server has a clock that can be stepped.
func clocked(t *testing.T) (w *world, step func(offset string)) {
	t.Helper()
	w, write := fakeClock(t, "+0", "FAKETIME_NO_CACHE=1")
	return w, func(offset string) {
		t.Helper()
		before := w.micros()
		write(offset)
		w.until("the clock is stepped", func() bool {
			now := w.micros()
			return now > before+5_000_000 || now < before-5_000_000
		})
	}
}

// fakeClock is a world whose server has the clock that is written, and reads it as
// often as that variable says: see faketime(1).
func fakeClock(t *testing.T, at, reads string) (w *world, write func(at string)) {
	t.Helper()
	// Debian's redis-server brings an allocator that asks for the time before
	// libfaketime is ready: the C library's stands in front of it.
	const faketime, libc = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1", "/lib/x86_64-linux-gnu/libc.so.6"
	if err := testserver.CanStepClocks(); err != nil {
		t.Skipf("SKIPPED WITHOUT LIBFAKETIME: this test of a node's clock did not run: %v", err)
	}
	file := filepath.Join(t.TempDir(), "clock")
	write = func(at string) {
		t.Helper()
		must(t, os.WriteFile(file+".new", []byte(at), 0o600))
		if err := os.Rename(file+".new", file); err != nil { // the server reads it at every look at the clock
			t.Fatal(err)
		}
	}
	write(at)
	return newWorldIn(t, []string{
		"LD_PRELOAD=" + faketime + ":" + libc, "FAKETIME_TIMESTAMP_FILE=" + file, reads,
		"FAKETIME_DONT_FAKE_MONOTONIC=1", "TZ=UTC",
	}), write
}

// What a key was granted is forgotten beside the key once the clock has gone
// on, and then the proposals' mark is above it. A clock that goes back takes
// nothing from either, and mints above both.
func TestNodeClockIsStepped(t *testing.T) {
	w, step := clocked(t)
	d := w.node()
	w.admit(d)
	a, other := proposing("k", w.micros()), proposing("other", w.micros()-20)
	w.on(d).grant(a).release(a).grant(other) // it was overtaken
	w.release(d, other)

	step("+9000") // longer than the TTL, and than a fence is kept
	if keys := w.keys(); strings.Contains(strings.Join(keys, " "), "grant") {
		t.Fatalf("the server still has %q", keys)
	}
	if floor := w.tooLow(d, a); floor < a.Fence {
		t.Errorf("after 9000 s the floor is %d, the fence was %d", floor, a.Fence)
	}
	b := proposing("k", w.micros())
	w.grant(d, b)
	cur := w.admin.Get(w.ctx, proposedKey).Val()[34:50]

	step("-3600")
	if res := w.refuse(d, proposing("k", b.Fence+1)); res.Holder.Owner != b.Owner {
		t.Errorf("refused with %+v", res)
	}
	w.release(d, b) // it would not end for an hour
	ahead := proposing("new", b.Fence+3_000_000)
	floor := w.tooLow(d, ahead) // the clients' clocks go on: too far ahead here
	failIf(t, floor >= ahead.Fence, "refused %d with %d", ahead.Fence, floor)
	w.tooLow(d, proposing("k", b.Fence))
	w.on(d).grant(proposing("k", b.Fence+1)).grant(proposing("new", floor+1))
	step("-3500") // the mark is turned, and floor reaches all of it
	if floor = w.tooLow(d, proposing("turns", floor+2)); floor <= b.Fence {
		t.Errorf("turned, the floor is %d, granted was %d", floor, b.Fence)
	}
	w.grant(d, proposing("turns", floor+1))
	if left := w.admin.PTTL(w.ctx, d.names("k").grant).Val(); left < 50*time.Minute {
		t.Errorf("ahead of the clock the fence is kept for %v", left)
	}
	if minted := w.grant(d, ask("minted")).Fence; minted <= b.Fence {
		t.Errorf("minted %d after %d (the mark was %s)", minted, b.Fence, cur)
	}
}
