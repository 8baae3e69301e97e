// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/verify/internal/child"
)

// faultRest is the least time from one fault to the next: a process that is
// killed has to be started again.
const faultRest = 100 * time.Millisecond

// process is a worker, as the parent process sees it.
type process struct {
	*child.Process
	killed, stopped bool
	turns           int
	keys            []string      // that it asked for last
	asked           child.Mono    // and when
	waits           *history.Wait // for what it asked; nil: it does not wait
	open            []*holding    // what it holds
	giving          []*holding    // what it is releasing
	seen            []lease       // the leaders that it saw
}

// holding is a hold of the history, with what only this package judges.
type holding struct {
	history.Hold
	abandoned bool      // its client learned that a previous holder did not release the key
	cut       bool      // its process was killed under it
	over      bool      // To is final
	ends      time.Time // its deadline, once it is released
	kept      time.Time // until when the store may have kept the key for it; zero: to the end
}

// report is an event of a process. A nil event: the process has ended, and all of its
// events were received.
type report struct {
	of *process
	e  *event
}

// run is the state of a run. One goroutine makes all decisions.
type run struct {
	Outcome
	o       *Options
	rand    *rand.Rand
	reports chan report
	resume  chan *process
	done    chan struct{} // closed when nobody receives any more
	working map[*process]bool
	spawned int
	all     []*process
	holds   []*holding
	waits   []history.Wait
	lost    func() time.Duration // for how long this process did not get to run
	stalls  []stalled            // that, whenever a process reported something
	first   time.Time            // when a hold may first have ended without a release; zero: not yet

	begun   time.Time
	closing bool
	since   int       // turns since the latest fault
	gap     int       // the number of turns before the next fault
	rest    time.Time // the earliest time of the next fault
	held    bool      // it hits a process that was just granted something
	ended   error     // why the run cannot go on
}

// stalled is for how long this process did not get to run before an instant.
type stalled struct {
	at   time.Time
	lost time.Duration
}

func newRun(o *Options, r *rand.Rand) *run {
	return &run{o: o, rand: r, reports: make(chan report), resume: make(chan *process, o.Processes),
		done: make(chan struct{}), working: map[*process]bool{}, gap: o.Processes, held: true, begun: time.Now()}
}

// spawn starts one more process.
func (r *run) spawn() {
	r.spawned++
	p := &process{}
	j := job{Kind: r.o.Kind, Store: r.o.Store, Slots: r.o.Slots, TTL: r.o.TTL, Seed: r.o.Seed<<16 + uint64(r.spawned), Broken: r.o.broken}
	ready := make(chan struct{})
	started, err := child.Spawn(r.spawned, nil, workerEnv, j, func(_ *child.Process, e event) {
		<-ready
		r.pass(report{p, &e})
	})
	if err != nil {
		r.ended = fmt.Errorf("a process could not be started: %w", err)
		return
	}
	p.Process = started
	close(ready)
	r.working[p] = true
	r.all = append(r.all, p)
	go func() {
		<-started.Ended
		r.pass(report{p, nil})
	}()
}

func (r *run) pass(rep report) {
	select {
	case r.reports <- rep:
	case <-r.done:
	}
}

