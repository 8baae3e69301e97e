// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"context"
	"encoding/json"
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
	Semaphore(key string, slots int, o *hasp.LockOptions) *hasp.Semaphore
	Election(key string, o *hasp.LockOptions) *hasp.Election
	Close() error
}

// worker is this process as one of the clients that are tried.
type worker struct {
	job    Job
	locks  Locks
	orders chan Order
	waited atomic.Bool // the store refused since the latest order
	watch  sync.Once

	mu     sync.Mutex
	out    *json.Encoder
	leases map[string]*hasp.Lease // by owner: those whose renewals are reported
}

// Work is all that a worker process does: it takes its job and then orders from
// in, reports to out, and ends when asked to. When in ends, so does the
// process, as its parent has ended.
func Work(in io.Reader, out io.Writer, open func(Job, func(hasp.Event)) (Locks, error)) error {
	w := &worker{orders: make(chan Order, 1), out: json.NewEncoder(out), leases: map[string]*hasp.Lease{}}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&w.job); err != nil {
		return fmt.Errorf("no job: %w", err)
	}
	var err error
	if w.locks, err = open(w.job, w.observe); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background()) // until the parent says so
	defer stop()
	go w.listen(dec, stop)
	for {
		o, err := w.ask(ctx, Event{What: Ready})
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
	return w.report(Event{What: Bye})
}

// listen passes orders on, up to the one to stop, after which a worker ends soon.
func (w *worker) listen(dec *json.Decoder, stop func()) {
	for {
		var o Order
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
func (w *worker) report(e Event) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(e)
}

// ask reports an event and returns its answer.
func (w *worker) ask(ctx context.Context, e Event) (Order, error) {
	if err := w.report(e); err != nil {
		return Order{}, err
	}
	select {
	case o := <-w.orders:
		return o, nil
	case <-ctx.Done():
		return Order{Stop: true}, nil
	}
}

// observe reports each renewal, which moves a deadline.
func (w *worker) observe(e hasp.Event) {
	switch e.Kind {
	case hasp.EventWaiting:
		w.waited.Store(true)
	case hasp.EventRenewed:
		w.mu.Lock()
		l := w.leases[e.Owner]
		w.mu.Unlock()
		if l != nil {
			_ = w.report(Of(Renewed, l)) // a broken pipe ends the process elsewhere
		}
	}
}

// leaders reports every leader that is observed.
func (w *worker) leaders(ctx context.Context, key string) {
	for l, err := range w.locks.Election(key, nil).Observe(ctx) {
		if err == nil && l.Fence != 0 {
			_ = w.report(Event{What: Saw, At: Now(), Key: l.Key, Owner: l.Holder.Owner, Fence: l.Fence}) // as above
		}
	}
}

// Of returns an event of a lease. The deadline that it gives is never later than the real one.
func Of(w What, l *hasp.Lease) Event {
	at := Now()
	return Event{What: w, At: at, Key: l.Key(), Owner: l.Owner(), Fence: l.Fence(), Shared: l.Mode() == hasp.Shared, Slot: l.Slot(),
		Abandoned: l.Abandoned(), Deadline: at.Add(time.Until(l.Deadline()))}
}

// holding is what a client holds: a lease, or several.
type holding interface {
	All() []*hasp.Lease
	Done() <-chan struct{}
	Release() error
}

type single struct{ *hasp.Lease }

func (s single) All() []*hasp.Lease { return []*hasp.Lease{s.Lease} }

// acquire acquires what the order wants.
func (w *worker) acquire(ctx context.Context, o Order) (holding, error) {
	opts := &hasp.LockOptions{TTL: w.job.TTL, Reason: "hasp verify"}
	if len(o.Wants) > 1 {
		var items []hasp.Locker
		for _, want := range o.Wants {
			if m := w.locks.RWMutex(want.Key, opts); want.Shared {
				items = append(items, m.RLocker())
			} else {
				items = append(items, m)
			}
		}
		all, err := hasp.LockAll(ctx, items...)
		if err != nil {
			return nil, err
		}
		return all, nil
	}
	want := o.Wants[0]
	var lock func(context.Context) (*hasp.Lease, error)
	switch {
	case o.Slots > 0:
		lock = w.locks.Semaphore(want.Key, o.Slots, opts).Lock
	case o.Campaign:
		lock = w.locks.Election(want.Key, opts).Campaign
	case want.Shared:
		lock = w.locks.RWMutex(want.Key, opts).RLock
	default:
		lock = w.locks.RWMutex(want.Key, opts).Lock
	}
	l, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	return single{l}, nil
}

// once acquires keys, uses them, and gives them back. An error is one of the pipes.
func (w *worker) once(ctx context.Context, o Order) error {
	wait := ctx
	if o.Limit > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, o.Limit)
		defer cancel()
	}
	if o.Campaign {
		w.watch.Do(func() { go w.leaders(ctx, o.Wants[0].Key) })
	}
	w.waited.Store(false)
	if err := w.report(Event{What: Asked, At: Now()}); err != nil {
		return err
	}
	all, err := w.acquire(wait, o)
	if err != nil {
		kind := kindOf(err)
		if wait.Err() != nil {
			kind = Cancelled
		}
		return w.report(Event{What: Failed, At: Now(), Kind: kind, Err: err.Error()})
	}
	for _, l := range all.All() {
		e := Of(Granted, l)
		e.Waited = w.waited.Load()
		w.follow(l, true)
		if err := w.report(e); err != nil {
			return err
		}
	}
	return w.use(ctx, all, o)
}

