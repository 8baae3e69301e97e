// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package hasp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/admission"
)

// request is the context of one request to the store: it ends with the caller's, at the
// deadline, when the client begins to close, and with done. Most requests are answered
// before a goroutine waits for its end, and a timer and a channel cost as much as all else that
// a lock does here: they are made when Done asks for them.
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

// done ends it: its answer is no longer needed.
func (r *request) done() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = cmp.Or(r.over, context.Canceled)
	if r.inner != nil {
		r.stop()
	}
}

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

// ask is one Try, and a second when the first was refused by a store that has been admitted
// since. refusal is set when the store, not the key, was the reason.
func (c *core) ask(ctx context.Context, r driver.TryRequest) (res driver.Result, refusal, err error) {
	for range 2 {
		unsettled := res.Unsettled
		res, err = c.drv.Try(ctx, r)
		res.Unsettled = res.Unsettled || unsettled
		if c.hears(err); err != nil {
			return res, nil, err
		}
		var admitted bool
		if admitted, refusal = c.refusedToVote(ctx, res, r.TTL); !admitted {
			break
		}
	}
	return res, refusal, nil
}

// refusedToVote is the error of a refusal that is about the store; nil for any
// other. A store that is held back is admitted when its wait is over.
func (c *core) refusedToVote(ctx context.Context, res driver.Result, ttl time.Duration) (admitted bool, err error) {
	switch res.Why {
	case driver.NotVoting:
		n, ok := c.drv.(driver.Recorded)
		if !ok {
			return false, &admission.HeldBack{Left: res.Left}
		}
		rec, err := n.Record(ctx)
		if err == nil {
			err = c.waits.Admit(ctx, n, rec, c.traits.MaxTTL, max(c.traits.MaxTTL, rec.MaxTTL))
		}
		return err == nil, cmp.Or[error](err, &admission.HeldBack{})
	case driver.TTLTooLong:
		return false, &tooLongError{ttl, res.TTL}
	}
	return false, nil
}

// unshared returns why the engine cannot share a key, or not by number.
func (c *core) unshared(limit int) error {
	switch tr := c.traits; {
	case !tr.Shared:
		return fmt.Errorf("%w: %s gives a key to one holder at a time", ErrUnsupported, tr.Engine)
	case limit > 0 && !tr.Slots:
		return fmt.Errorf("%w: %s has no slots: counting votes would admit more than %d", ErrUnsupported, tr.Engine, limit)
	}
	return nil
}

// heldBack returns how long a store is still held back, as far as an error says.
func heldBack(err error) time.Duration {
	if held := (*admission.HeldBack)(nil); errors.As(err, &held) {
		return max(held.Left, 0)
	}
	return 0
}
