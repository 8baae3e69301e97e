// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
)

const scK = "redisson_sc:{k}"

// A semaphore is Redisson's string, and says what it does as Redisson does.
func TestSemaphoreLayout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.synchronizers(w.client("")).Semaphore("k")
	next, yes, number := w.messages(scK), must[bool](t), must[int](t)
	if n := number(m.Available(w.ctx)); n != 0 || yes(m.TryAcquire(w.ctx, 1)) {
		t.Errorf("of none %d are free, or one was granted", n)
	}
	failIf(t, !yes(m.TrySetPermits(w.ctx, 3)) || yes(m.TrySetPermits(w.ctx, 5)) || next() != "3", "TrySetPermits")
	if !yes(m.TryAcquire(w.ctx, 2)) || yes(m.TryAcquire(w.ctx, 2)) || !yes(m.TryAcquire(w.ctx, 0)) {
		t.Error("TryAcquire of 2, 2 and 0 of 3")
	}
	w.succeeds(m.Acquire(w.ctx, 1))
	if got := w.do("GET", "k"); got != "0" {
		t.Errorf("Java sees %v free", got)
	}
	w.do("INCRBY", "k", 4) // Java releases
	if n := number(m.Drain(w.ctx)); n != 4 {
		t.Errorf("%d were drained", n)
	}
	w.do("PEXPIRE", "k", 3_600_000)
	w.succeeds(m.Release(w.ctx, 2))
	w.succeeds(m.AddPermits(w.ctx, 5))
	if a, b := next(), next(); a != "2" || b != "7" {
		t.Errorf("the messages are %s, %s", a, b)
	}
	w.succeeds(m.AddPermits(w.ctx, -1)) // which wakes nobody
	w.succeeds(m.AddPermits(w.ctx, -8)) // Java takes no message of less than none
	w.succeeds(m.Release(w.ctx, 1))
	if n := number(m.Available(w.ctx)); n != -1 {
		t.Errorf("%d are free", n)
	}
	if n := number(m.Drain(w.ctx)); n != -1 || w.do("GET", "k") != "0" {
		t.Errorf("%d were drained, and %v stay", n, w.do("GET", "k"))
	}
	if left := w.admin.PTTL(w.ctx, "k").Val(); left <= 0 {
		t.Errorf("the expiry is %v", left)
	}
	w.do("DEL", "k")
	w.succeeds(m.Release(w.ctx, 1))
	if got := next(); got != "1" || w.do("GET", "k") != "1" {
		t.Errorf("after the release of what does not exist the message is %s", got)
	}
	for _, err := range []error{m.Acquire(w.ctx, -1), m.Release(w.ctx, -1), m.AddPermits(w.ctx, 1<<31)} {
		failIf(t, err == nil, "a number that Java does not have")
	}
}

// Java's message wakes as many as it says, in the order in which they came; one that leaves passes it on.
func TestSemaphoreWaiters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	m := s.Semaphore("k")
	first := w.joined(s, scK)
	const n = 4
	var done [n]<-chan error
	ctx, leave := context.WithCancel(w.ctx)
	for i := range n {
		c := w.ctx
		if i == 1 {
			c = ctx
		}
		done[i] = begin(func() error { return m.Acquire(c, 1) })
		w.asleep(s, scK, i+1)
	}
	w.do("INCRBY", "k", 1)
	w.do("PUBLISH", scK, "1")
	w.ends(done[0], nil)
	leave()
	w.ends(done[1], context.Canceled)
	w.runs(done[2])
	w.do("INCRBY", "k", 2)
	w.do("PUBLISH", scK, "2")
	w.ends(done[2], nil)
	w.ends(done[3], nil)
	first()
	w.until("nobody listens", func() bool { return w.admin.PubSubNumSub(w.ctx, scK).Val()[scK] == 0 })
	if got := w.do("GET", "k"); got != "0" {
		t.Errorf("%v are free", got)
	}
}

// A waiter that is woken, and refused since it wants more, gives the hint to one that wants fewer.
func TestSemaphoreWaiterOfMore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	m := s.Semaphore("k")
	w.joined(s, scK)
	more := begin(func() error { return m.Acquire(w.ctx, 3) })
	w.asleep(s, scK, 1)
	two := begin(func() error { return m.Acquire(w.ctx, 2) })
	w.asleep(s, scK, 2)
	one := begin(func() error { return m.Acquire(w.ctx, 1) })
	w.asleep(s, scK, 3)
	w.succeeds(m.Release(w.ctx, 1))
	w.ends(one, nil)
	w.runs(more)
	w.runs(two)
	w.succeeds(m.Release(w.ctx, 5))
	w.ends(more, nil)
	w.ends(two, nil)
}

