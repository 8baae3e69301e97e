// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"cmp"
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
	"github.com/hasplock/hasp/event"
)

// Locks are the client of a store, as a worker needs it.
type Locks interface {
	RWMutex(key string, o *hasp.LockOptions) *hasp.RWMutex
	Semaphore(key string, slots int, o *hasp.LockOptions) *hasp.Semaphore
	Election(key string, o *hasp.LockOptions) *hasp.Election
	Close() error
}

// Library is another library of locks, as Locks.
type Library interface {
	Acquire(context.Context, *Order) (*Holding, error)
}

// Witness are Locks that know more of an event before it is reported, and report events themselves.
type Witness interface {
	Attend(report func(Event))
	Note(*Event)
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
	n      int              // orders so far
	leases map[string]Lease // by owner: their renewals are reported
}

// Work is all that a worker process does: it takes its job and then orders from
// in, reports to out, and ends when asked to. When in ends, so does the
// process, as its parent has ended.
func Work(in io.Reader, out io.Writer, open func(Job, func(context.Context, *event.Event)) (Locks, error)) error {
	w := &worker{orders: make(chan Order, 1), out: json.NewEncoder(out), leases: map[string]Lease{}}
	dec := json.NewDecoder(in)
	if err := dec.Decode(&w.job); err != nil {
		return fmt.Errorf("no job: %w", err)
	}
	var err error
	if w.locks, err = open(w.job, w.observe); err != nil {
		return err
	}
	if by, ok := w.locks.(Witness); ok {
		by.Attend(w.tell)
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
		pass(ctx, &Holding{}, o.Rest)
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
	e.N, e.At = cmp.Or(e.N, w.n), cmp.Or(e.At, Now())
	if by, ok := w.locks.(Witness); ok {
		by.Note(&e)
	}
	return w.out.Encode(e)
}

// tell is report where a broken pipe ends the process elsewhere.
func (w *worker) tell(e Event) { _ = w.report(e) }

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

// observe reports the first refusal, and each renewal, which moves a deadline.
func (w *worker) observe(_ context.Context, e *event.Event) {
	switch e.Kind {
	case event.Waiting:
		if !w.waited.Swap(true) {
			w.tell(Event{What: Waiting, Key: e.Key, Owner: e.Owner, Shared: e.Mode == hasp.Shared})
		}
	case event.Renewed:
		w.mu.Lock()
		l := w.leases[e.Owner]
		w.mu.Unlock()
		if l != nil {
			w.tell(Of(Renewed, l))
		}
	}
}

// leaders reports every leader that is observed.
func (w *worker) leaders(ctx context.Context, key string) {
	for l, err := range w.locks.Election(key, nil).Leaders(ctx) {
		if err == nil && l.Fence != 0 {
			w.tell(Event{What: Saw, Key: l.Key, Owner: l.Holder.Owner, Fence: l.Fence})
		}
	}
}

// Of returns an event of a lease. The deadline that it gives is never later than the real one.
func Of(w What, l Lease) Event {
	at := Now()
	return Event{What: w, At: at, Key: l.Key(), Owner: l.Owner(), Fence: l.Fence(), Shared: l.Mode() == hasp.Shared, Slot: l.Slot(),
		Abandoned: l.Abandoned(), Deadline: at.Add(time.Until(l.Deadline()))}
}

// Lease is what a client holds: a hasp.Lease, or that of another library.
type Lease interface {
	Key() string
	Owner() string
	Fence() uint64
	Mode() hasp.Mode
	Slot() int
	Abandoned() bool
	Deadline() time.Time
	Done() <-chan struct{}
	Err() error
	Downgrade(context.Context) error
}

// Holding is what an order acquired: a lease, or several.
type Holding struct {
	Leases  []Lease
	Done    <-chan struct{} // closed when one of them is lost
	Release func() error
}

// Acquire acquires what an order wants.
func Acquire(ctx context.Context, locks Locks, o *Order, ttl time.Duration) (*Holding, error) {
	if other, ok := locks.(Library); ok {
		return other.Acquire(ctx, o)
	}
	opts := &hasp.LockOptions{TTL: ttl, Reason: "hasp verify"}
	if len(o.Wants) > 1 {
		var items []hasp.Locker
		for _, want := range o.Wants {
			if m := locks.RWMutex(want.Key, opts); want.Shared {
				items = append(items, m.RLocker())
			} else {
				items = append(items, m)
			}
		}
		all, err := hasp.Locks(items).Lock(ctx)
		if err != nil {
			return nil, err
		}
		h := &Holding{Done: all.Done(), Release: all.Release}
		for _, l := range all.All() {
			h.Leases = append(h.Leases, l)
		}
		return h, nil
	}
	want := o.Wants[0]
	m := locks.RWMutex(want.Key, opts)
	var lock func(context.Context) (*hasp.Lease, error)
	switch {
	case o.Slots > 0:
		lock = locks.Semaphore(want.Key, o.Slots, opts).Lock
	case o.Campaign:
		lock = locks.Election(want.Key, opts).Lock
	case o.Try && want.Shared:
		lock = m.TryRLock
	case o.Try:
		lock = m.TryLock
	case want.Shared:
		lock = m.RLock
	default:
		lock = m.Lock
	}
	l, err := lock(ctx)
	if err != nil {
		return nil, err
	}
	return &Holding{[]Lease{l}, l.Done(), l.Release}, nil
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
	w.mu.Lock()
	w.n++
	w.mu.Unlock()
	about := Event{What: Asked, At: Now(), Key: o.Wants[0].Key, Shared: o.Wants[0].Shared} // of several keys, the first
	if err := w.report(about); err != nil {
		return err
	}
	all, err := Acquire(wait, w.locks, &o, w.job.TTL)
	if err != nil {
		about.What, about.At, about.Kind, about.Err = Failed, Now(), kindOf(err), err.Error()
		switch {
		case wait.Err() != nil:
			about.Kind = Cancelled
		case o.Try && errors.Is(err, hasp.ErrHeld):
			about.Kind = Held
		}
		return w.report(about)
	}
	var told []func() Mono
	for _, l := range all.Leases {
		e := Of(Granted, l)
		e.Waited = w.waited.Load()
		w.follow(l, true)
		told = append(told, hear(l.Done()))
		if err := w.report(e); err != nil {
			return err
		}
	}
	lowered, err := w.use(ctx, all, o)
	if err != nil {
		return err
	}
	return w.release(all, lowered, told)
}

// hear returns when a channel was closed, once; 0: it is not.
func hear(done <-chan struct{}) func() Mono {
	at := make(chan Mono, 1)
	if done != nil {
		go func() {
			<-done
			at <- Now()
		}()
	}
	return func() Mono {
		select {
		case <-done:
			return <-at
		default:
			return 0
		}
	}
}

// follow sets whether the renewals of a lease are reported.
func (w *worker) follow(l Lease, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.leases, l.Owner()); on {
		w.leases[l.Owner()] = l
	}
}

