// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/hasplock/hasp/driver"
	"github.com/hasplock/hasp/internal/history"
)

// member is one worker process, as its parent sees it. Only the run's own
// goroutine touches it once it was started.
type member struct {
	n    int // counts every worker of a run, from 1
	pid  int
	cmd  *exec.Cmd
	in   io.WriteCloser
	errs bytes.Buffer // to be read once the worker is gone

	began   bool // it asked for an order
	stopped bool
	killed  bool
	key     string        // of its latest order
	shared  bool          // which was to read
	asked   Mono          // when it asked for that key
	hold    *history.Hold // under way
}

// record is an event, and whose it is. A nil event: the process is gone, and all
// it said was heard.
type record struct {
	of *member
	e  *event
}

// startMember starts this program once more, as a worker. What it says goes to heard
// until over is closed.
func startMember(n int, argv []string, job Job, heard chan<- record, over <-chan struct{}) (*member, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &member{n: n, cmd: exec.Command(exe)}
	m.cmd.Args = argv
	m.cmd.Stderr = &m.errs
	m.cmd.SysProcAttr = attributes()
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// Linux counts the end of the thread that forked as the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.hear(out, heard, over)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	m.pid = m.cmd.Process.Pid
	m.say(job)
	return m, nil
}

// hear passes on what the worker says, until it is gone.
func (m *member) hear(out io.Reader, heard chan<- record, over <-chan struct{}) {
	pass := func(e *event) {
		select {
		case heard <- record{m, e}:
		case <-over:
		}
	}
	dec := json.NewDecoder(out)
	for {
		var e event
		if dec.Decode(&e) != nil {
			break
		}
		pass(&e)
	}
	_ = m.cmd.Wait() // how it ended is in what it said
	pass(nil)
}

// say writes a line to the worker, which may be gone. One that is stopped has
// room for it in its pipe: it gets one line at a time, and the word to stop.
func (m *member) say(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = m.in.Write(append(b, '\n'))
}

// String names the worker for people.
func (m *member) String() string { return fmt.Sprintf("client %d (pid %d)", m.n, m.pid) }

// last is the last line that the worker wrote to standard error, or else how it
// ended. The worker is gone.
func (m *member) last() string {
	text := strings.TrimSpace(m.errs.String())
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if line == "" {
		return m.cmd.ProcessState.String()
	}
	return driver.Printable(line)
}
