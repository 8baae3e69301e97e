// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/charmbracelet/x/term"
	"golang.org/x/sys/unix"
)

// terminal is this process's controlling terminal, and what is lent of it. A
// nil terminal stands for none: its methods do nothing.
//
// A terminal belongs to one process group, its foreground; a process of any
// other group is stopped when it reads. So a command in a group of its own has
// to be lent the terminal, and hasp takes it back.
type terminal struct {
	fd    int
	group int  // ours
	wants bool // the command uses the terminal: lend it whenever we have it
	lent  bool // the command's group is in the foreground
	modes *term.State
}

// openTerminal returns nil when there is no controlling terminal.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	t := &terminal{fd: fd, group: syscall.Getpgrp()}
	t.modes, _ = term.GetState(uintptr(fd)) // nil: nothing to put back
	return t
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd) // nothing was written to it
	}
}

// ours says whether our group is in the foreground.
func (t *terminal) ours() bool {
	if t == nil {
		return false
	}
	g, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && g == t.group
}

// eager says whether the command should have the terminal from the start: it
// would read from it, and no other process of our group would. In "hasp run … |
// less" it is less that reads: there the command gets the terminal only when
// it asks.
func (t *terminal) eager() bool {
	out, err := os.Stdout.Stat()
	return t.ours() && IsTerminal(os.Stdin) && err == nil && out.Mode()&os.ModeNamedPipe == 0
}

// starting undoes what started did for a command before, which would be
// inherited. Only a signal that is caught is not: Reset leaves it ignored.
func (t *terminal) starting() {
	if t != nil && signal.Ignored(syscall.SIGTTOU) {
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, syscall.SIGTTOU)
		signal.Stop(caught)
	}
}

// started notes that the command runs, with the terminal or without. From now
// on we may move the terminal from outside of its foreground: a process that
// does not ignore SIGTTOU is stopped when it tries. (Not earlier: the command
// would inherit that.)
func (t *terminal) started(lent bool) {
	if t != nil {
		t.wants, t.lent = lent, lent
		signal.Ignore(syscall.SIGTTOU)
	}
}

// lend puts the command's group into the foreground, if that is ours to give.
func (t *terminal) lend(group int) {
	if t.ours() && unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil {
		t.wants, t.lent = true, true
	}
}

// takeBack puts our group into the foreground, if we lent it.
func (t *terminal) takeBack() {
	if t != nil && t.lent {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.group) // the terminal may be gone
		t.lent = false
	}
}

// reset puts the modes back as they were, after a command that was given no
// time to do so itself.
func (t *terminal) reset() {
	if t != nil && t.modes != nil && t.wants {
		_ = term.Restore(uintptr(t.fd), t.modes) // the terminal may be gone
	}
}

// HasTerminal says whether this process has a controlling terminal, which may be
// hung up.
func HasTerminal() bool {
	t := openTerminal()
	defer t.close()
	return t != nil
}

// Interactive says whether a user sits at a terminal and waits for this very
// process.
func Interactive() bool {
	if !IsTerminal(os.Stdin) && !IsTerminal(os.Stdout) && !IsTerminal(os.Stderr) {
		return false
	}
	t := openTerminal()
	defer t.close()
	return t.ours()
}
