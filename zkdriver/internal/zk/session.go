// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package zk

import (
	"context"
	"sync"
	"time"
)

// A Session is one session with the servers. Its ephemeral nodes exist for as long as it does.
type Session struct {
	c      *Client
	id     int64
	passwd []byte
	over   chan struct{}

	mu      sync.Mutex
	timeout time.Duration
	touched []touch // of late, in order
	assured time.Time
}

// touch is a sign of life that a server has answered.
type touch struct {
	sent, answered time.Time
	direct         bool // the leader itself has it
}

// ID returns the session's id, which is its nodes' EphemeralOwner.
func (s *Session) ID() int64 { return s.id }

// Timeout is what the servers granted: how long the session lasts without a sign of life.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Ended reports whether the session is over, as far as the client knows: a server said so, or the client was closed.
func (s *Session) Ended() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// The share of the session's time-out after which a sign of life has reached the leader, and that between two of them.
//
// A server that is no leader notes signs of life, also those that come with a write, and the leader collects
// them each half tick. The shortest time-out that servers grant is two ticks: so half a tick is a quarter of it at most.
const (
	collected = 4
	rhythm    = 12
)

// Share is the part of its time-out for which a session is assured after a write, when nothing is late: [Session.Assured].
func Share(timeout time.Duration) time.Duration { return timeout - timeout/collected - timeout/rhythm }

// Assured returns the moment before which the session cannot have expired, by what the leader has answered.
//
// It is not the time-out counted from the latest write: the leader commits a write that came by
// another server without a look at the session's time. But by then it had collected the signs of life that the
// other server noted half a tick before.
func (s *Session) Assured() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.assured
}

// answered notes an answer to what was sent at a time, and, of a write, what it assures.
func (s *Session) answered(sent time.Time, write bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if write {
		s.prove(sent)
	}
	if n := len(s.touched); n > 0 && sent.Sub(s.touched[n-1].sent) < s.timeout/(4*rhythm) {
		return // near enough to the one before
	}
	s.note(touch{sent: sent, answered: now})
}

// note remembers a sign of life. The caller holds mu.
func (s *Session) note(t touch) {
	const most = 64
	if len(s.touched) == most {
		s.touched = append(s.touched[:0], s.touched[most/2:]...)
	}
	s.touched = append(s.touched, t)
}

// lapsed reports whether no answer came for the whole time-out: what the session held is not promised any more.
func (s *Session) lapsed(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return elapsed(s.touched[len(s.touched)-1].sent, now) >= s.timeout
}

// prove finds the latest sign of life that the leader had when it committed a write. The caller holds mu.
func (s *Session) prove(written time.Time) {
	now := time.Now()
	for i := len(s.touched) - 1; i >= 0; i-- {
		t := s.touched[i]
		if t.direct && !written.Before(t.answered) || written.Sub(t.answered) >= s.timeout/collected {
			if until := now.Add(s.timeout - elapsed(t.sent, now)); until.After(s.assured) {
				s.assured = until
			}
			return
		}
	}
}

// elapsed is the time since then. Go's clock stands still while the machine sleeps, and the servers' do not: where the wall
// clock says that more time has passed, it is believed.
func elapsed(then, now time.Time) time.Duration {
	return max(now.Sub(then), now.Round(0).Sub(then.Round(0)))
}

// batch is some calls that were sent together.
type batch struct {
	left int // calls without an answer; of the link's reader
	err  error
	done chan struct{}
	then func(error) // instead of done
}

func (b *batch) finish(err error) {
	if err != nil {
		b.err = err
	}
	if b.then != nil {
		b.then(b.err)
		return
	}
	close(b.done)
}

// Do sends all the calls at once, on this session, and waits for the answers. They are carried out in
// this order, and after everything that was sent before. When the error is nil each call has its own Err. On an
// error no call may be looked at: unless [IsUnsent], those that write may or may not be carried out.
func (s *Session) Do(ctx context.Context, calls ...*Call) error {
	if err := ctx.Err(); err != nil {
		return unsent{err}
	}
	if len(calls) == 0 {
		return nil
	}
	b := &batch{left: len(calls), done: make(chan struct{})}
	if err := s.send(b, calls); err != nil {
		return err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Start is Do without the wait. Unless it returns an error, of calls that were not sent, then is called once, with what Do would return, by
// the goroutine that reads, and before that connects again. It must not block.
func (s *Session) Start(then func(error), calls ...*Call) error {
	return s.send(&batch{left: len(calls), then: then}, calls)
}

func (s *Session) send(b *batch, calls []*Call) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.over:
		return unsent{ErrClosed}
	case c.sess != s:
		return unsent{ErrEnded}
	case c.link == nil || !c.link.send(b, calls):
		return unsent{ErrLost}
	}
	return nil
}

// Forget drops a watch, which is not fired from then on.
func (c *Client) Forget(w *Watch) {
	c.mu.Lock()
	l := c.link
	c.mu.Unlock()
	if l != nil {
		l.forget(w)
	}
}
