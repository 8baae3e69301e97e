// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package sqldriver

import (
	"context"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/contend"
	"github.com/hasplock/hasp/internal/testserver"
)

// Rule: of a client's waiters for a key only the first asks at intervals. The next is woken when its wait
// ends, and when it has lost its place; readers, who may all have the key at once, each ask.
func TestOneOfALinePolls(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]database{"Postgres": newPostgres(t, testserver.Postgres(t)), "MySQL": newMySQL(t, testserver.MariaDB(t))} {
		t.Run(name, func(t *testing.T) { oneOfALinePolls(t, d.open(t), d.open(t)) })
	}
}

func oneOfALinePolls(t *testing.T, s, other *Server) {
	type waiter struct {
		contend.Owner
		wake <-chan driver.Hint
		end  context.CancelFunc
	}
	lasting := func() contend.Owner { // however slowly this goes on
		r := settled(request("k"))
		r.TTL, r.Patience = time.Hour, time.Hour
		return r
	}
	asks := func(w waiter, polls bool) {
		t.Helper()
		if res, err := contend.Try(t.Context(), s, w.Owner); err != nil || res.Granted || (res.RetryIn > 0) != polls {
			t.Fatalf("%+v, %v; it polls: want %v", res, err, polls)
		}
	}
	join := func(mode driver.Mode) (w waiter) {
		t.Helper()
		w.Owner = queued(lasting())
		w.Mode = mode
		var ctx context.Context
		ctx, w.end = context.WithCancel(t.Context())
		var err error
		w.wake, err = contend.Watch(ctx, s, w.Owner)
		must(t, err)
		asks(w, true) // it is not known which of those that joined at once came first
		return w
	}
	quiet := func(ws ...waiter) {
		t.Helper()
		for i, w := range ws {
			select {
			case <-w.wake:
				t.Fatalf("%d was woken", i)
			default:
			}
		}
	}
	holder := lasting()
	granted(t, other, holder)
	first, second, third, fourth, reader := join(driver.Exclusive), join(driver.Exclusive), join(driver.Exclusive), join(driver.Exclusive), join(driver.Shared)
	asks(third, true)
	asks(second, true)
	asks(first, true)
	asks(third, false)
	asks(second, false)
	asks(fourth, false)
	asks(reader, true)
	renewal(t, s, second.Owner)
	quiet(first, second, third, fourth, reader)

	must(t, contend.Release(t.Context(), s, first.Owner)) // as after a pause longer than the patience
	asks(first, true)
	<-second.wake
	asks(second, true)
	asks(first, false)
	quiet(first, second, third, fourth)

	must(t, contend.Release(t.Context(), other, holder))
	granted(t, s, second.Owner)
	second.end()
	<-third.wake
	asks(third, true)
	third.end()
	must(t, contend.Release(t.Context(), s, third.Owner))
	<-fourth.wake
	must(t, contend.Release(t.Context(), s, second.Owner))
	granted(t, s, fourth.Owner)
	quiet(first, reader)
	for _, w := range []waiter{first, fourth, reader} {
		w.end()
	}
	s.lines.mu.Lock()
	for len(s.lines.keys) > 0 { // each in a goroutine of its own
		s.lines.mu.Unlock()
		must(t, t.Context().Err())
		s.lines.mu.Lock()
	}
	s.lines.mu.Unlock()
}
