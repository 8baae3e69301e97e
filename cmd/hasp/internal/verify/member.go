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

// member is one worker process, as its parent sees it. Once it was started, only the
// run's own goroutine uses it.
type member struct {
	n      int // counts every worker of a run, from 1
	pid    int
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr bytes.Buffer // to be read once the worker has ended

	began   bool // it asked for an order
	stopped bool
	killed  bool
	key     string        // of its latest order
	shared  bool          // which was to read
	asked   Mono          // when it asked for that key
	hold    *history.Hold // under way
}

// record is an event of a worker. A nil event: the process has ended, and all of its
// events were received.
type record struct {
	of *member
	e  *event
}

// startMember starts this program again, as a worker. What it reports goes to events
// until over is closed.
func startMember(n int, argv []string, job Job, events chan<- record, over <-chan struct{}) (*member, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &member{n: n, cmd: exec.Command(exe)}
	m.cmd.Args = argv
	m.cmd.Stderr = &m.stderr
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
			m.receive(out, events, over)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	m.pid = m.cmd.Process.Pid
	m.send(job)
	return m, nil
}

// receive forwards the worker's events, until it has ended.
func (m *member) receive(out io.Reader, events chan<- record, over <-chan struct{}) {
	pass := func(e *event) {
		select {
		case events <- record{m, e}:
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
	_ = m.cmd.Wait() // how it ended is in its events
	pass(nil)
}

// send writes a line to the worker, which may have ended. The pipe of a stopped one has
// room for it: it gets one line at a time, and the order to stop.
func (m *member) send(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	_, _ = m.in.Write(append(b, '\n'))
}

// String names the worker in messages.
func (m *member) String() string { return fmt.Sprintf("client %d (pid %d)", m.n, m.pid) }

// last returns the last line that the worker wrote to standard error, or else how it
// ended. It must have ended.
func (m *member) last() string {
	text := strings.TrimSpace(m.stderr.String())
	line := text[strings.LastIndexByte(text, '\n')+1:]
	if line == "" {
		return m.cmd.ProcessState.String()
	}
	return driver.Printable(line)
}
