// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/hasplock/hasp/internal/stall"
)

// Stage has the clients of a trial: it starts them, gives them orders, records what they say, and has them end. One goroutine
// hears them, and does all that is decided; Do has it do more.
type Stage struct {
	*Book
	All     []*Member            // that were started, in the order of their numbers, from 1
	Stalled func() time.Duration // for how long this process has not got to run so far

	o        *Trial
	reports  chan report
	tasks    chan func()
	until    func()        // see Await
	done     chan struct{} // closed when no more is heard
	heard    chan struct{} // closed after that
	ended    sync.Once
	cleanups cleanups
	signals  <-chan os.Signal
	sig      os.Signal     // the signal that ended a wait
	longer   time.Duration // by how much stalls prolonged the limit of the latest Await

	rand    *rand.Rand // of the orders; which client is given which depends on timing
	idle    []*Member  // that asked for an order
	closing bool
	err     error // why the trial cannot go on

	add  func(*Member, *Event) *Order // records what a client said
	next func(*Member) Order          // that a client is given
}

// report is an event of a client. A nil event: the process has ended, and all of its events
// were received.
type report struct {
	of *Member
	*Event
}

type cleanups []func()

func (c *cleanups) Cleanup(f func()) { *c = append(*c, f) }

func newStage(t *Trial) *Stage {
	s := &Stage{Book: NewBook(), o: t, reports: make(chan report), tasks: make(chan func()), done: make(chan struct{}), heard: make(chan struct{}),
		rand: rand.New(rand.NewPCG(t.Seed, 2))}
	s.add, s.next = s.Add, func(*Member) Order { return t.Draw(s.rand) }
	return s
}

// Open starts the clients of a trial; its caller plays the faults.
func (t *Trial) Open() *Stage { return newStage(t).open() }

func (s *Stage) open() *Stage {
	s.Stalled = stall.Watch(&s.cleanups)
	go s.hear()
	for slot := range s.o.Clients {
		s.Start(slot)
	}
	return s
}

// End kills the clients that are left, and hears nothing more.
func (s *Stage) End() {
	s.ended.Do(func() {
		close(s.done)
		<-s.heard
		for _, m := range s.All {
			m.Kill()
		}
		for _, f := range s.cleanups {
			f()
		}
	})
}

func (s *Stage) hear() {
	defer close(s.heard)
	var tick <-chan time.Time
	if s.o.Pace > 0 {
		ticker := time.NewTicker(s.o.Pace)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		select {
		case rep := <-s.reports:
			s.receive(rep.of, rep.Event)
		case f := <-s.tasks:
			f()
		case <-tick:
			s.order()
		case <-s.done:
			return
		}
		if s.until != nil {
			s.until()
		}
	}
}

// Do has something done where clients are heard, unless the trial has ended.
func (s *Stage) Do(f func()) {
	did := make(chan struct{})
	select {
	case s.tasks <- func() { f(); close(did) }:
		<-did
	case <-s.done:
	}
}

// Err returns why the trial cannot go on.
func (s *Stage) Err() (err error) {
	s.Do(func() { err = s.err })
	return err
}

// Await waits until enough is true, which is asked where clients are heard, after all that is said and done. It reports false when
// the limit, without the stalls of this process, has passed, or a signal came.
func (s *Stage) Await(limit time.Duration, enough func() bool) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	met, stood := make(chan struct{}), s.Stalled()
	defer func(before time.Duration) { s.longer = stood - before }(stood)
	s.Do(func() {
		s.until = func() {
			if enough() {
				close(met)
				s.until = nil
			}
		}
	})
	defer s.Do(func() { s.until = nil })
	for {
		select {
		case <-met:
			return true
		case s.sig = <-s.signals:
			return false
		case <-timer.C:
			if !s.stoodStill(timer, &stood) {
				return false
			}
		case <-s.done:
			return false
		}
	}
}

