// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"testing"
	"time"
)

const latchK = latchChannel + "{k}"

// A latch is Redisson's string, and says what it does as Redisson does.
func TestLatchLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.synchronizers(w.client("")).CountDownLatch("k")
	next, yes, number := w.messages(latchK), must[bool](t), must[int](t)
	w.succeeds(l.Wait(w.ctx)) // it is open before it is set
	w.succeeds(l.CountDown(w.ctx))
	if got := everything(t, w.admin); len(got) != 0 {
		t.Errorf("there are %q", got)
	}
	if !yes(l.TrySetCount(w.ctx, 2)) || yes(l.TrySetCount(w.ctx, 3)) || next() != "1" || w.do("GET", "k") != "2" {
		t.Error("TrySetCount")
	}
	w.succeeds(l.CountDown(w.ctx))
	if n := number(l.Count(w.ctx)); n != 1 {
		t.Errorf("the count is %d", n)
	}
	w.succeeds(l.CountDown(w.ctx))
	if got := next(); got != "0" || number(l.Count(w.ctx)) != 0 || len(everything(t, w.admin)) != 0 {
		t.Errorf("it opened with the message %s, and there are %q", got, everything(t, w.admin))
	}
	w.do("SET", "k", "-1") // what Redisson never leaves
	failIf(t, number(l.Count(w.ctx)) != 0, "a count below 0 is none")
	w.succeeds(l.Wait(w.ctx))
	w.succeeds(l.CountDown(w.ctx))
	if _, err := l.TrySetCount(w.ctx, 0); err == nil {
		t.Error("a count of 0")
	}
}

// All who wait go on when Java counts the last event, and not when it closes the latch.
func TestLatchWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	l := s.CountDownLatch("k")
	must[bool](t)(l.TrySetCount(w.ctx, 2))
	w.joined(s, latchK)
	ctx, leave := context.WithCancel(w.ctx)
	var done [3]<-chan error
	for i := range done {
		done[i] = begin(func() error { return l.Wait(w.ctx) })
	}
	gone := begin(func() error { return l.Wait(ctx) })
	w.asleep(s, latchK, 4)
	before := w.scripts()
	leave()
	w.ends(gone, context.Canceled)
	w.succeeds(l.CountDown(w.ctx))
	w.do("PUBLISH", latchK, "1")
	w.do("PUBLISH", latchK, "0") // which is not so
	w.until("they ask", func() bool { return w.scripts() >= before+1+3 })
	for i := range done {
		w.runs(done[i])
	}
	w.do("DECR", "k") // Java
	w.do("DEL", "k")
	w.do("PUBLISH", latchK, "0")
	for i := range done {
		w.ends(done[i], nil)
	}
}

// A latch that is gone is open, as Redisson defines it, whatever it counted.
func TestLatchThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	s.poll = 50 * time.Millisecond // no message says so
	l := s.CountDownLatch("k")
	must[bool](t)(l.TrySetCount(w.ctx, 3))
	done := begin(func() error { return l.Wait(w.ctx) })
	w.asleep(s, latchK, 1)
	w.do("FLUSHALL")
	w.ends(done, nil)
}