// use changes the register under a lease, or reads it twice; a client that downgrades does both. It does
// not ask the lease whether it still stands before it writes: so does a process that was stopped between
// the question and the write.
func (w *worker) use(ctx context.Context, all *Holding, o Order) (lowered bool, err error) {
	first := all.Leases[0]
	got := Order{Refused: true}
	ask := func(what What) error {
		e := Of(what, first)
		e.Shared = e.Shared || lowered
		e.Value, e.Unfenced = got.Value, got.Unfenced
		got, err = w.ask(ctx, e)
		return err
	}
	if !o.Bare && ask(Read) != nil {
		return false, err
	}
	stands := pass(ctx, all, o.Hold)
	shared := first.Mode() == hasp.Shared
	if !shared && !got.Refused && !got.Stop && ask(Write) != nil {
		return false, err
	}
	if o.Downgrade && stands {
		lowered = true
		if err := w.downgrade(ctx, first); err != nil {
			return true, err
		}
		pass(ctx, all, o.Hold)
	}
	if (shared || lowered) && !got.Refused && !got.Stop {
		return lowered, ask(Look)
	}
	return lowered, nil
}

// release ends the hold, and gives the keys back.
func (w *worker) release(all *Holding, lowered bool, told []func() Mono) error {
	over := Event{}
	for i, l := range all.Leases {
		w.follow(l, false)
		closed := told[i]() // before Err, which says so from then on
		e := Of(Ended, l)   // it was relied on until here
		e.Shared = e.Shared || lowered
		if e.Closed = closed; closed != 0 {
			e.At = closed
		}
		if err := l.Err(); err != nil {
			e.Lost, e.Kind, e.Err = true, kindOf(err), err.Error()
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
func (w *worker) downgrade(ctx context.Context, l Lease) error {
	if err := w.report(Of(Lowered, l)); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, w.job.TTL)
	defer cancel()
	err := l.Downgrade(limit) // where it fails, the client writes no more all the same
	e := Of(Shares, l)
	if err != nil {
		e.Kind, e.Err = kindOf(err), err.Error()
	}
	return w.report(e)
}

// pass waits, and reports false when what is held was lost meanwhile.
func pass(ctx context.Context, all *Holding, length time.Duration) bool {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-all.Done:
		return false
	}
	return true
}
