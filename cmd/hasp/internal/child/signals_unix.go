// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Notify catches the signals that are passed on to a command, until stop is
// called. A signal that this process was started to ignore (nohup, a background job
// of a shell without job control) stays ignored, for the command, too. SIGPIPE
// is caught and dropped: that our messages are no longer read must not end us,
// and with us the command.
func Notify() (signals <-chan os.Signal, stop func()) {
	var want []os.Signal
	for _, sig := range []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	} {
		if !signal.Ignored(sig) {
			want = append(want, sig)
		}
	}
	c := make(chan os.Signal, 16)
	signal.Notify(c, want...)
	dropped := make(chan os.Signal, 1)
	signal.Notify(dropped, syscall.SIGPIPE)
	return c, func() { signal.Stop(c); signal.Stop(dropped) }
}

// Die ends this process by SIGINT, so that a shell that waits for it knows that
// Ctrl-C was pressed and stops its loop or script, which a plain exit status
// does not tell it. With group the whole group of this process gets the signal,
// as it would have from the terminal if that had not been lent. It returns when
// SIGINT is ignored here.
func Die(group bool) {
	signal.Reset(syscall.SIGINT)
	to := os.Getpid()
	if group {
		to = 0
	}
	if syscall.Kill(to, syscall.SIGINT) == nil {
		time.Sleep(time.Second) // the end comes at any moment, on any thread
	}
}
