// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package crew starts this program again, as processes that do as they are told
// and say what they do, a line of JSON at a time, by one clock.
package crew

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
)

// Member is one process. Its methods may be called by any number of goroutines
// at once.
type Member struct {
	ID    int
	Ended chan struct{} // closed once it was reaped and all it said was heard

	cmd  *exec.Cmd
	in   io.WriteCloser
	errs bytes.Buffer
}

// Hire starts this program once more with a job, as JSON, in the environment
// variable that env names; enter, which may be empty, is the command that does so
// somewhere else. What the process says goes to hear, one line after the other.
func Hire[E any](id int, enter []string, env string, job any, hear func(*Member, E)) (*Member, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	line := append(slices.Clone(enter), exe)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), env+"="+string(text))
	return Start(id, cmd, hear)
}

// Start starts a process that speaks as those do that Hire starts.
func Start[E any](id int, cmd *exec.Cmd, hear func(*Member, E)) (m *Member, err error) {
	m = &Member{ID: id, cmd: cmd, Ended: make(chan struct{})}
	cmd.Stderr = &m.errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when it is stopped
	if m.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// The kernel ties the parent death signal to this thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		defer close(m.Ended)
		dec := json.NewDecoder(out)
		for {
			var e E
			if dec.Decode(&e) != nil {
				break
			}
			hear(m, e)
		}
		_ = cmd.Wait() // how it ended is in what it said
	}()
	return m, <-started
}

// Say writes a line to the process, which may be gone.
func (m *Member) Say(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = m.in.Write(append(b, '\n'))
}

// Errors is what the process wrote to standard error. It must have ended.
func (m *Member) Errors() string { return m.errs.String() }

// Signal sends a signal. It is an error when the process has ended by itself.
func (m *Member) Signal(s syscall.Signal) error {
	err := m.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("client %d ended by itself:\n%s", m.ID, m.errs.String())
	}
	return err
}

// Kill ends the process and returns once it is gone.
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill() // fails only when it is gone
	<-m.Ended
}
