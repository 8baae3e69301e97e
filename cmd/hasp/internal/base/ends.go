// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/hasplock/hasp/cmd/hasp/internal/screen"
)

// Ends delivers the signals that end what is shown until then.
type Ends chan os.Signal

// CatchEnds has the signals delivered from now on.
func CatchEnds() Ends {
	e := make(Ends, 1)
	e.catch()
	return e
}

func (e Ends) catch() {
	if wanted := heeded(); len(wanted) > 0 { // Notify without a signal is for all
		signal.Notify(e, wanted...)
	}
}

// heeded returns the signals that end this process, without those that nohup ignores.
func heeded() []os.Signal {
	return slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}, signal.Ignored)
}

// Stop stops this process, which has left the terminal, until it has it again. Meanwhile
// such a signal ends it as any other: a shell sends TERM to a job that stands still.
func (e Ends) Stop() {
	signal.Stop(e)
	screen.Stop(os.Stdout, heeded())
	e.catch()
}

// EndedBy is the end by such a signal.
func EndedBy(sig os.Signal) *Exit {
	n, _ := sig.(syscall.Signal)
	return &Exit{Code: 128 + int(n), Verdict: "interrupted", Interrupted: n == syscall.SIGINT}
}

// Signaled is the cause of a wait that a signal ended.
type Signaled struct{ Sig syscall.Signal }

func (s Signaled) Error() string { return fmt.Sprintf("signal %d (%v)", int(s.Sig), s.Sig) }

// UntilSignal returns a context that a signal ends, and is the cause of. A second one ends the process.
func UntilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	if wanted := heeded(); len(wanted) > 0 {
		signal.Notify(signals, wanted...)
	}
	go func() {
		select {
		case sig := <-signals:
			n, _ := sig.(syscall.Signal)
			cancel(Signaled{n})
			signal.Stop(signals)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}
