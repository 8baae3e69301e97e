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
	"github.com/hasplock/hasp/verify/internal/crew"
)

// faultRest is the least time from one fault to the next: a process that is
// killed has to be started again.
const faultRest = 100 * time.Millisecond

// process is a worker, as its parent sees it.
type process struct {
	*crew.Member
	killed, stopped bool
	turns           int
	keys            []string      // it asked for last
	asked           crew.Mono     // and when
	waits           *history.Wait // for what it asked; nil: it does not wait
	open            []*holding    // what it holds
	giving          []*holding    // what it gives back
	seen            []lease       // the leaders that it saw
}

// holding is a hold of the history, and what only this package judges.
type holding struct {
	history.Hold
	abandoned bool      // its client was told that a holder before did not finish
	cut       bool      // its process was killed under it
	over      bool      // To is settled
	ends      time.Time // its deadline, once it is given back
	kept      time.Time // until when the store may have kept the key for it; zero: to the end
}

// report is an event, and whose it is. A nil event: the process is gone, and all
// that it said was heard.
type report struct {
	of *process
	e  *event
}

// run is a run under way. One goroutine does all that is decided.
type run struct {
	Outcome
	o       *Options
	rand    *rand.Rand
	reports chan report
	resume  chan *process
	done    chan struct{} // closed when nobody listens any more
	working map[*process]bool
	hired   int
	all     []*process
	holds   []*holding
	waits   []history.Wait
	lost    func() time.Duration // what the machine took from this process
	first   time.Time            // when a hold may have ended badly for the first time; zero: not yet

	begun   time.Time
	closing bool
	since   int       // turns since the last fault
	gap     int       // how many there must be until the next
	rest    time.Time // and when, at the earliest
	held    bool      // it befalls one that was just granted something
	ended   error     // why the run cannot go on
}

func newRun(o *Options, r *rand.Rand) *run {
	return &run{o: o, rand: r, reports: make(chan report), resume: make(chan *process, o.Processes),
		done: make(chan struct{}), working: map[*process]bool{}, gap: o.Processes, held: true, begun: time.Now()}
}

// hire starts one more process.
func (r *run) hire() {
	r.hired++
	p := &process{}
	j := job{Kind: r.o.Kind, Store: r.o.Store, Slots: r.o.Slots, TTL: r.o.TTL, Seed: r.o.Seed<<16 + uint64(r.hired), Broken: r.o.broken}
	ready := make(chan struct{})
	m, err := crew.Hire(r.hired, nil, workerEnv, j, func(_ *crew.Member, e event) {
		<-ready
		r.pass(report{p, &e})
	})
	if err != nil {
		r.ended = fmt.Errorf("a process could not be started: %w", err)
		return
	}
	p.Member = m
	close(ready)
	r.working[p] = true
	r.all = append(r.all, p)
	go func() {
		<-m.Ended
		r.pass(report{p, nil})
	}()
}

func (r *run) pass(rep report) {
	select {
	case r.reports <- rep:
	case <-r.done:
	}
}

// play runs the processes to their end.
func (r *run) play(ctx context.Context) error {
	for range r.o.Processes {
		r.hire()
	}
	silence := time.NewTimer(r.o.Patience)
	defer silence.Stop()
	tick := time.NewTicker(faultRest)
	defer tick.Stop()
	for r.ended == nil && len(r.working) > 0 && len(r.Found) == 0 {
		select {
		case rep := <-r.reports:
			if r.hear(rep); rep.e == nil || rep.e.What == granted {
				silence.Reset(r.o.Patience)
			}
			if rep.e != nil {
				r.fault(rep.of, rep.e.What == granted)
			}
		case p := <-r.resume:
			r.goOn(p)
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

// enough says whether the run has shown what it shall.
func (r *run) enough() bool {
	return time.Since(r.begun) >= r.o.For && r.Granted >= r.o.Turns && r.Killed >= r.o.Kills && r.Stopped >= r.o.Stops && r.since >= r.o.Processes
}

// close has every process end after one more turn.
func (r *run) close() {
	r.closing = true
	for p := range r.working {
		r.goOn(p)
		p.Say(order{Stop: true})
	}
}

// wait says who waits for what, and who holds what.
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

// broken records what is wrong.
func (r *run) broken(format string, args ...any) {
	r.Found = append(r.Found, fmt.Sprintf(format, args...))
}

// left: a process is gone.
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
		r.hire()
	case !p.killed && p.Errors() != "":
		r.ended = fmt.Errorf("%v ended by itself: %s", p, p.Errors())
	case !p.killed && !r.closing:
		r.ended = fmt.Errorf("%v ended by itself", p)
	}
}

// fault kills or stops a process, when it is time for it: the one that just spoke,
// if it was granted something, or any.
func (r *run) fault(p *process, granted bool) {
	kill, stop := r.Killed < r.o.Kills, r.Stopped < r.o.Stops
	if r.o.For > 0 && time.Since(r.begun) < r.o.For { // as many as there is time for
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
	r.trouble(crew.Now().Time())
	r.since, r.gap, r.held = 0, 1+r.rand.IntN(max(r.o.Processes/4, 2)), r.rand.IntN(3) > 0
	r.rest = time.Now().Add(faultRest)
	if !stop || kill && r.rand.IntN(2) == 0 {
		p.killed = true
		r.Killed++
		go p.Kill() // which waits until all is heard that it said
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

// anyone draws one of those that have had a turn.
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

// goOn lets a process go on that was stopped.
func (r *run) goOn(p *process) {
	if p.stopped {
		p.stopped = false
		_ = p.Signal(syscall.SIGCONT) // fails only when it is gone
	}
}

// killAll ends what is left.
func (r *run) killAll() {
	close(r.done)
	for p := range r.working {
		p.Kill()
	}
}
