// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Run runs the command to its end. An error means that it could not be started.
//
// Windows has no signals and no process groups that end together: an ordered
// end kills the command itself, at once, and not what it started. Ctrl-C
// reaches every process of the console by itself.
func Run(s Spec) (Status, error) {
	if s.Left != nil && s.Left() <= 0 {
		return Status{}, ErrLate
	}
	p, err := os.StartProcess(s.Path, s.Argv, &os.ProcAttr{Env: s.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return Status{}, err
	}
	ended := make(chan Status, 1)
	go func() {
		state, err := p.Wait()
		if err != nil {
			ended <- Status{Code: 1}
			return
		}
		ended <- Status{Code: state.ExitCode()}
	}()
	var ordered Status
	for {
		select {
		case st := <-ended:
			st.Ordered, st.Killed, st.Passed = ordered.Ordered, ordered.Killed, ordered.Passed
			return st, nil
		case sig := <-s.Signals: // the command has it from the console
			if sig := sig.(syscall.Signal); !slices.Contains(ordered.Passed, sig) {
				ordered.Passed = append(ordered.Passed, sig)
			}
		case <-s.End:
			s.End = nil
			order := s.Ending(p.Pid)
			ordered.Ordered = true
			ordered.Killed = !errors.Is(p.Kill(), os.ErrProcessDone)
			if order.Begun != nil {
				order.Begun()
			}
		}
	}
}

// Notify catches what would end this process, until stop is called.
func Notify() (signals <-chan os.Signal, stop func()) {
	c := make(chan os.Signal, 16)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c, func() { signal.Stop(c) }
}

// Die does nothing: Windows has no ends by signal.
func Die(bool) {}

// Limits says nothing: what Windows cannot do is documented.
func Limits() string { return "" }

// Crowded does not matter: Windows does not adopt orphans.
func Crowded() bool { return false }

// Room does not matter: Windows has no such limits.
func Room() error { return nil }

// AtWork: only Linux shows the environment of processes.
func AtWork() map[string][]string { return nil }

// Gains does not matter: Windows ends no command with this process.
func Gains(string) bool { return false }

// HasTerminal says no: Windows hangs up nothing.
func HasTerminal() bool { return false }

// Interactive says whether a user sits at a terminal and waits for this very
// process. Windows has no ends by signal to tell the user of.
func Interactive() bool { return false }
