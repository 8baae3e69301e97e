// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package screen says whether a terminal can be drawn on, and is ours, and stops the process as Ctrl-Z does.
package screen

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Drawable says whether f is a terminal that can be drawn on.
func Drawable(f *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	term := os.Getenv("TERM")
	return err == nil && term != "" && term != "dumb"
}

// Stops delivers SIGTSTP, after which Stop has to be called.
func Stops() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTSTP)
	return c
}

// patience is after what time we conclude that we were not stopped: the kernel stops no
// process of an orphaned process group.
const patience = 250 * time.Millisecond

// Stop stops this process as Ctrl-Z does, and returns when it goes on and has the
// terminal f. Any of these signals ends the process meanwhile.
func Stop(f *os.File, ends []os.Signal) {
	defer kernelEnds(ends)()
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	_ = syscall.Kill(os.Getpid(), syscall.SIGTTIN) // Go cannot undo that SIGTSTP is caught
	if stopped(goOn) {
		// In the background the kernel stops us here. To look first, and then to stop ourselves, would also stop us in the
		// foreground, if fg came in between.
		for !Foreground(f) && drain(int(f.Fd())) == nil {
		}
	}
}

// stopped reports whether we were stopped, once we go on. The first timer may have run while we stood still, so that it has
// expired before we hear that we go on.
func stopped(goOn <-chan os.Signal) bool {
	for range 2 {
		select {
		case <-goOn:
			return true
		case <-time.After(patience):
		}
	}
	return false
}

// Foreground says whether the terminal f is this process's to draw on.
func Foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err != nil || group == syscall.Getpgrp() // not our controlling terminal: no other group's either
}
