// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// request is the context of one request to the store: it ends with the caller's, at the
// deadline, when the client begins to close, and with done. Most requests are answered
// before anybody waits for its end, and a timer and a channel cost as much as all else that
// a lock does here: they are made when Done asks for them.
//
// Whoever makes a request asks again after driver.AskAgain.
type request struct {
	context.Context                 // the caller's
	open            context.Context // ends when the client begins to close; nil: that does not end it
	deadline        time.Time       // its own; zero: the caller's is earlier

	mu    sync.Mutex
	over  error           // once it is known to have ended
	inner context.Context // what Done asked for
	stop  func()          // ends inner
}

// newRequest returns a context that ends limit from now.
func newRequest(ctx, open context.Context, limit time.Duration) *request {
	r := &request{Context: ctx, open: open, deadline: time.Now().Add(limit)}
	if by, ok := ctx.Deadline(); ok && !r.deadline.Before(by) {
		r.deadline = time.Time{}
	}
	return r
}

// done ends it: nobody needs its answer.
func (r *request) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = cmp.Or(r.over, context.Canceled)
	if r.inner != nil {
		r.stop()
	}
}

// AsksAgain is for [driver.AsksAgain].
func (r *request) AsksAgain() context.Context { return r.Context }

// Deadline implements [context.Context].
func (r *request) Deadline() (time.Time, bool) {
	if r.deadline.IsZero() {
		return r.Context.Deadline()
	}
	return r.deadline, true
}

// Err implements [context.Context].
func (r *request) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.over != nil:
	case r.inner != nil:
		r.over = r.inner.Err()
	case r.Context.Err() != nil:
		r.over = r.Context.Err()
	case r.open != nil && r.open.Err() != nil:
		r.over = context.Canceled
	case !r.deadline.IsZero() && !time.Now().Before(r.deadline):
		r.over = context.DeadlineExceeded
	}
	return r.over
}

// Done implements [context.Context].
func (r *request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		var cancel context.CancelFunc
		if r.deadline.IsZero() {
			r.inner, cancel = context.WithCancel(r.Context)
		} else {
			r.inner, cancel = context.WithDeadline(r.Context, r.deadline)
		}
		r.stop = cancel
		if r.over != nil {
			cancel()
		} else if r.open != nil {
			forget := context.AfterFunc(r.open, cancel)
			r.stop = func() { forget(); cancel() }
		}
	}
	return r.inner.Done()
}

// Value implements [context.Context]. Contexts made from this one find in it what Done
// made, and need no goroutine each to follow it.
func (r *request) Value(key any) any {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return r.Context.Value(key)
}
