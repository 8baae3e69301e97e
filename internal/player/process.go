// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package player

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/hasplock/hasp/driver"
)

// Process is one child process, which reads requests and reports events, each a line of
// JSON. Its methods may be called by any number of goroutines at once.
type Process struct {
	ID    int
	PID   int
	Ended chan struct{} // closed once it was reaped and all its events were received

	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer
}

// Main turns this process into what serve is when Spawn started it with env, and does not
// return then.
func Main(env string, serve func(in io.Reader, out io.Writer) error) {
	if os.Getenv(env) == "" {
		return
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Again is this program once more, with the environment variable env set, if there is one, for Main. enter is a command that executes it
// elsewhere, such as in a namespace.
func Again(env string, enter ...string) *exec.Cmd {
	exe, err := os.Executable()
	line := append(enter, exe)
	cmd := exec.Command(line[0], line[1:]...)
	if env != "" {
		cmd.Env = append(os.Environ(), env+"=1")
	}
	cmd.Err = cmp.Or(cmd.Err, err)
	return cmd
}

// Spawn starts this program again. job is its first input, and its events are passed to receive, one after another.
func Spawn[E any](id int, env string, job any, receive func(E)) (*Process, error) {
	p, err := Start(id, Again(env), receive)
	if err == nil {
		p.Send(job)
	}
	return p, err
}

// Start starts a process with the same protocol as one from Spawn.
func Start[E any](id int, cmd *exec.Cmd, receive func(E)) (p *Process, err error) {
	p = &Process{ID: id, cmd: cmd, Ended: make(chan struct{})}
	cmd.Stderr = &p.stderr
	cmd.SysProcAttr = attributes()
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// Linux counts the end of the thread that forked as the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		p.PID = cmd.Process.Pid
		started <- nil
		defer close(p.Ended)
		dec := json.NewDecoder(out)
		for {
			var e E
			if dec.Decode(&e) != nil {
				break
			}
			receive(e)
		}
		_ = cmd.Wait() // how it ended is in its events
	}()
	return p, <-started
}

// Send writes a line to the process, which may have ended. The pipe of a stopped process has
// room for a few.
func (p *Process) Send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = p.in.Write(append(b, '\n'))
}

// Errors returns what the process wrote to standard error. It must have ended.
func (p *Process) Errors() string { return p.stderr.String() }

// Last returns the last line of Errors, or else how the process ended.
func (p *Process) Last() string {
	text := strings.TrimSpace(p.stderr.String())
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if line == "" {
		return p.cmd.ProcessState.String()
	}
	return driver.Printable(line)
}

// Pause stops the process. The error is os.ErrProcessDone if it has ended by itself.
func (p *Process) Pause() error { return pause(p.cmd.Process) }

// Resume lets a stopped process go on. The error is as of Pause.
func (p *Process) Resume() error { return resume(p.cmd.Process) }

// Signal sends a signal. The error is as of Pause.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill kills the process and returns once it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.Ended
}
