// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hasplock/hasp/driver"
)

// direct bounds the waits of lone calls. It is used by one caller at a time: see takeAlone.
type direct struct {
	timer *time.Timer   // there is one for all calls, until one of them has taken too long
	ended chan struct{} // closed by it
}

// begin returns the context to send a call of ctx with, until end.
func (d *direct) begin(ctx context.Context) context.Context {
	if d.timer != nil {
		d.timer.Reset(aloneFor)
	} else {
		ended := make(chan struct{})
		d.ended, d.timer = ended, time.AfterFunc(aloneFor, func() { close(ended) })
	}
	return waiting{ctx, d.ended, time.Now().Add(aloneFor)}
}

func (d *direct) end() {
	if !d.timer.Stop() {
		d.timer = nil
	}
}

// waiting is a context that ends with a wait. To make a timer and a channel for each costs as much as the call.
type waiting struct {
	context.Context
	ended <-chan struct{}
	until time.Time
}

func (w waiting) Done() <-chan struct{}       { return w.ended }
func (w waiting) Deadline() (time.Time, bool) { return w.until, true }

func (w waiting) Err() error {
	select {
	case <-w.ended:
		return context.DeadlineExceeded
	default:
		return w.Context.Err()
	}
}

// DoAlone is Do for a request that its caller may make twice, unless it says Once. The caller's own goroutine sends it if it is the
// only one, a request of a batch script, and the server answers promptly. That saves two switches between
// goroutines, half of what a call costs.
//
// The caller cannot leave, but after a moment: the client heeds deadlines (ContextTimeoutEnabled), though it lets no
// other end of a context interrupt its sockets. Then the error is Slow, and the caller makes the request again with Do. So one call of
// a server that stops answering is held up, for aloneFor at most, and no other.
func (s *Sender) DoAlone(ctx context.Context, c *Call) (any, error) {
	if ctx.Err() == nil && s.sendAlone(ctx, c) {
		return c.Reply, c.Err
	}
	return s.Do(ctx, c)
}

// Slow reports whether err is of a call that took its caller too long (DoAlone), and if so, whether it was sent: it may
// still arrive then.
func Slow(err error) (slow, sent bool) {
	e, slow := err.(slowError) //nolint:errorlint // as DoAlone returned it
	return slow, slow && !driver.IsNotSent(e.error)
}

type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

// sendAlone sends a call by its caller's goroutine, and reports whether it did. The caller counts as a lane.
func (s *Sender) sendAlone(ctx context.Context, c *Call) bool {
	if s.direct == nil || !c.Script.Batch || c.Once || !s.prompt.Load() {
		return false
	}
	if by, ok := ctx.Deadline(); ok && time.Until(by) < aloneFor || !s.takeAlone() {
		return false
	}
	defer s.giveAlone() // also when a hook of the client's panics
	wait := s.direct.begin(ctx)
	defer s.direct.end()
	c.ctx, c.alone[0] = ctx, c
	s.send(wait, c.alone[:])
	var network net.Error
	if c.Err != nil && errors.As(c.Err, &network) && network.Timeout() { // the answer, or the connection; context.DeadlineExceeded is such an error, too
		c.Err = slowError{c.Err}
	}
	return true
}

// takeAlone makes a lane of the caller, if there is no other, and nothing to do for one.
func (s *Sender) takeAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy > 0 || len(s.queue) > 0 {
		return false
	}
	s.busy++
	s.away++
	return true
}

// giveAlone ends that lane.
func (s *Sender) giveAlone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.returned++
	s.away--
	s.busy--
	if len(s.queue) > 0 {
		s.start()
	}
}
