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
	"os/exec"
	"slices"
	"time"

	"github.com/hasplock/hasp"
	"github.com/hasplock/hasp/internal/player"
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
	Prefix  string     // of the keys, which no other program may use
	Argv    []string   // starts this program as a worker
	Job     player.Job // of a worker
}

// key returns the name of a key.
func (o *Options) key(i int) string { return fmt.Sprintf("%s/%d", o.Prefix, i) }

// Bound is how long after the last fault every key must have been acquired again: the
// lease of a killed holder expires after the TTL, or with its session, and so may the
// place in the queue of one that was killed right behind it.
func (o *Options) Bound() time.Duration { return 2*max(o.TTL, o.Session) + margin }

// run is a run under way. One goroutine does all that is decided.
type run struct {
	*player.Book
	*player.Crew
	o    *Options
	rand *rand.Rand       // of the orders
	idle []*player.Member // that asked for an order

	again map[string]bool // the keys that were granted since the last fault
	over  player.Mono     // when that had ended; 0: not yet
	back  player.Mono     // the latest of the first grants since, over the keys

	silent  int           // failures by trouble since the latest grant
	trouble *player.Event // the latest of them
}

func newRun(o *Options) *run {
	crew := player.NewCrew(o.Job, func(cmd *exec.Cmd) { cmd.Args = o.Argv })
	return &run{Book: player.NewBook(), Crew: crew, o: o, rand: rand.New(rand.NewPCG(o.Seed, 2)), again: map[string]bool{}}
}

// Run tries the store. It ends early when a signal comes, which it returns, or
// when the store is gone. An error says that it could not be done, for reasons
// that are not the store's.
func Run(o *Options, signals <-chan os.Signal) (*Outcome, os.Signal, error) {
	r := newRun(o)
	defer r.End()
	begun := time.Now()
	r.Hire(o.Clients)
	sig := r.tryAll(signals)
	tried := time.Since(begun)
	r.close(signals)
	if r.Err != nil && !errors.Is(r.Err, errGone) {
		return nil, sig, r.Err
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
	for r.Err == nil && len(r.again) < r.o.Keys {
		select {
		case rep := <-r.Reports:
			r.receive(rep)
		case m := <-r.Rested:
			r.Resume(m)
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
			for m := range r.Members {
				r.Resume(m)
			}
			r.over = player.Now()
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
	for m := range r.Members {
		if !m.Began {
			return false
		}
	}
	return true
}

// receive records an event of a worker.
func (r *run) receive(rep player.Report) {
	m, e := rep.Of, rep.Event
	switch {
	case e == nil:
		r.Left(m)
		r.idle = slices.DeleteFunc(r.idle, func(other *player.Member) bool { return other == m })
	case e.What == player.Ready:
		m.Began = true
		if r.Closing {
			break // it will read that it is to stop
		}
		r.idle = append(r.idle, m)
	default:
		if answer := r.add(m, e); answer != nil {
			m.Send(answer)
		}
		if e.What == player.Failed && r.fatal(e) {
			r.Err = errGone
		}
	}
}

// add records what a worker said. It returns the answer, if there is one.
func (r *run) add(m *player.Member, e *player.Event) (answer *player.Order) {
	switch {
	case e.What == player.Granted:
		r.silent = 0
		// A writer that asked since: where waiters queue, the places of dead clients before it have ended, too.
		if r.over != 0 && m.Asked > r.over && !e.Shared && !r.again[e.Key] {
			r.again[e.Key] = true
			r.back = max(r.back, e.At)
		}
	case e.What == player.Failed && e.Kind != player.Cancelled:
		r.silent++
		r.trouble = e
	}
	return r.Add(m, e)
}

// fatal says whether a failure means that it makes no sense to go on: the
// store refuses for good, or answers nobody.
func (r *run) fatal(e *player.Event) bool {
	return e.Kind != player.Cancelled && (!temporary(e.Kind) || r.silent >= r.o.Clients)
}

// temporary says whether a wait may go on after such an error.
func temporary(kind string) bool {
	return kind == "unreachable" || player.ClassOf(kind) == hasp.ClassUnknown
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
			if key := r.o.key((m.ID + i) % r.o.Keys); !r.again[key] {
				o.Wants[0] = player.Want{Key: key}
				break
			}
		}
	}
	m.Do(o)
}

// fault kills or stops a client. At least one is left at work.
func (r *run) fault(f fault) {
	if len(r.Fit(func(*player.Member) bool { return true })) < 2 {
		return
	}
	all := r.Fit(func(m *player.Member) bool { return m.Began })
	if holding := r.Fit(func(m *player.Member) bool { return len(m.Open) > 0 }); f.held && len(holding) > 0 {
		all = holding
	}
	if len(all) == 0 {
		return
	}
	m := all[f.pick%uint64(len(all))]
	if f.stop == 0 {
		r.Kill(m)
		r.Killed++
	} else if r.Pause(m, f.stop) {
		r.Stopped++
	}
}

// close has every worker release what it holds, and end. A second signal makes
// it kill them.
func (r *run) close(signals <-chan os.Signal) {
	r.Closing = true
	for m := range r.Members {
		r.Resume(m)
		m.Do(player.Order{Stop: true})
	}
	most := lastLimit
	if r.Err != nil { // most often the store is gone, and takes no release
		most = goneLimit
	}
	limit := time.NewTimer(most)
	defer limit.Stop()
	for len(r.Members) > 0 {
		select {
		case rep := <-r.Reports:
			r.receive(rep)
		case <-r.Rested: // it goes on already
		case <-signals:
			return
		case <-limit.C:
			for m := range r.Members {
				if r.Err == nil {
					r.Broken("%v did not end within %v when asked to", m, most)
				}
			}
			return
		}
	}
}
