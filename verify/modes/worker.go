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
	"github.com/hasplock/hasp/verify/internal/crew"
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

// worker is this process as one.
type worker struct {
	job   job
	locks *client
	rand  *rand.Rand

	mu   sync.Mutex
	out  *json.Encoder
	held map[string]*hasp.Lease // by owner: those whose renewals are reported
}

// work takes turns until it is told to stop. When the input ends, so does the
// process: nobody is left to work for.
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
		last = ctx.Err() != nil // one more turn, which nothing cuts short: everybody must have one
		if err := w.turn(last); err != nil {
			return err
		}
	}
	_ = w.locks.Close() // what is left in the store ends by itself
	return w.tell(event{What: bye})
}

// tell reports an event: it has reached the parent's pipe when tell returns.
func (w *worker) tell(e event) error {
	if e.At == 0 {
		e.At = crew.Now()
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
		_ = w.tell(event{What: renewed, Leases: []lease{look(l)}}) // a broken pipe ends the process elsewhere
	}
}

// watch reports every leader that it sees.
func (w *worker) watch(ctx context.Context) {
	for l, err := range w.locks.Election(w.job.Kind.key(), nil).Observe(ctx) {
		if err == nil && l.Fence != 0 {
			_ = w.tell(event{What: saw, Leases: []lease{{Key: l.Key, Owner: l.Holder.Owner, Fence: l.Fence}}}) // as above
		}
	}
}

// look describes a lease. Its deadline is never later than it is.
func look(l *hasp.Lease) lease {
	at := crew.Now()
	return lease{Key: l.Key(), Owner: l.Owner(), Fence: l.Fence(), Shared: l.Mode() == hasp.Shared, Slot: l.Slot(),
		Abandoned: l.Abandoned(), Deadline: at.Add(time.Until(l.Deadline()))}
}

// grip is what a turn holds: a lease, or several.
type grip interface {
	All() []*hasp.Lease
	Done() <-chan struct{}
	Release() error
}

type single struct{ *hasp.Lease }

func (s single) All() []*hasp.Lease { return []*hasp.Lease{s.Lease} }

// describe tells of all leases of a grip.
func (w *worker) describe(g grip) (all []lease) {
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

// turn asks, holds what it gets, and gives it back. The last one goes on until
// it was granted. An error is one of the pipe.
func (w *worker) turn(last bool) error {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if !last && w.rand.IntN(10) == 0 { // gives up in the middle of things
			ctx, cancel = context.WithTimeout(context.Background(), w.between(time.Millisecond, 50*time.Millisecond))
		}
		d := w.draw()
		if err := w.tell(event{What: asked, Keys: d.keys, Shared: d.shared}); err != nil {
			cancel()
			return err
		}
		g, err := d.ask(ctx)
		cancelled := ctx.Err() != nil
		cancel()
		if err == nil {
			return w.use(g, d.downgrade)
		}
		if err := w.tell(event{What: failed, Cancelled: cancelled, Err: err.Error()}); err != nil {
			return err
		}
		if !last {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// use holds for a while, and gives back.
func (w *worker) use(g grip, downgrade bool) error {
	all := w.describe(g)
	e := event{What: granted, Leases: all}
	for _, l := range all {
		e.Abandoned = e.Abandoned || l.Abandoned
	}
	w.follow(g, true)
	if err := w.tell(e); err != nil {
		return err
	}
	length := w.between(0, 4*time.Millisecond)
	switch n := w.rand.IntN(longHold); {
	case n == 0: // past a renewal
		length = w.between(w.job.TTL/3, w.job.TTL*2/3)
	case n < 5:
		length = w.between(20*time.Millisecond, 80*time.Millisecond)
	}
	lost := hold(g, length)
	if downgrade && lost == 0 {
		if err := w.tell(event{What: lowered}); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), w.job.TTL)
		_ = g.All()[0].Downgrade(ctx) // whatever came of it: nothing is written any more
		cancel()
		lost = hold(g, length)
	}
	w.follow(g, false)
	e = event{What: ended, Leases: w.describe(g), At: lost, Lost: lost != 0}
	if err := w.tell(e); err != nil {
		return err
	}
	e = event{What: released}
	if err := g.Release(); err != nil && !errors.Is(err, hasp.ErrLost) {
		e.Err = err.Error()
	}
	return w.tell(e)
}

// hold waits, and says when the grip was lost meanwhile; 0: it was not.
func hold(g grip, length time.Duration) (lost crew.Mono) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.Done():
		return crew.Now()
	}
	return 0
}

// follow says whose renewals are to be reported.
func (w *worker) follow(g grip, on bool) {
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
