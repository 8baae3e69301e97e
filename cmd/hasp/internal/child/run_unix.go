// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// Run runs the command to its end. An error means that it could not be started;
// ErrLate that it was not, as its time was over.
//
// Run leaves alone the processes that the command leaves running when it ends by itself. An
// ordered end includes them, and the processes of an earlier command. After an end by a
// signal Run asks them to end as well, and waits for them.
func Run(s Spec) (Status, error) {
	tty := openTerminal()
	defer tty.close()
	fd := -1
	if !s.Lazy && tty.eager() {
		fd = tty.fd
	}
	r := &runner{Spec: s, tty: tty, jobs: make(chan os.Signal, 4), answers: make(chan answer), stopSignal: syscall.SIGTSTP}
	// Before the command runs: it can be stopped, and resumed, at once.
	signal.Notify(r.jobs, syscall.SIGCONT)
	if fd < 0 && !stopIgnored() { // Ctrl-Z reaches us and not the command
		signal.Notify(r.jobs, syscall.SIGTSTP)
		r.stopSignal = syscall.SIGTTIN
		stopBetween()
	}
	defer signal.Stop(r.jobs)
	tty.starting()
	p, err := start(s, fd)
	tty.started(fd >= 0)
	defer tty.takeBack()
	if err != nil {
		return Status{}, err
	}
	r.p = p
	r.loop()
	if err := r.failure(); err != nil {
		return Status{}, err
	}
	if r.status.Ordered {
		tty.takeBack()
		tty.reset()
	}
	return r.status, nil
}

// runner is one run of a command.
type runner struct {
	Spec
	p      *process
	tty    *terminal
	jobs   chan os.Signal // job control of our own group
	status Status

	// stopSignal stops us. Like SIGTSTP, SIGTTIN stops no process at a terminal
	// that no shell looks after; Go cannot undo that it once caught SIGTSTP.
	stopSignal syscall.Signal

	latest syscall.Signal // that was passed on
	heard  time.Time      // when
	begun  bool           // the command did, or failed to
	failed error          // why it did not
	ended  bool           // the command, not yet what it started
	until  time.Time      // when what it started is no longer waited for
	asking bool           // it was asked to end
	order  *Order
	tick   *time.Ticker
	killed time.Time

	questions int         // to systemd, without an answer
	answers   chan answer // to those

	staying <-chan time.Time // when the command has had its time to end on SIGTERM

	asked    bool             // the command was asked to stop, as we were
	resuming <-chan time.Time // when to go on, as we were not stopped after all
}

func (r *runner) loop() {
	r.tick = time.NewTicker(time.Hour)
	defer r.tick.Stop()
	for !r.over() {
		signals := r.Signals
		if !r.begun { // what a signal does is the command's choice
			signals = nil
		}
		select {
		case r.failed = <-r.p.began:
			r.begun = true
		case c := <-r.p.changes:
			r.changed(c)
		case sig := <-signals:
			r.pass(sig.(syscall.Signal))
		case a := <-r.answers:
			r.answered(a)
		case sig := <-r.jobs:
			r.job(sig)
		case <-r.resuming:
			r.resume()
		case <-r.staying:
			if !r.ended && r.order == nil {
				r.Stays(r.p.pid)
			}
		case <-r.End:
			r.end()
		case <-r.tick.C:
			r.press()
		}
	}
}

// failure says why the command did not begin. It comes after the end of the
// process that was to become it.
func (r *runner) failure() error {
	if !r.begun && r.ended {
		r.failed = <-r.p.began
	}
	switch {
	case !errors.Is(r.failed, ErrNotBegun):
		return r.failed
	case r.status.Ordered: // and so it was ended
		return ErrLate
	case r.status.Signal != 0:
		return fmt.Errorf("%w, by signal %d (%v)", ErrNotBegun, int(r.status.Signal), r.status.Signal)
	}
	return fmt.Errorf("%w, with status %d", ErrNotBegun, r.status.Code)
}

// over says whether nothing is left of the command, or not waited for any longer.
func (r *runner) over() bool {
	if r.questions > 0 { // for a second at most: systemctl is a child, too, and none that is named
		return false
	}
	if r.ended && (r.p.alone() || r.order == nil && r.until.IsZero()) {
		return true
	}
	limit := r.until
	if r.order != nil && !r.killed.IsZero() {
		limit = r.killed.Add(killLimit)
	}
	if r.order != nil && r.killed.IsZero() || limit.IsZero() || time.Now().Before(limit) {
		return false
	}
	r.status.Remaining, r.status.Alive = r.p.names(true), !r.ended
	return true
}

