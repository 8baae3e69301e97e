// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hasplock/hasp"
)

// Locks are the client of a store, as a worker needs it.
type Locks interface {
	RWMutex(key string, o *hasp.LockOptions) *hasp.RWMutex
	Close() error
}

// worker is this process as one of the clients that are tried.
type worker struct {
	job    Job
	locks  Locks
	orders chan order
	waited atomic.Bool // the store refused since the latest order

	mu    sync.Mutex
	out   *json.Encoder
	lease *hasp.Lease // whose renewals are reported
}

// Work is all that a worker process does: it takes its job and then orders from
// in, reports to out, and ends when asked to. When in ends, so does the
// process: nobody is left to work for.
func Work(in io.Reader, out io.Writer, open func(Job, func(hasp.Event)) (Locks, error)) error {
	w := &worker{orders: make(chan order, 1), out: json.NewEncoder(out)}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&w.job); err != nil {
		return fmt.Errorf("no job: %w", err)
	}
	var err error
	if w.locks, err = open(w.job, w.observe); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go w.listen(dec, stop)
	for {
		o, err := w.ask(ctx, event{What: ready})
		if err != nil {
			return err
		}
		if o.Stop {
			break
		}
		if err := w.once(ctx, o); err != nil {
			return err
		}
	}
	_ = w.locks.Close() // what is left in the store ends by itself
	return w.report(event{What: bye})
}

// listen passes orders on, up to the one to stop, after which a worker ends soon.
func (w *worker) listen(dec *json.Decoder, stop func()) {
	for {
		var o order
		if err := dec.Decode(&o); err != nil {
			os.Exit(1)
		}
		if o.Stop {
			stop()
			return
		}
		w.orders <- o
	}
}

// report reports an event: it is in the parent's pipe when report returns.
func (w *worker) report(e event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(e)
}

// ask reports an event and returns its answer.
func (w *worker) ask(ctx context.Context, e event) (order, error) {
	if err := w.report(e); err != nil {
		return order{}, err
	}
	select {
	case o := <-w.orders:
		return o, nil
	case <-ctx.Done():
		return order{Stop: true}, nil
	}
}

// observe reports each renewal, which moves a deadline.
func (w *worker) observe(e hasp.Event) {
	switch e.Kind {
	case hasp.EventWaiting:
		w.waited.Store(true)
	case hasp.EventRenewed:
		w.mu.Lock()
		l := w.lease
		w.mu.Unlock()
		if l != nil && l.Owner() == e.Owner {
			_ = w.report(event{What: renewed, Fence: l.Fence(), Deadline: deadline(l)}) // a broken pipe ends the process elsewhere
		}
	}
}

// deadline is a lease's on the shared clock, never later than it is.
func deadline(l *hasp.Lease) Mono {
	at := now()
	return at.add(time.Until(l.Deadline()))
}

// once acquires a key, uses it, and gives it back. An error is one of the pipes.
func (w *worker) once(ctx context.Context, o order) error {
	wait := ctx
	if o.Limit > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, o.Limit)
		defer cancel()
	}
	w.waited.Store(false)
	if err := w.report(event{What: asked, At: now()}); err != nil {
		return err
	}
	m := w.locks.RWMutex(o.Key, &hasp.LockOptions{TTL: w.job.TTL, Reason: "hasp verify"})
	acquire := m.Lock
	if o.Shared {
		acquire = m.RLock
	}
	lease, err := acquire(wait)
	if err != nil {
		kind := kindOf(err)
		if wait.Err() != nil {
			kind = cancelled
		}
		return w.report(event{What: failed, At: now(), Kind: kind, Err: err.Error()})
	}
	at := now()
	if err := w.report(event{What: granted, At: at, Fence: lease.Fence(), Deadline: deadline(lease), Waited: w.waited.Load()}); err != nil {
		return err
	}
	w.follow(lease)
	over, err := w.use(ctx, lease, o)
	w.follow(nil)
	if err != nil {
		return err
	}
	if err := w.report(over); err != nil {
		return err
	}
	e := event{What: released, Deadline: over.Deadline}
	if err := lease.Release(); err != nil && !over.Lost {
		e.Kind, e.Err = kindOf(err), err.Error()
	}
	e.At = now()
	return w.report(e)
}

// follow says whose renewals are to be reported.
func (w *worker) follow(l *hasp.Lease) {
	w.mu.Lock()
	w.lease = l
	w.mu.Unlock()
}

// use changes the register under a lease, or reads it twice, and returns how the
// hold ended. It does not ask the lease whether it still stands before it writes:
// so does whoever was stopped between the question and the write.
func (w *worker) use(ctx context.Context, lease *hasp.Lease, o order) (over event, err error) {
	got, err := w.ask(ctx, event{What: read, Fence: lease.Fence()})
	if err != nil {
		return event{}, err
	}
	timer := time.NewTimer(o.Hold)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-lease.Done():
	}
	at := now()
	if !got.Refused && !got.Stop {
		last := write
		if o.Shared {
			last = look
		}
		if _, err := w.ask(ctx, event{What: last, Fence: lease.Fence(), Value: got.Value}); err != nil {
			return event{}, err
		}
	}
	over = event{What: ended, At: at, Fence: lease.Fence(), Deadline: deadline(lease)}
	if err := lease.Err(); err != nil {
		over.Lost, over.Kind, over.Err = true, kindOf(err), err.Error()
	} else {
		over.At = now() // it was relied on until here
	}
	return over, nil
}

// kindOf classifies an error in a word.
func kindOf(err error) string {
	var e *hasp.Error
	switch {
	case errors.Is(err, hasp.ErrNotHeld):
		return NotHeld
	case errors.Is(err, hasp.ErrLost):
		return expired
	case errors.As(err, &e):
		return troubles[e.Class]
	}
	return troubles[hasp.ClassUnknown]
}
