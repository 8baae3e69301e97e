// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package crew starts this program again, as processes that do as they are told
// and say what they do, a line of JSON at a time, by one clock.
package child

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

// Process is one process. Its methods may be called by any number of goroutines
// at once.
type Process struct {
	ID    int
	Ended chan struct{} // closed once it was reaped and all it said was heard

	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
}

// Spawn starts this program once more with a job, as JSON, in the environment
// variable that env names; enter, which may be empty, is the command that does so
// somewhere else. What the process says goes to receive, one line after the other.
func Spawn[E any](id int, enter []string, env string, job any, receive func(*Process, E)) (*Process, error) {
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
	return Start(id, cmd, receive)
}

// Start starts a process that speaks as those do that Spawn starts.
func Start[E any](id int, cmd *exec.Cmd, receive func(*Process, E)) (p *Process, err error) {
	p = &Process{ID: id, cmd: cmd, Ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also when it is stopped
	if p.in, err = cmd.StdinPipe(); err != nil {
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
		defer close(p.Ended)
		dec := json.NewDecoder(out)
		for {
			var e E
			if dec.Decode(&e) != nil {
				break
			}
			receive(p, e)
		}
		_ = cmd.Wait() // how it ended is in what it said
	}()
	return p, <-started
}

// Send writes a line to the process, which may be gone.
func (p *Process) Send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = p.in.Write(append(b, '\n'))
}

// Errors is what the process wrote to standard error. It must have ended.
func (p *Process) Errors() string { return p.stderr.String() }

// Signal sends a signal. It is an error when the process has ended by itself.
func (p *Process) Signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("client %d ended by itself:\n%s", p.ID, p.stderr.String())
	}
	return err
}

// Kill ends the process and returns once it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only when it is gone
	<-p.Ended
}
