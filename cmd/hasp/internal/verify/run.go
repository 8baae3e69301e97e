// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package verify tries a store with clients that are killed, stopped, and give
// up, and judges what they saw.
//
// The clients are processes of this very program. They hold keys of their own
// and change a register that their parent keeps, and report every step; the
// parent draws the faults from a seed and hands the reports to the oracles of
// internal/history. Nothing is done to servers or to the network.
package verify

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/hasplock/hasp"
)

// Limits of a run.
const (
	// pace is the least time from one order to the next: 200 acquisitions a
	// second at most, over all clients, so that a store in use is not loaded.
	pace = 5 * time.Millisecond
	// margin is what a busy machine may take on top of what a store may.
	margin = 30 * time.Second
	// lastLimit is how long a client may take to end when asked to.
	lastLimit = 30 * time.Second
	// goneLimit is the same where the run could not go on.
	goneLimit = time.Second
)

// Options configure a run.
type Options struct {
	For     time.Duration // of faults; what comes after them takes Bound at most
	TTL     time.Duration
	Clients int
	Keys    int
	Shares  bool          // the store shares keys: some clients read, beside others
	Bare    bool          // its leases have no fences, so that nothing is written under them: a late write could not be told
	Session time.Duration // driver.Traits.SessionTTL
	Seed    uint64
	Prefix  string   // of the keys, which nobody else may use
	Argv    []string // starts this program as a worker
	Job     Job      // of a worker
}

// key returns the name of a key.
func (o *Options) key(i int) string { return fmt.Sprintf("%s/%d", o.Prefix, i) }

// Bound is how long after the last fault every key must have been acquired again: the
// lease of a killed holder expires after the TTL, or with its session, and so may the
// place in the queue of one that was killed right behind it.
func (o *Options) Bound() time.Duration { return 2*max(o.TTL, o.Session) + margin }

// run is a run under way. One goroutine does all that is decided.
type run struct {
	*book
	o       *Options
	rand    *rand.Rand // of the orders
	events  chan record
	resume  chan *member
	done    chan struct{} // closed when nobody listens any more
	members map[*member]bool
	started int
	idle    []*member // that asked for an order
	closing bool      // members are asked to end
	ended   error     // why the run cannot go on
}

// Run tries the store. It ends early when a signal comes, which it returns, or
// when the store is gone. An error says that it could not be done, for reasons
// that are not the store's.
func Run(o *Options, signals <-chan os.Signal) (*Outcome, os.Signal, error) {
	r := &run{book: newBook(o.Bare), o: o, rand: rand.New(rand.NewPCG(o.Seed, 2)), events: make(chan record),
		resume: make(chan *member, o.Clients), done: make(chan struct{}), members: map[*member]bool{}}
	defer close(r.done)
	defer r.killAll()
	begun := time.Now()
	for range o.Clients {
		r.startWorker()
	}
	sig := r.tryAll(signals)
	tried := time.Since(begun)
	r.close(signals)
	if r.ended != nil && !errors.Is(r.ended, errGone) {
		return nil, sig, r.ended
	}
	return r.judge(tried, sig != nil), sig, nil
}

// errGone: no client gets an answer from the store, or all are refused for good.
var errGone = errors.New("the store is gone")

// tryAll does the faults, and then waits until every key is acquired again.
func (r *run) tryAll(signals <-chan os.Signal) os.Signal {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	faults := plan(r.o)
	var start time.Time // when all clients were at work
	next := time.NewTimer(time.Hour)
	defer next.Stop()
	limit := time.NewTimer(time.Hour)
	defer limit.Stop()
	for r.ended == nil && len(r.again) < r.o.Keys {
		select {
		case rec := <-r.events:
			r.receive(rec)
		case m := <-r.resume:
			r.goOn(m)
		case <-tick.C:
			r.order()
		case <-next.C:
			r.fault(faults[0])
			faults = faults[1:]
			if len(faults) > 0 {
				next.Reset(time.Until(start.Add(faults[0].at)))
			}
		case <-limit.C:
			if r.over != 0 {
				return nil // judge says what was not acquired again
			}
			next.Stop()
			for m := range r.members {
				r.goOn(m)
			}
			r.over = now()
			limit.Reset(r.o.Bound())
		case sig := <-signals:
			return sig
		}
		if start.IsZero() && r.allBegan() {
			start = time.Now()
			limit.Reset(r.o.For)
			if len(faults) > 0 {
				next.Reset(faults[0].at)
			}
		}
	}
	return nil
}

func (r *run) allBegan() bool {
	for m := range r.members {
		if !m.began {
			return false
		}
	}
	return true
}

// startWorker starts one more worker.
func (r *run) startWorker() {
	r.started++
	m, err := startMember(r.started, r.o.Argv, r.o.Job, r.events, r.done)
	if err != nil {
		r.ended = fmt.Errorf("a client could not be started: %w", err)
		return
	}
	r.members[m] = true
}

// receive records an event of a worker.
func (r *run) receive(rec record) {
	m, e := rec.of, rec.e
	switch {
	case e == nil:
		r.left(m)
	case e.What == ready:
		m.began = true
		if r.closing {
			break // it will read that it is to stop
		}
		r.idle = append(r.idle, m)
	default:
		if answer := r.add(m, e); answer != nil {
			m.send(answer)
		}
		if e.What == failed && r.fatal(e) {
			r.ended = errGone
		}
	}
}

// fatal says whether a failure means that it makes no sense to go on: the
// store refuses for good, or answers nobody.
func (r *run) fatal(e *event) bool {
	return e.Kind != cancelled && (!temporary(e.Kind) || r.silent >= r.o.Clients)
}

// temporary says whether a wait may go on after such an error.
func temporary(kind string) bool {
	return kind == troubles[hasp.ClassUnknown] || kind == troubles[hasp.ClassUnreachable]
}

// left: a worker is gone.
func (r *run) left(m *member) {
	delete(r.members, m)
	r.idle = without(r.idle, m)
	switch {
	case r.closing:
	case m.killed:
		r.startWorker()
	default:
		r.ended = fmt.Errorf("%v ended by itself: %s", m, m.last())
	}
}

// order gives the next order to the worker that has asked for longest. After the
// faults, keys that nobody acquired since come first.
func (r *run) order() {
	if len(r.idle) == 0 {
		return
	}
	m := r.idle[0]
	r.idle = r.idle[1:]
	o := next(r.rand, r.o)
	if r.over != 0 {
		o.Limit, o.Hold = 0, min(o.Hold, shortHold)
		for i := range r.o.Keys {
			if key := r.o.key((m.n + i) % r.o.Keys); !r.again[key] {
				o.Key, o.Shared = key, false
				break
			}
		}
	}
	m.key, m.shared = o.Key, o.Shared
	m.send(o)
}