// rest begins the wait for what the command leaves running. After an end by a signal
// that is asked to end, too, except for what had the signal together with the command.
func (r *runner) rest() {
	if r.Grace == 0 || r.order != nil || r.p.alone() {
		return
	}
	var had []syscall.Signal
	for _, sig := range r.status.Passed {
		if sig == r.status.Signal || sig == syscall.SIGTERM || sig == syscall.SIGINT || sig == syscall.SIGQUIT {
			had = append(had, sig)
		}
	}
	if r.status.Keyboard {
		had = append(had, r.status.Signal)
	}
	r.asking = len(had) > 0 || r.status.Signal != 0
	r.until = time.Now().Add(settle)
	if r.asking {
		r.until = time.Now().Add(r.Grace)
		r.p.askToEnd(had)
	}
	r.tick.Reset(endTick)
}

func (r *runner) pass(sig syscall.Signal) {
	if r.repeats(sig) {
		return
	}
	r.latest, r.heard = sig, time.Now()
	if !slices.Contains(r.status.Passed, sig) {
		r.status.Passed = append(r.status.Passed, sig)
		if sig == syscall.SIGTERM && r.Stays != nil && r.Grace > 0 {
			r.staying = time.After(r.Grace)
		}
	}
	question := unitQuestion(r.p.pid)
	if r.ended || question == nil || sig == syscall.SIGUSR1 || sig == syscall.SIGUSR2 {
		r.deliver(sig)
		return
	}
	r.questions++
	go func() { // the end of the lease does not wait for systemd
		r.answers <- answer{sig, question()}
	}()
}

// deliver sends the command a signal; once it has ended, what it started, which is waited for.
func (r *runner) deliver(sig syscall.Signal) {
	if r.ended {
		r.p.signalAll(sig)
		return
	}
	r.p.signal(sig)
}

// answer is systemd's: whether it has sent the command a signal itself.
type answer struct {
	sig syscall.Signal
	had bool
}

// answered passes a signal on that the command did not have. A command that had it twice might give up its clean end.
func (r *runner) answered(a answer) {
	if r.questions--; !a.had {
		r.deliver(a.sig)
	}
}

// repeats says whether a signal is an echo: sent to hasp, and to all. What does not ask for the end counts each time: a
// program that reads its files again may have done so before the second signal.
func (r *runner) repeats(sig syscall.Signal) bool {
	switch {
	case sig == syscall.SIGUSR1, sig == syscall.SIGUSR2, sig == syscall.SIGHUP && r.tty == nil:
		return false
	}
	return sig == r.latest && time.Since(r.heard) < echo
}

func (r *runner) changed(c change) {
	if c.Stopped() {
		if !r.p.since(c) {
			r.stopped(c.StopSignal())
		}
		return
	}
	s := statusOf(c.WaitStatus)
	r.ended = true
	r.status.Code, r.status.Signal = s.Code, s.Signal
	r.status.Keyboard = (s.Signal == syscall.SIGINT || s.Signal == syscall.SIGQUIT) &&
		!slices.Contains(r.status.Passed, s.Signal) && r.tty != nil && r.tty.lent
	r.rest()
}

// end begins an ordered end, unless the command was faster, and by itself.
func (r *runner) end() {
	r.End = nil
	if r.p.dead() {
		for !r.ended { // its status is on the way
			r.changed(<-r.p.changes)
		}
		if !r.asking {
			return
		}
	}
	order := r.Ending(r.p.pid)
	r.order = &order
	r.status.Ordered = true
	if order.Term {
		r.p.signalAll(syscall.SIGTERM, syscall.SIGCONT) // a stopped process handles no signal but SIGKILL
	}
	r.press()
	if order.Begun != nil {
		order.Begun()
	}
	if names := r.p.names(false); order.Refused != nil && len(names) > 0 {
		order.Refused(names)
	}
}

// press kills, again and again, once the time is over: processes that are started
// meanwhile are found the next time. It acts exactly when the time is over, not up to
// a tick later, when another may have the key.
func (r *runner) press() {
	if r.order == nil {
		return
	}
	if r.order.Term {
		if left := r.order.Left(); left > 0 {
			r.tick.Reset(min(endTick, left))
			return
		}
	}
	r.tick.Reset(endTick)
	found := r.p.signalAll(syscall.SIGKILL)
	if r.killed.IsZero() {
		r.killed, r.status.Killed = time.Now(), found
	}
}
