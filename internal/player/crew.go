// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// Member is a client process and what is known of it. Once it was started, only the goroutine
// of its run uses it.
type Member struct {
	*Process
	Began   bool // it asked for an order
	Paused  bool
	Killed  bool
	Order   Order   // its latest
	Asked   Mono    // when it asked for the keys of that
	waiting bool    // since then
	Open    []*Hold // under way
	Giving  []*Hold // being released
}

// String names the client in messages.
func (m *Member) String() string { return fmt.Sprintf("client %d (pid %d)", m.ID, m.PID) }

// Do gives the client its next order.
func (m *Member) Do(o Order) {
	m.Order = o
	m.Send(o)
}

// Report is an event of a client. A nil event: the process has ended, and all of its events
// were received.
type Report struct {
	Of *Member
	*Event
}

// Crew are the clients of a run. One goroutine uses it.
type Crew struct {
	Reports chan Report
	Rested  chan *Member // their pauses are over
	Members map[*Member]bool
	Started int
	Closing bool  // clients that were killed are not replaced
	Err     error // why the run cannot go on
	job     Job
	prepare func(*exec.Cmd)
	done    chan struct{} // closed when the run receives no more reports
}

// NewCrew returns one without clients. Each will be a process of this program, as prepare has it, which calls Work.
func NewCrew(job Job, prepare func(*exec.Cmd)) *Crew {
	return &Crew{Reports: make(chan Report), Rested: make(chan *Member), Members: map[*Member]bool{}, job: job, prepare: prepare, done: make(chan struct{})}
}

// Hire adds clients.
func (c *Crew) Hire(n int) {
	for ; n > 0 && c.Err == nil; n-- {
		if err := c.start(); err != nil {
			c.Err = fmt.Errorf("a client could not be started: %w", err)
		}
	}
}

func (c *Crew) start() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	c.prepare(cmd)
	c.Started++
	m := &Member{}
	begin := make(chan struct{})
	p, err := Start(c.Started, cmd, func(_ *Process, e Event) {
		<-begin
		c.pass(Report{m, &e})
	})
	if err != nil {
		return err
	}
	m.Process = p
	c.Members[m] = true
	close(begin)
	m.Send(c.job)
	go func() {
		<-p.Ended
		c.pass(Report{m, nil})
	}()
	return nil
}

// Left takes note that a client has ended. One that was killed is replaced; the run fails when one ends that was not told to.
func (c *Crew) Left(m *Member) {
	delete(c.Members, m)
	switch {
	case m.Killed && !c.Closing:
		c.Hire(1)
	case !m.Killed && !m.Order.Stop:
		c.Err = fmt.Errorf("%v ended by itself: %s", m, m.Last())
	}
}

func (c *Crew) pass(r Report) {
	select {
	case c.Reports <- r:
	case <-c.done:
	}
}

// Kill kills a client. Its last report comes later.
func (c *Crew) Kill(m *Member) {
	m.Killed = true
	_ = m.cmd.Process.Kill() // fails only when it is gone
}

// Pause stops a client, which appears in Rested after d. It reports false when it is gone.
func (c *Crew) Pause(m *Member, d time.Duration) bool {
	if m.Process.Pause() != nil {
		return false
	}
	m.Paused = true
	time.AfterFunc(d, func() {
		select {
		case c.Rested <- m:
		case <-c.done:
		}
	})
	return true
}

// Resume lets a stopped client go on.
func (c *Crew) Resume(m *Member) {
	if m.Paused {
		m.Paused = false
		_ = m.Process.Resume() // fails only when it is gone
	}
}

// Fit returns the clients that are neither killed nor stopped and that fit, in the order of their
// numbers.
func (c *Crew) Fit(fits func(*Member) bool) (all []*Member) {
	for m := range c.Members {
		if !m.Killed && !m.Paused && fits(m) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b *Member) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// End kills the clients that are left, whose reports are no longer received.
func (c *Crew) End() {
	close(c.done)
	for m := range c.Members {
		m.Process.Kill()
	}
}