// play runs the processes until they end.
func (r *run) play(ctx context.Context) error {
	for range r.o.Processes {
		r.spawn()
	}
	silence := time.NewTimer(r.o.Patience)
	defer silence.Stop()
	tick := time.NewTicker(faultRest)
	defer tick.Stop()
	for r.ended == nil && len(r.working) > 0 && len(r.Found) == 0 {
		select {
		case rep := <-r.reports:
			if r.receive(rep); rep.e == nil || rep.e.What == granted {
				silence.Reset(r.o.Patience)
			}
			if rep.e != nil {
				r.fault(rep.of, rep.e.What == granted)
			}
		case p := <-r.resume:
			r.resumeProcess(p)
		case <-tick.C:
		case <-silence.C:
			r.broken("no turn in %v: %s", r.o.Patience, r.wait())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !r.closing && r.enough() {
			r.close()
		}
	}
	return r.ended
}

// enough reports whether the run has lasted long enough; see Options.
func (r *run) enough() bool {
	return time.Since(r.begun) >= r.o.For && r.Granted >= r.o.Turns && r.Killed >= r.o.Kills && r.Stopped >= r.o.Stops && r.since >= r.o.Processes
}

// close makes every process end after one more turn.
func (r *run) close() {
	r.closing = true
	for p := range r.working {
		r.resumeProcess(p)
		p.Send(order{Stop: true})
	}
}

// wait describes which process wants and holds what.
func (r *run) wait() string {
	var b strings.Builder
	for p := range r.working {
		fmt.Fprintf(&b, "\n  %v wants %v", p, p.keys)
		for _, h := range p.open {
			fmt.Fprintf(&b, ", has %v", h.Key)
		}
	}
	return b.String()
}

func (p *process) String() string { return fmt.Sprintf("process %d", p.ID) }

// broken records a finding.
func (r *run) broken(format string, args ...any) {
	r.Found = append(r.Found, fmt.Sprintf(format, args...))
}

// left records that a process has ended.
func (r *run) left(p *process) {
	delete(r.working, p)
	r.gone(p)
	for _, h := range p.open {
		h.cut = true
	}
	if len(p.open) > 0 {
		r.Holding++
	}
	p.open = nil
	switch {
	case p.killed && !r.closing:
		r.spawn()
	case !p.killed && p.Errors() != "":
		r.ended = fmt.Errorf("%v ended by itself: %s", p, p.Errors())
	case !p.killed && !r.closing:
		r.ended = fmt.Errorf("%v ended by itself", p)
	}
}

// fault kills or stops a process, if it is time for that: the one that just reported,
// if it was granted something, or any.
func (r *run) fault(p *process, granted bool) {
	kill, stop := r.Killed < r.o.Kills, r.Stopped < r.o.Stops
	if r.o.For > 0 && time.Since(r.begun) < r.o.For { // as many as the time allows
		kill, stop = r.o.Kills > 0, r.o.Stops > 0
	}
	if r.closing || !kill && !stop || r.since < r.gap || time.Now().Before(r.rest) || r.held && !granted {
		return
	}
	if !r.held {
		p = r.anyone()
	}
	if p == nil || p.killed || p.stopped {
		return
	}
	r.trouble(child.Now().Time())
	r.since, r.gap, r.held = 0, 1+r.rand.IntN(max(r.o.Processes/4, 2)), r.rand.IntN(3) > 0
	r.rest = time.Now().Add(faultRest)
	if !stop || kill && r.rand.IntN(2) == 0 {
		p.killed = true
		r.Killed++
		go p.Kill() // which waits until all of its reports were received
		return
	}
	if p.Signal(syscall.SIGSTOP) != nil { // it is gone
		return
	}
	p.stopped = true
	if p.waits != nil {
		p.waits.Away = true
	}
	r.Stopped++
	time.AfterFunc(r.o.TTL*11/10+time.Duration(r.rand.Int64N(int64(r.o.TTL/2))), func() {
		select {
		case r.resume <- p:
		case <-r.done:
		}
	})
}

// anyone draws one of the processes that have had a turn.
func (r *run) anyone() *process {
	var all []*process
	for p := range r.working {
		if !p.killed && !p.stopped && p.turns > 0 {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *process) int { return a.ID - b.ID })
	return all[r.rand.IntN(len(all))]
}

// resumeProcess lets a process go on that was stopped.
func (r *run) resumeProcess(p *process) {
	if p.stopped {
		p.stopped = false
		_ = p.Signal(syscall.SIGCONT) // fails only when it is gone
	}
}

// killAll kills the processes that are left.
func (r *run) killAll() {
	close(r.done)
	for p := range r.working {
		p.Kill()
	}
}