// Which waiters a message wakes.
func TestWakeSynchronizer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		channel, payload string
		woken            []int // who already is
		want             []int // who then has a hint
	}{
		{scK, "1", nil, []int{0}},
		{scK, "2", nil, []int{0, 1}},
		{scK, "9", nil, []int{0, 1, 2}},
		{scK, "1", []int{0}, []int{0, 1}},
		{scK, "0", nil, nil},
		{scK, "-3", nil, nil},
		{scK, "many", nil, nil},
		{latchChannel + "{k}", "0", nil, []int{0, 1, 2}},
		{latchChannel + "{k}", "1", nil, nil},
		{latchChannel + "{k}", "", nil, nil},
	} {
		all := []*watcher{{}, {}, {}}
		for _, w := range all {
			w.hint = make(chan driver.Hint, 1)
		}
		for _, i := range c.woken {
			all[i].signal()
		}
		wakeSynchronizer(c.channel, c.payload, all)
		var got []int
		for i, w := range all {
			if len(w.hint) > 0 {
				got = append(got, i)
			}
		}
		if len(got) != len(c.want) || len(got) > 0 && got[len(got)-1] != c.want[len(c.want)-1] {
			t.Errorf("%q on %s wakes %v, want %v", c.payload, c.channel, got, c.want)
		}
	}
}

// What is released after the refusal, and before the subscription stands, is found without a message.
func TestAsksOnceSubscribed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	w.joined(s, scK)
	m := s.Semaphore("k")
	asks := 0
	done := begin(func() error {
		return (&wait{object: &m.object, permits: 1, try: func(ctx context.Context) (bool, time.Duration, error) {
			ok, err := m.try(ctx, 1)
			if asks++; asks == 1 {
				w.succeeds(w.admin.Incr(ctx, "k").Err())
			}
			return ok, 0, err
		}}).run(w.ctx)
	})
	w.ends(done, nil)
	failIf(t, asks != 2, "it asked %d times", asks)
}

// A message that comes while a waiter asks wakes it again: what it asked may have come first.
func TestMessageWhileAsking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	w.joined(s, scK)
	p := s.posts.Find(-1)
	one := &watcher{}
	p.watch(w.ctx, scK, one)
	for range 2 {
		w.do("PUBLISH", scK, "1")
		w.hint(one.hint)
		defer p.asks(one)()
	}
}

// Who leaves after a message woke it, and did not ask since, hands the hint on to the next.
func TestHintIsHandedOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	p, err := s.posts.Get(-1)
	w.succeeds(err)
	var leave [3]context.CancelFunc
	var all [3]*watcher
	for i := range all {
		if ok, err := p.Join(w.ctx, scK); !ok {
			t.Fatal(err)
		}
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(w.ctx)
		defer leave[i]()
		all[i] = &watcher{permits: 1}
		p.watch(ctx, scK, all[i])
	}
	w.do("PUBLISH", scK, "1")
	w.hint(all[0].hint)
	leave[0]()
	w.hint(all[1].hint)
	p.asks(all[1])() // its request is answered: the message was for it
	leave[1]()
	w.until("it has left", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting[scK]) == 1
	})
	failIf(t, len(all[2].hint) > 0, "the last one has a hint")
}

// Without messages waiters ask: when they are lost, when the connection was, and when the server allows none.
func TestWaitersWithoutMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, lose := range map[string]func(s *Synchronizers){
		"lost":       func(*Synchronizers) { w.do("INCRBY", "k", 1) },
		"connection": func(*Synchronizers) { w.do("INCRBY", "k", 1); w.do("CLIENT", "KILL", "TYPE", "pubsub") },
	} {
		s := w.synchronizers(w.client(""))
		if name == "lost" {
			s.poll = 50 * time.Millisecond
		}
		w.joined(s, scK)
		done := begin(func() error { return s.Semaphore("k").Acquire(w.ctx, 1) })
		w.asleep(s, scK, 1)
		lose(s)
		w.ends(done, nil)
		w.succeeds(s.Close())
	}
	w.do("ACL", "SETUSER", "u", "on", "nopass", "resetchannels", "~*", "+@all")
	s := w.synchronizers(w.client("u"))
	done := begin(func() error { return s.Semaphore("k").Acquire(w.ctx, 1) })
	w.until("it asks", func() bool { return w.scripts() >= 3 })
	w.succeeds(s.Semaphore("k").Release(w.ctx, 1)) // without a message
	w.ends(done, nil)
}

// No number of permits that Java cannot read comes from here.
func TestTooManyPermits(t *testing.T) {
	t.Parallel()
	const most = 1<<31 - 1
	w := newWorld(t)
	s := w.synchronizers(w.client(""))
	m, e := s.Semaphore("k"), s.PermitExpirableSemaphore("k")
	refused := func(want string, errs ...error) {
		t.Helper()
		for i, err := range errs {
			failIf(t, err == nil || !strings.Contains(err.Error(), "nothing was added"), "%d: %v", i, err)
		}
		if got := w.do("GET", "k"); got != want {
			t.Errorf("there are %v, want %s", got, want)
		}
	}
	must[bool](t)(m.TrySetPermits(w.ctx, most))
	refused("2147483647", m.Release(w.ctx, 1), m.AddPermits(w.ctx, 1), e.AddPermits(w.ctx, 1))
	id, err := e.TryAcquire(w.ctx, 0)
	w.succeeds(err)
	refused("2147483646", e.AddPermits(w.ctx, 1)) // which the holder would give back
	w.succeeds(e.Release(w.ctx, id))
	w.do("SET", "k", most+10) // as Java's own script leaves it
	refused("2147483657", m.Release(w.ctx, 1))
	w.succeeds(m.AddPermits(w.ctx, -10))
	w.do("SET", "k", -most)
	w.succeeds(m.AddPermits(w.ctx, -1))
	refused("-2147483648", m.AddPermits(w.ctx, -1), e.AddPermits(w.ctx, -1))
}
