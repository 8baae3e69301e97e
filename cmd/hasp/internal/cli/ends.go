// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/screen"
)

// ends delivers the signals that end what is shown until then.
type ends chan os.Signal

func catchEnds() ends {
	e := make(ends, 1)
	e.catch()
	return e
}

func (e ends) catch() {
	if wanted := heeded(); len(wanted) > 0 { // Notify without a signal is for all
		signal.Notify(e, wanted...)
	}
}

// heeded returns the signals that end this process, without those that nohup ignores.
func heeded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}

// stop stops this process, which has left the terminal, until it has it again. Meanwhile
// such a signal ends it as any other: a shell sends TERM to a job that stands still.
func (e ends) stop() {
	signal.Stop(e)
	screen.Stop(os.Stdout, heeded())
	e.catch()
}

// endedBy is the end by such a signal.
func endedBy(sig os.Signal) *exit {
	n, _ := sig.(syscall.Signal)
	return &exit{code: 128 + int(n), verdict: "interrupted", interrupted: n == syscall.SIGINT}
}
