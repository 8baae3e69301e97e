// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

// Package child runs one command on behalf of this process: it lends the command the
// terminal, passes signals on to it, and can end it together with everything that it
// started.
//
// On Unix the command gets a process group of its own, so that a signal reaches
// all that it started at once. On Linux this process also adopts what left that
// group (setsid, a double fork) and finds it by walking /proc, and the kernel
// ends the command when this process is killed with -9. Other systems can
// neither; Windows has no signals, so there a command can only be killed.
//
// A process runs one command at a time, perhaps one after another: signals, the
// terminal and orphans belong to the process as a whole.
package child

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/charmbracelet/x/term"
)

// Spec says what to run, and when it has to end.
type Spec struct {
	// Path is the program, Argv its arguments from argv[0] on, Env its whole
	// environment.
	Path string
	Argv []string
	Env  []string
	// Left says for how long from now the command may still begin. It is asked
	// before the command is made, and on Linux the time is looked at again right
	// before it begins. nil: at any time.
	Left func() time.Duration
	// Signals delivers what this process gets, from Notify: it is passed on to
	// the command's group.
	Signals <-chan os.Signal
	// End is closed when the command has to end. nil: never.
	End <-chan struct{}
	// Ending is called once, when End was closed while the command ran. It returns
	// how to end the command. The first signal is sent after that.
	Ending func(pid int) Order
	// Grace is how long an end by a signal waits for what the command started. 0: the
	// end of the command is the end of Run.
	Grace time.Duration
	// Stays, if set, is called once when a command still runs Grace after SIGTERM was passed on to it.
	Stays func(pid int)
	// Resumed, if set, is called when this process goes on after it was
	// stopped, before a stopped command goes on. It may close End.
	Resumed func()
	// Lazy: the command gets the terminal only when it asks for it, so that Ctrl-C
	// reaches this process, which passes it on and knows of it.
	Lazy bool
}

// Order is how a command is to be ended.
type Order struct {
	// Term: ask with SIGTERM first. Without it the command is killed at once.
	Term bool
	// Left returns the time until SIGKILL. It is called again and again, to notice a
	// clock that jumps (a machine that slept).
	Left func() time.Duration
	// Begun, if set, is called after the first signal was sent.
	Begun func()
	// Refused, if set, is called then with the names of what may not be signalled, and
	// so not be ended: another user's.
	Refused func(names []string)
}

// Status is how a command ended.
type Status struct {
	// Code is its exit status, when Signal is 0.
	Code int
	// Signal is what ended it.
	Signal syscall.Signal
	// Ordered: it was still running when End was closed.
	Ordered bool
	// Killed: SIGKILL was needed.
	Killed bool
	// Keyboard: the terminal sent Signal to the command's group, and to no other
	// process, since the command had the terminal.
	Keyboard bool
	// Passed are the signals that this process got while the command ran, and
	// passed on, each once.
	Passed []syscall.Signal
	// Remaining names the processes that the command left running. After an ordered
	// end they are not ours to kill, or stuck in the kernel.
	Remaining []string
	// Alive: the command itself is one of them.
	Alive bool
}

// Exit returns the status as a shell would: 128 + n for a signal.
func (s Status) Exit() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// ErrLate is the error of Run when the time to begin was over: nothing of the
// command ran.
var ErrLate = errors.New("the command could not begin in time")

// ErrNotBegun is the error of Run when the process that was to become the command
// ended before: killed, or at a limit.
var ErrNotBegun = errors.New("the process that was to become it ended before that")

const (
	// endTick is how often an ordered end is looked after.
	endTick = 20 * time.Millisecond
	// killLimit is how long to wait for killed processes to be gone: only a process
	// that is stuck in the kernel, or that is not ours to kill, takes so long.
	killLimit = 5 * time.Second
	// echo is how soon a second signal is taken for the first, sent by another way.
	echo = 10 * time.Millisecond
	// settle is for what ends right after its command, such as the reader of its pipe.
	settle = 100 * time.Millisecond
)

// IsTerminal says whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(f.Fd()) }
