// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package modes

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/hasplock/hasp/internal/history"
	"github.com/hasplock/hasp/internal/player"
	"github.com/hasplock/hasp/internal/stall"
)

// faultRest is the least time from one fault to the next: a process that is
// killed has to be started again.
const faultRest = 100 * time.Millisecond

// pause is how long a process waits after a turn that failed.
const pause = 10 * time.Millisecond

// process is what is known of a client besides what the book has of it.
type process struct {
	turns  int
	failed bool              // its latest turn did, with trouble
	last   bool              // it is told to take its last turn
	done   bool              // and was granted it
	waits  *history.Wait     // for what it asked; nil: it does not wait
	seen   map[string]uint64 // the fence of the last leader that it saw, by key
}

// run is the state of a run. One goroutine makes all decisions.
type run struct {
	Outcome
	*player.Crew
	o      *Options
	rand   *rand.Rand
	of     map[*player.Member]*process
	waits  []history.Wait
	lost   func() time.Duration // for how long this process did not get to run
	stalls []stalled            // that, whenever a process reported something
	first  time.Time            // when a hold may first have ended without a release; zero: not yet

	begun time.Time
	since int       // turns since the latest fault
	gap   int       // the number of turns before the next fault
	rest  time.Time // the earliest time of the next fault
	held  bool      // it hits a process that was just granted something
}

// stalled is for how long this process had not got to run at an instant.
type stalled struct {
	at   time.Time
	lost time.Duration
}

// Run runs the processes. The error says why it could not. A program
// that calls it calls WorkerMain first.
func Run(t interface {
	Context() context.Context
	Cleanup(func())
}, o Options) (*Outcome, error) {
	o.Slots, o.TTL, o.Patience = cmp.Or(o.Slots, 5), cmp.Or(o.TTL, 2*time.Second), cmp.Or(o.Patience, 2*time.Minute)
	crew := player.NewCrew(o.job(), func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), workerEnv+"=1") })
	r := &run{Outcome: Outcome{Book: player.NewBook()}, Crew: crew, o: &o, rand: rand.New(rand.NewPCG(o.Seed, 1)), of: map[*player.Member]*process{},
		lost: stall.Watch(t), gap: o.Processes, held: true, begun: time.Now()}
	defer r.End()
	r.Hire(o.Processes)
	if err := r.play(t.Context()); err != nil {
		return nil, err
	}
	if len(r.Found) == 0 {
		r.last(t.Context())
	}
	r.Took = time.Since(r.begun)
	r.judge()
	return &r.Outcome, t.Context().Err()
}

// process returns what is known of a client.
func (r *run) process(m *player.Member) *process {
	if r.of[m] == nil {
		r.of[m] = &process{seen: map[string]uint64{}}
	}
	return r.of[m]
}

