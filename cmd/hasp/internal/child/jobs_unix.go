// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Job control. The shell sees our group and not the command's, so what happens
// to one has to happen to the other: when the command stops at the terminal we
// stop, so that the shell prompts; when the shell lets us go on, the command
// goes on.

// resumePatience is after what time we find that we were not stopped: the
// kernel stops no process at a terminal that no shell looks after.
const resumePatience = 250 * time.Millisecond

// job acts on SIGTSTP and SIGCONT to our own group. We stop once the command has
// stopped: a command that ignores SIGTSTP runs on, and needs its lease.
func (r *runner) job(sig os.Signal) {
	switch {
	case sig == syscall.SIGCONT:
		r.resume()
	case r.order == nil:
		r.asked = true
		r.p.signal(syscall.SIGTSTP)
	}
}

// stopped acts on a stop of the command.
func (r *runner) stopped(sig syscall.Signal) {
	uses := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case r.order != nil: // SIGKILL ends what is stopped, too
	case uses && r.tty.ours():
		r.tty.lend(r.p.pid)
		r.p.goOn()
	case r.asked && sig == syscall.SIGTSTP, r.tty != nil && (uses || r.tty.lent || sig == syscall.SIGTSTP):
		if r.tty != nil {
			r.tty.wants = r.tty.wants || uses
		}
		r.stop()
	}
	// Otherwise a signal from elsewhere paused the command: it still holds the
	// key, so we go on renewing.
}

// stopIgnored says whether this process was started to ignore SIGTSTP, which a
// command inherits as long as it is not caught here. signal.Ignored does not know it.
var stopIgnored = sync.OnceValue(func() bool { return ignores(os.Getpid(), syscall.SIGTSTP) })

// ignores says whether a process is known to ignore a signal.
func ignores(pid int, sig syscall.Signal) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // only Linux has it
	_, mask, _ := strings.Cut(string(text), "\nSigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	bits, err := strconv.ParseUint(mask, 16, 64)
	return err == nil && bits&(1<<(sig-1)) != 0
}

// stopBetween lets Ctrl-Z stop this process also when no command runs, now that
// SIGTSTP is caught, which Go cannot undo.
var stopBetween = sync.OnceFunc(func() {
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, syscall.SIGTSTP)
	go func() {
		for range stops {
			if idle() {
				_ = syscall.Kill(os.Getpid(), syscall.SIGTTIN)
			}
		}
	}()
})

// stop stops this process, and returns when it goes on or shortly before. A
// shell that already wants us to go on does not want us to stop.
func (r *runner) stop() {
	r.asked = false
	flush := make(chan os.Signal, 1)
	signal.Notify(flush, syscall.SIGCONT)
	signal.Stop(flush) // returns when what this process got has been delivered
	select {
	case <-r.jobs: // SIGCONT, or one more SIGTSTP, which the command has heard
		r.resume()
		return
	default:
	}
	to := os.Getpid()
	if r.tty != nil && r.tty.lent {
		to = 0 // the rest of our group would have been stopped by the terminal
		r.tty.takeBack()
	}
	r.resuming = time.After(resumePatience)
	_ = syscall.Kill(to, r.stopSignal)
}

// resume lets the command go on, after Resumed has returned.
func (r *runner) resume() {
	r.resuming, r.asked = nil, false
	if r.order != nil {
		return
	}
	if r.Resumed != nil {
		r.Resumed()
	}
	select {
	case <-r.End:
		r.end()
		return
	default:
	}
	if r.tty != nil && r.tty.wants {
		r.tty.lend(r.p.pid)
	}
	r.p.goOn()
}
