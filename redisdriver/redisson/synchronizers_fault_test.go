// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package redisson

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/redisdriver/internal/wire"
	"github.com/redis/go-redis/v9"
)

// holder is a link that holds the answer to one request.
type holder struct {
	*faultproxy.Proxy
	armed atomic.Bool
	conn  atomic.Int64
	came  chan struct{} // closed when the answer is there
	goes  chan struct{}
	let   func() // lets the answer go on
}

func (w *world) holder(op string) (*holder, *redis.Client) {
	for _, script := range []*wire.Script{semaphore, expirable, latch} {
		w.do("SCRIPT", "LOAD", script.Text())
	}
	h := &holder{Proxy: faultproxy.New(w, w.server.Addr()), came: make(chan struct{}), goes: make(chan struct{})}
	h.let = sync.OnceFunc(func() { close(h.goes) })
	w.Cleanup(h.let)
	h.Hook(func(c faultproxy.Chunk) bool {
		switch {
		case c.Dir == faultproxy.Up && bytes.Contains(c.Data, []byte(op)) && h.armed.CompareAndSwap(true, false):
			h.conn.Store(int64(c.Conn))
		case c.Dir == faultproxy.Down && h.conn.CompareAndSwap(int64(c.Conn), 0):
			close(h.came)
			<-h.goes
		}
		return false
	})
	rdb := redis.NewClient(&redis.Options{
		Addr: h.Addr(), DisableIdentity: true, ReadTimeout: 5 * time.Minute, ContextTimeoutEnabled: true, MaxRetries: -1,
	})
	w.Cleanup(func() { _ = rdb.Close() })
	return h, rdb
}

// dated is a context that has a deadline, and does not end then.
type dated struct{ context.Context }

func (dated) Deadline() (at time.Time, ok bool) { return time.Now().Add(time.Second), true }

// What is granted to somebody who has left is given back, also after its deadline.
func TestLateGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(ctx context.Context, s *Synchronizers) error{
		"semaphore": func(ctx context.Context, s *Synchronizers) error { return s.Semaphore("k").Acquire(dated{ctx}, 2) },
		"try": func(ctx context.Context, s *Synchronizers) error {
			_, err := s.Semaphore("k").TryAcquire(dated{ctx}, 2)
			return err
		},
		"expirable": func(ctx context.Context, s *Synchronizers) error {
			_, err := s.PermitExpirableSemaphore("k").AcquireMany(ctx, 2, 0)
			return err
		},
		"expirable try": func(ctx context.Context, s *Synchronizers) error {
			_, err := s.PermitExpirableSemaphore("k").TryAcquireMany(ctx, 2, time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			h, rdb := w.holder("acquire")
			s := w.synchronizers(rdb)
			w.do("SET", "k", 2)
			ctx, cancel := context.WithCancel(w.ctx)
			h.armed.Store(true)
			done := begin(func() error { return acquire(ctx, s) })
			<-h.came
			if got := w.do("GET", "k"); got != "0" {
				t.Fatalf("%v are free", got)
			}
			if name == "semaphore" || name == "try" { // until the deadline has passed
				time.Sleep(time.Second)
			}
			cancel()
			w.ends(done, context.Canceled)
			h.let()
			w.until("they are free", func() bool { return w.do("GET", "k") == "2" })
			if n := w.admin.ZCard(w.ctx, "{k}:timeout").Val(); n != 0 {
				t.Errorf("%d are acquired", n)
			}
		})
	}
}

// A reply that is lost: permits with an id are given back until that is answered, and the wait goes on; of those without one it is an error.
func TestLostReply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, rdb := w.holder("acquire")
	s := w.synchronizers(rdb)
	m := s.PermitExpirableSemaphore("k")
	w.succeeds(m.SetPermits(w.ctx, 1))
	h.armed.Store(true)
	var id string
	done := begin(func() (err error) { id, err = m.Acquire(w.ctx, 0); return err })
	<-h.came
	first := w.admin.ZRange(w.ctx, "{k}:timeout", 0, -1).Val()
	h.Reset()
	h.let()
	w.ends(done, nil)
	raw, _ := hex.DecodeString(id)
	if all := w.admin.ZRange(w.ctx, "{k}:timeout", 0, -1).Val(); len(all) != 1 || all[0] != string(raw) || len(first) != 1 || first[0] == all[0] {
		t.Errorf("%q are acquired, were %q, and ours is %q", all, first, raw)
	}

	w.do("FLUSHALL")
	h, rdb = w.holder("acquire")
	s = w.synchronizers(rdb)
	w.do("SET", "k", 1)
	h.armed.Store(true)
	done = begin(func() error {
		err := s.Semaphore("k").Acquire(w.ctx, 1)
		failIf(t, wire.Classify(err) != driver.ClassUnreachable, "it says %v", err)
		return err
	})
	<-h.came
	h.Reset()
	h.let()
	if err := <-done; err == nil || w.do("GET", "k") != "0" {
		t.Errorf("it says %v, and %v are free", err, w.do("GET", "k"))
	}
}