// play has the processes take turns until they end.
func (r *run) play(ctx context.Context) error {
	silence := time.NewTimer(r.o.Patience)
	defer silence.Stop()
	for r.Err == nil && len(r.Members) > 0 && len(r.Found) == 0 {
		select {
		case rep := <-r.Reports:
			if r.receive(rep.Of, rep.Event); rep.Event == nil || rep.What == player.Granted {
				silence.Reset(r.o.Patience)
			}
			if rep.Event != nil {
				r.fault(rep.Of, rep.What == player.Granted)
			}
		case m := <-r.Rested:
			r.Resume(m)
		case <-silence.C:
			r.Broken("no turn in %v: %s", r.o.Patience, r.wait())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !r.Closing && r.enough() { // each process has one more turn
			r.Closing = true
			for m := range r.Members {
				r.Resume(m)
			}
		}
	}
	return r.Err
}

// enough reports whether the run has lasted long enough; see Options.
func (r *run) enough() bool {
	return time.Since(r.begun) >= r.o.For && r.Granted >= r.o.Turns && r.Killed >= r.o.Kills && r.Stopped >= r.o.Stops && r.since >= r.o.Processes
}

// receive records what a process reported. A nil event: it has ended.
func (r *run) receive(m *player.Member, e *player.Event) {
	now := r.Wall(player.Now())
	r.stalls = append(r.stalls, stalled{now, r.lost()})
	if e == nil {
		r.left(m)
		return
	}
	p := r.process(m)
	giving := m.Giving
	granted := r.Granted
	r.Add(m, e)
	switch e.What {
	case player.Ready:
		r.next(m, p)
	case player.Asked:
		r.requested(m, p)
	case player.Waiting:
		r.queued(p, e.At)
	case player.Failed:
		r.waited(p, e.At)
		p.failed = e.Kind != player.Cancelled
		r.trouble(r.Wall(e.At)) // its leases may expire
		if e.Kind != player.Cancelled {
			r.Trouble = e.Err
		}
	case player.Granted:
		r.waited(p, e.At)
		if r.Granted > granted { // the first of several keys
			p.turns++
			p.failed = false
			r.since++
			p.done = p.last
		}
		if e.Abandoned {
			r.Abandoned++
		}
	case player.Ended:
		if e.Lost {
			r.trouble(r.Wall(e.At))
		}
	case player.Released:
		for _, h := range giving {
			if h.Kept.After(h.Deadline) { // the store may take it for too late
				r.trouble(h.Deadline)
			}
		}
	case player.Saw:
		if top := p.seen[e.Key]; e.Fence < top {
			r.Broken("%v observed the leader with fence %d after the one with %d", m, e.Fence, top)
		}
		p.seen[e.Key] = e.Fence
	}
}

// next gives a process its next order.
func (r *run) next(m *player.Member, p *process) {
	if p.done {
		m.Do(player.Order{Stop: true})
		return
	}
	p.last = r.Closing
	if m.Order = r.draw(p.last); !p.failed {
		m.Send(m.Order)
		return
	}
	o := m.Order
	time.AfterFunc(pause, func() { m.Send(o) })
}

// trouble records that a hold may have ended without a release.
func (r *run) trouble(at time.Time) {
	if r.first.IsZero() || at.Before(r.first) {
		r.first = at
	}
}

// wait describes which process wants and holds what.
func (r *run) wait() string {
	var b strings.Builder
	for m := range r.Members {
		fmt.Fprintf(&b, "\n  %v wants %v", m, m.Order.Wants)
		for _, h := range m.Open {
			fmt.Fprintf(&b, ", has %v", h.Key)
		}
	}
	return b.String()
}

// left records that a process has ended.
func (r *run) left(m *player.Member) {
	r.gone(m)
	for _, h := range m.Open {
		h.Cut = true
	}
	if len(m.Open) > 0 {
		r.Holding++
	}
	m.Open = nil
	if r.Left(m); r.Err == nil && !m.Killed && m.Errors() != "" {
		r.Err = fmt.Errorf("%v said at its end: %s", m, m.Last())
	}
}

// fault kills or stops a process, if it is time for that: the one that just reported,
// if it was granted something, or any.
func (r *run) fault(m *player.Member, granted bool) {
	kill, stop := r.Killed < r.o.Kills, r.Stopped < r.o.Stops
	if r.o.For > 0 && time.Since(r.begun) < r.o.For { // as many as the time allows
		kill, stop = r.o.Kills > 0, r.o.Stops > 0
	}
	if r.Closing || !kill && !stop || r.since < r.gap || time.Now().Before(r.rest) || r.held && !granted {
		return
	}
	if !r.held {
		all := r.Fit(func(m *player.Member) bool { return r.process(m).turns > 0 })
		if len(all) == 0 {
			return
		}
		m = all[r.rand.IntN(len(all))]
	}
	if m.Killed || m.Paused {
		return
	}
	r.trouble(r.Wall(player.Now()))
	r.since, r.gap, r.held = 0, 1+r.rand.IntN(max(r.o.Processes/4, 2)), r.rand.IntN(3) > 0
	r.rest = time.Now().Add(faultRest)
	if !stop || kill && r.rand.IntN(2) == 0 {
		r.Kill(m)
		r.Killed++
		return
	}
	if !r.Pause(m, r.o.TTL*11/10+time.Duration(r.rand.Int64N(int64(r.o.TTL/2)))) { // it is gone
		return
	}
	if p := r.process(m); p.waits != nil {
		p.waits.Away = true
	}
	r.Stopped++
}