// stoodStill prolongs a limit that has passed by the time for which this process did not
// get to run since stood. It is false when there was none.
func (s *Stage) stoodStill(limit *time.Timer, stood *time.Duration) bool {
	lost := s.Stalled() - *stood
	*stood += lost
	if lost > 0 {
		limit.Reset(lost)
	}
	return lost > 0
}

// Start starts a client.
func (s *Stage) Start(slot int) {
	s.Do(func() { s.start(slot) })
}

func (s *Stage) start(slot int) {
	if s.err != nil {
		return
	}
	cmd, job := s.o.Client(slot)
	m := &Member{Slot: slot, Since: Now()}
	m.Process, s.err = Start(len(s.All)+1, cmd, func(e Event) { s.pass(report{m, &e}) })
	if s.err != nil {
		s.err = fmt.Errorf("a client could not be started: %w", s.err)
		return
	}
	s.All = append(s.All, m)
	m.Send(job) // through a pipe: it may contain a password
	go func() {
		<-m.Ended
		s.pass(report{m, nil})
	}()
}

func (s *Stage) pass(rep report) {
	select {
	case s.reports <- rep:
	case <-s.done:
	}
}

// receive records an event of a client.
func (s *Stage) receive(m *Member, e *Event) {
	if e != nil {
		e.Stalled = s.Stalled()
	}
	if s.o.Hear != nil {
		s.o.Hear(s.Book, m, e)
	}
	switch {
	case e == nil:
		s.leave(m)
	case e.What == Ready:
		m.Began = true
		switch {
		case !s.closing:
			if s.idle = append(s.idle, m); s.o.Pace == 0 {
				s.order()
			}
		case s.o.Last:
			m.Do(s.next(m))
		} // or it will read that it is to stop
	default:
		if answer := s.add(m, e); answer != nil {
			m.Send(answer)
		}
	}
}

// leave notes that a client has ended. A client that the drawn faults killed is replaced; the trial fails when a client ends
// without being told to.
func (s *Stage) leave(m *Member) {
	m.Left = true
	s.idle = slices.DeleteFunc(s.idle, func(other *Member) bool { return other == m })
	switch {
	case !m.Killed && !m.Order.Stop:
		s.err = fmt.Errorf("%v ended by itself: %s", m, m.Last())
	case m.Killed && !s.closing && s.o.Kill:
		s.start(m.Slot)
	}
}

// order gives the next order to the client that has asked for longest.
func (s *Stage) order() {
	if len(s.idle) == 0 {
		return
	}
	m := s.idle[0]
	s.idle = s.idle[1:]
	m.Do(s.next(m))
}

// resume lets a stopped client go on.
func (s *Stage) resume(m *Member) {
	if m.Paused {
		m.Paused = false
		_ = m.Resume() // fails only when it is gone
	}
}

// fit returns the clients that are neither killed nor stopped and that fit.
func (s *Stage) fit(fits func(*Member) bool) []*Member {
	return slices.DeleteFunc(slices.Clone(s.All), func(m *Member) bool { return m.Left || m.Killed || m.Paused || !fits(m) })
}

// Close has every client release what it holds, and end. It returns those that do not within a limit; none when a signal came
// meanwhile.
func (s *Stage) Close(limit time.Duration) (late []*Member) {
	s.Do(func() {
		s.closing = true
		idle := s.idle
		s.idle = nil
		last := s.o.Last && s.err == nil
		for _, m := range s.All {
			switch s.resume(m); {
			case !last:
				m.Do(Order{Stop: true})
			case slices.Contains(idle, m):
				m.Do(s.next(m))
			}
		}
	})
	first := s.sig
	s.sig = nil
	left := func() []*Member {
		return slices.DeleteFunc(slices.Clone(s.All), func(m *Member) bool { return m.Left })
	}
	if !s.Await(limit, func() bool { return len(left()) == 0 }) && s.sig == nil {
		s.Do(func() { late = left() })
	}
	s.sig = first
	return late
}
