// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/verify/internal/child"
)

// workerEnv carries the job of a process, as JSON.
const workerEnv = "HASP_MODES_WORKER"

// WorkerMain turns this process into a worker when it was started as one, and
// does not return then.
func WorkerMain() {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	if err := work(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is the state of this process.
type worker struct {
	job   job
	locks *client
	rand  *rand.Rand

	mu   sync.Mutex
	out  *json.Encoder
	held map[string]*hasp.Lease // by owner: those whose renewals are reported
}

// work takes turns until it gets an order to stop. When the input ends, so does the
// process: its parent is gone.
func work(text string, in io.Reader, out io.Writer) error {
	w := &worker{out: json.NewEncoder(out), held: map[string]*hasp.Lease{}}
	if err := json.Unmarshal([]byte(text), &w.job); err != nil {
		return err
	}
	w.rand = rand.New(rand.NewPCG(w.job.Seed, 2))
	var err error
	if w.locks, err = open(w.job.Store, w.job.Broken, w.observe); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		dec := json.NewDecoder(bufio.NewReader(in))
		for {
			var o order
			if dec.Decode(&o) != nil {
				os.Exit(1)
			}
			stop()
		}
	}()
	if w.job.Kind == Election {
		go w.watch(ctx)
	}
	for last := false; !last; {
		last = ctx.Err() != nil // one more turn, without a time limit: everybody must have one
		if err := w.turn(last); err != nil {
			return err
		}
	}
	_ = w.locks.Close() // what is left in the store expires
	return w.report(event{What: bye})
}

// report writes an event: it has reached the parent's pipe when report returns.
func (w *worker) report(e event) error {
	if e.At == 0 {
		e.At = child.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Encode(e)
}

// observe reports each renewal, which moves a deadline.
func (w *worker) observe(e hasp.Event) {
	if e.Kind != hasp.EventRenewed {
		return
	}
	w.mu.Lock()
	l := w.held[e.Owner]
	w.mu.Unlock()
	if l != nil {
		_ = w.report(event{What: renewed, Leases: []lease{look(l)}}) // a broken pipe ends the process elsewhere
	}
}

// watch reports every leader that it observes.
func (w *worker) watch(ctx context.Context) {
	for l, err := range w.locks.Election(w.job.Kind.key(), nil).Observe(ctx) {
		if err == nil && l.Fence != 0 {
			_ = w.report(event{What: saw, Leases: []lease{{Key: l.Key, Owner: l.Holder.Owner, Fence: l.Fence}}}) // as above
		}
	}
}

// look describes a lease. The deadline that it gives is never later than the real one.
func look(l *hasp.Lease) lease {
	at := child.Now()
	return lease{Key: l.Key(), Owner: l.Owner(), Fence: l.Fence(), Shared: l.Mode() == hasp.Shared, Slot: l.Slot(),
		Abandoned: l.Abandoned(), Deadline: at.Add(time.Until(l.Deadline()))}
}

// holdings is what a turn holds: a lease, or several.
type holdings interface {
	All() []*hasp.Lease
	Done() <-chan struct{}
	Release() error
}

type single struct{ *hasp.Lease }

func (s single) All() []*hasp.Lease { return []*hasp.Lease{s.Lease} }

// describe describes all leases of a turn.
func (w *worker) describe(g holdings) (all []lease) {
	for _, l := range g.All() {
		d := look(l)
		if w.job.Kind == Semaphore {
			d.Limit = w.job.Slots
		}
		all = append(all, d)
	}
	return all
}

// between returns a random time.
func (w *worker) between(from, to time.Duration) time.Duration {
	return from + time.Duration(w.rand.Int64N(int64(to-from)))
}

// turn acquires, holds for a while, and releases. The last turn waits until it is
// granted. An error is one of the pipe.
func (w *worker) turn(last bool) error {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if !last && w.rand.IntN(10) == 0 { // gives up while it waits
			ctx, cancel = context.WithTimeout(context.Background(), w.between(time.Millisecond, 50*time.Millisecond))
		}
		d := w.draw()
		if err := w.report(event{What: asked, Keys: d.keys, Shared: d.shared}); err != nil {
			cancel()
			return err
		}
		g, err := d.ask(ctx)
		cancelled := ctx.Err() != nil
		cancel()
		if err == nil {
			return w.use(g, d.downgrade)
		}
		if err := w.report(event{What: failed, Cancelled: cancelled, Err: err.Error()}); err != nil {
			return err
		}
		if !last {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// use holds for a while, and releases.
func (w *worker) use(g holdings, downgrade bool) error {
	all := w.describe(g)
	e := event{What: granted, Leases: all}
	for _, l := range all {
		e.Abandoned = e.Abandoned || l.Abandoned
	}
	w.follow(g, true)
	if err := w.report(e); err != nil {
		return err
	}
	length := w.between(0, 4*time.Millisecond)
	switch n := w.rand.IntN(longHold); {
	case n == 0: // for longer than a renewal takes
		length = w.between(w.job.TTL/3, w.job.TTL*2/3)
	case n < 5:
		length = w.between(20*time.Millisecond, 80*time.Millisecond)
	}
	lost := hold(g, length)
	if downgrade && lost == 0 {
		if err := w.report(event{What: lowered}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), w.job.TTL)
		_ = g.All()[0].Downgrade(ctx) // whether it succeeds or not, nothing is written any more
		cancel()
		lost = hold(g, length)
	}
	w.follow(g, false)
	e = event{What: ended, Leases: w.describe(g), At: lost, Lost: lost != 0}
	if err := w.report(e); err != nil {
		return err
	}
	e = event{What: released}
	if err := g.Release(); err != nil && !errors.Is(err, hasp.ErrLost) {
		e.Err = err.Error()
	}
	return w.report(e)
}

// hold waits, and returns when the holdings were lost meanwhile; 0: they were not.
func hold(g holdings, length time.Duration) (lost child.Mono) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.Done():
		return child.Now()
	}
	return 0
}

// follow sets whether renewals of these leases are reported.
func (w *worker) follow(g holdings, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range g.All() {
		if on {
			w.held[l.Owner()] = l
		} else {
			delete(w.held, l.Owner())
		}
	}
}