// follow sets whether the renewals of a lease are reported.
func (w *worker) follow(l *hasp.Lease, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.leases, l.Owner()); on {
		w.leases[l.Owner()] = l
	}
}

// use changes the register under a lease, or reads it twice, and releases. It does not ask
// the lease whether it still stands before it writes: so does whoever was stopped between the
// question and the write.
func (w *worker) use(ctx context.Context, all holding, o Order) error {
	first := all.All()[0]
	got := Order{Refused: true}
	if !o.Bare {
		var err error
		if got, err = w.ask(ctx, Of(Read, first)); err != nil {
			return err
		}
	}
	stands := pass(ctx, all, o.Hold)
	if o.Downgrade && stands {
		if err := w.downgrade(ctx, first); err != nil {
			return err
		}
		pass(ctx, all, o.Hold)
	}
	at := Now()
	if !got.Refused && !got.Stop {
		last := Of(Write, first)
		if last.Value = got.Value; last.Shared {
			last.What = Look
		}
		if _, err := w.ask(ctx, last); err != nil {
			return err
		}
	}
	over := Event{}
	for _, l := range all.All() {
		w.follow(l, false)
		e := Of(Ended, l) // it was relied on until here
		if err := l.Err(); err != nil {
			e.At, e.Lost, e.Kind, e.Err = at, true, kindOf(err), err.Error()
		}
		if err := w.report(e); err != nil {
			return err
		}
		over.Lost, over.Deadline = over.Lost || e.Lost, e.Deadline
	}
	e := Event{What: Released, Deadline: over.Deadline}
	if err := all.Release(); err != nil && !over.Lost {
		e.Kind, e.Err = kindOf(err), err.Error()
	}
	e.At = Now()
	return w.report(e)
}

// downgrade lets the client only read from now on, whether Downgrade succeeds or not.
func (w *worker) downgrade(ctx context.Context, l *hasp.Lease) error {
	if err := w.report(Of(Lowered, l)); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, w.job.TTL)
	defer cancel()
	_ = l.Downgrade(limit) // where it failed, the client writes no more all the same
	return nil
}

// pass waits, and reports false when what is held was lost meanwhile.
func pass(ctx context.Context, all holding, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-all.Done():
		return false
	}
	return true
}
