// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisdriver

import (
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
)

// A claim says how long ago the key was handed over, alone and beside others, whatever
// was written of the key since.
func TestClaimSaysHowLongAgo(t *testing.T) {
	at := time.Now().UTC().Truncate(time.Second)
	w, write := fakeClock(t, at.Format(time.DateTime), "FAKETIME_NO_CACHE=1") // it stands
	pass := func(d time.Duration) {
		at = at.Add(d)
		write(at.Format(time.DateTime))
	}
	d := w.driver(nil)
	a, b, c, writer := ask("k"), reader("k"), reader("k"), ask("k")
	w.on(d).grant(a).wait(b, c).release(a)
	for i, r := range []*contend.Owner{&b, &c} {
		pass(time.Second)
		if got, want := w.grant(d, queued(*r)).Handoff, time.Duration(i+1)*time.Second; got != want {
			t.Errorf("a reader was handed the key %v ago, want %v", got, want)
		}
	}
	w.on(d).wait(writer).release(b, c)
	pass(2 * time.Second)
	if got := w.grant(d, queued(writer)).Handoff; got != 2*time.Second {
		t.Errorf("a writer was handed the key %v ago", got)
	}
}

// A reader that was handed the key beside one that did not finish hears of that when it claims it. One
// that claimed before does not, nor one that was given another slot before.
func TestReaderThatClaimsHearsOfASharer(t *testing.T) {
	w, d := newPlain(t)
	a, b, late, early, slot := ask("k"), sharer("k", 5), reader("k"), reader("k"), sharer("k", 5)
	w.grant(d, a)
	for _, r := range []contend.Owner{b, late, early, slot} {
		w.wait(d, r)
	}
	w.release(d, a)
	for _, r := range []contend.Owner{b, early} {
		failIf(t, w.grant(d, queued(r)).Abandoned, "the writer finished")
	}
	b.End = driver.EndUnfinished
	w.release(d, b)
	failIf(t, !w.grant(d, queued(late)).Abandoned, "the sharer did not finish")
	for _, r := range []contend.Owner{early, slot} {
		failIf(t, w.grant(d, queued(r)).Abandoned, "told of a sharer that had the key beside it")
	}
}

// A Raise of one that was handed a key claims it: its fence must be above all that may have been
// granted, not only above the previous holder's.
func TestRaiseOfAHandoff(t *testing.T) {
	w, d := newVoting(t)
	a, b := proposing("k", w.micros()), proposing("k", 1)
	w.on(d).grant(a).wait(b).release(a)
	w.mark(a.Fence+1000, a.Fence+2000, a.Fence+3000, w.micros())
	b.Raise, b.Fence = true, a.Fence+500
	if floor := w.tooLow(d, b); floor != a.Fence+1000 {
		t.Errorf("the floor is %d above the previous fence, want 1000", floor-a.Fence)
	}
	b.Fence = a.Fence + 1001
	w.grant(d, b)
}

// Who asks shows that its inbox is read: the strike is taken from it, for its other places, too.
func TestWhoAsksIsNotStruck(t *testing.T) {
	w, d, slow := newTwo(t)
	other, asks := ask("k"), ask("k")
	w.on(d).grant(ask("k")).on(slow).wait(other, asks)
	w.tick()
	w.strike("k", slow)
	w.on(slow).do("DEL", "lock:k").join(asks).on(d).has(other)
}
