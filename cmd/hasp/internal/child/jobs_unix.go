// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Job control. The shell sees our group and not the command's, so what happens
// to one has to happen to the other: when the command stops at the terminal we
// stop, so that the shell prompts; when the shell lets us go on, the command
// goes on.

const (
	// stopPatience is how long a command that was asked to stop may take. One
	// that ignores it runs on, and we stop nevertheless, as it is us that the
	// shell waits for.
	stopPatience = 500 * time.Millisecond
	// resumePatience is after what time we find that we were not stopped: the
	// kernel stops nobody at a terminal that no shell looks after.
	resumePatience = 250 * time.Millisecond
)

// job acts on SIGTSTP and SIGCONT to our own group.
func (r *runner) job(sig os.Signal) {
	if sig == syscall.SIGCONT {
		r.resume()
		return
	}
	r.p.signal(syscall.SIGTSTP)
	r.stopping = time.After(stopPatience)
}

// stopped acts on a stop of the command.
func (r *runner) stopped(sig syscall.Signal) {
	uses := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
	switch {
	case r.order != nil: // SIGKILL ends what is stopped, too
	case uses && r.tty.ours():
		r.tty.lend(r.p.pid)
		r.p.signal(syscall.SIGCONT)
	case r.tty != nil && (uses || r.tty.lent || sig == syscall.SIGTSTP):
		r.tty.wants = r.tty.wants || uses
		r.stop()
	}
	// Otherwise somebody paused the command from elsewhere: it still holds the
	// key, so we go on renewing.
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

// stop stops this process, and returns when it goes on or shortly before.
func (r *runner) stop() {
	r.stopping = nil
	to := os.Getpid()
	if r.tty != nil && r.tty.lent {
		to = 0 // the rest of our group would have been stopped by the terminal
		r.tty.takeBack()
	}
	r.resuming = time.After(resumePatience)
	_ = syscall.Kill(to, r.stopSignal)
}

// resume lets the command go on, after it was told what it has to know.
func (r *runner) resume() {
	r.resuming = nil
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
	r.p.signal(syscall.SIGCONT)
}
