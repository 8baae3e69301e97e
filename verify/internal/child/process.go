// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package child starts this program again, as processes that read requests and report
// events, each a line of JSON, with the times of one clock.
package child

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
)

// Process is one child process. Its methods may be called by any number of goroutines
// at once.
type Process struct {
	ID    int
	Ended chan struct{} // closed once it was reaped and all its events were received

	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
}

// Spawn starts this program again with a job, as JSON, in the environment variable env;
// enter, which may be empty, is a command that executes it elsewhere, such as in a
// namespace. Its events are passed to receive, one after another.
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

// Start starts a process with the same protocol as one from Spawn.
func Start[E any](id int, cmd *exec.Cmd, receive func(*Process, E)) (p *Process, err error) {
	p = &Process{ID: id, cmd: cmd, Ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also if it is stopped
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
		_ = cmd.Wait() // how it ended is in its events
	}()
	return p, <-started
}

// Send writes a line to the process, which may have ended.
func (p *Process) Send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = p.in.Write(append(b, '\n'))
}

// Errors returns what the process wrote to standard error. It must have ended.
func (p *Process) Errors() string { return p.stderr.String() }

// Signal sends a signal. The error is os.ErrProcessDone if the process has ended by itself.
func (p *Process) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process and returns once it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.Ended
}