// Permits are given back also when the link is away for a while, and a request for them that comes later grants nothing.
func TestGivenBackOnceTheServerIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, rdb := w.holder("acquire")
	s := w.synchronizers(rdb)
	m := s.PermitExpirableSemaphore("k")
	w.succeeds(m.SetPermits(w.ctx, 1))
	h.armed.Store(true)
	ctx, cancel := context.WithCancel(w.ctx)
	done := begin(func() error { _, err := m.TryAcquire(ctx, 0); return err })
	<-h.came
	raw := w.admin.ZRange(w.ctx, "{k}:timeout", 0, -1).Val()
	h.Refuse()
	h.Reset()
	h.let()
	if err := <-done; err == nil {
		t.Error("its reply came")
	}
	cancel()
	w.until("it is being given back", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.giving == 1
	})
	if got := w.do("GET", "k"); got != "0" {
		t.Errorf("%v are free", got)
	}
	h.Clear()
	w.until("it is free", func() bool { return w.do("GET", "k") == "1" })
	late, err := m.do(w.ctx, m.step("acquire", hex.EncodeToString([]byte(raw[0])), 0, raw[0]))
	if err != nil || late.done || w.do("GET", "k") != "1" {
		t.Errorf("a late request says %v, %v; %v are free", late, err, w.do("GET", "k"))
	}
	if left := w.admin.PTTL(w.ctx, "hasp.gone:"+hex.EncodeToString([]byte(raw[0]))+":{k}").Val(); left <= 0 || left > driver.MaxTransit {
		t.Errorf("that is remembered for %v", left)
	}
}

// Permits without an id are not given back a second time, when the answer to the first is lost.
func TestGivenBackOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, rdb := w.holder("release")
	s := w.synchronizers(rdb)
	h.armed.Store(true)
	s.giveBack(func() *wire.Call { return s.Semaphore("k").step("release", 1) }, true, 0)
	<-h.came
	h.Reset()
	h.let()
	w.until("it is over", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.giving == 0
	})
	if got := w.do("GET", "k"); got != "1" {
		t.Errorf("%v are free", got)
	}
}

// A wait goes on while the server is away, and ends with ctx, which says what was in the way.
func TestWaitWithoutAServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, rdb := w.holder("acquire")
	s := w.synchronizers(rdb)
	w.do("SET", "k", 1)
	h.Refuse()
	ctx, cancel := context.WithCancel(w.ctx)
	gone := begin(func() error {
		l := s.CountDownLatch("k")
		err := (&wait{object: &l.object, try: func(ctx context.Context) (bool, time.Duration, error) {
			_, err := l.Count(ctx)
			cancel()
			return false, 0, err
		}}).run(ctx)
		failIf(t, wire.Classify(err) != driver.ClassUnreachable, "it does not say what was in the way: %v", err)
		return err
	})
	done := begin(func() error { return s.CountDownLatch("k").Wait(w.ctx) })
	taken := begin(func() error { return s.Semaphore("k").Acquire(w.ctx, 1) })
	w.ends(gone, context.Canceled)
	h.Clear()
	w.ends(taken, nil) // nothing was sent, so nothing was lost
	w.do("DEL", "k")
	w.do("PUBLISH", latchK, "0")
	w.ends(done, nil)
	err := (&wait{object: &s.CountDownLatch("k").object, since: time.Now().Add(-2 * silentTime), trouble: errors.New("before"),
		try: func(context.Context) (bool, time.Duration, error) { return false, 0, context.DeadlineExceeded },
	}).run(w.ctx)
	failIf(t, !errors.Is(err, errSilent), "after a long silence: %v", err)
}

// A caller without a deadline is not told that one has passed, when the server is silent.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h, rdb := w.holder("acquire")
	s := w.synchronizers(rdb)
	w.do("SET", "k", 1)
	h.armed.Store(true)
	err := s.Semaphore("k").Acquire(context.Background(), 1) // until askTime is over
	if errors.Is(err, context.DeadlineExceeded) || wire.Classify(err) != driver.ClassUnreachable || !strings.Contains(err.Error(), "no answer from the server within 5s") {
		t.Errorf("it says %v, of the class %v", err, wire.Classify(err))
	}
	h.let()
	w.until("the late grant was given back", func() bool { return w.do("GET", "k") == "1" })

	m := s.PermitExpirableSemaphore("k")
	err = (&wait{object: &m.object, since: time.Now().Add(-2 * silentTime), trouble: errors.New("before"),
		try: func(context.Context) (bool, time.Duration, error) {
			return false, 0, driver.NotSent(context.DeadlineExceeded)
		},
	}).run(w.ctx)
	failIf(t, !driver.IsNotSent(err) || !errors.Is(err, errSilent), "of a request that was not sent: %v", err)
	ctx, cancel := context.WithDeadline(w.ctx, time.Now())
	defer cancel()
	if err := s.CountDownLatch("l").Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the caller's deadline: %v", err)
	}
}
