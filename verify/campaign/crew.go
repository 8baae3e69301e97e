// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package campaign

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
	"sync"
	"syscall"
)

// record is an event and whose it is.
type record struct {
	Client int `json:"client"` // counts every process of a run, from 0
	event
}

// journal is what all clients of a run reported.
type journal struct {
	mu      sync.Mutex
	records []record
	more    chan struct{} // has room for one
}

func (j *journal) add(r record) {
	j.mu.Lock()
	j.records = append(j.records, r)
	j.mu.Unlock()
	select {
	case j.more <- struct{}{}:
	default: // a signal is there already
	}
}

// from returns what was reported since the first n records.
func (j *journal) from(n int) []record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records[n:len(j.records):len(j.records)]
}

// member is one client process.
type member struct {
	id    int // as record.Client
	cmd   *exec.Cmd
	in    io.WriteCloser
	errs  bytes.Buffer
	ended chan struct{} // closed once it was reaped and all it said is recorded
}

// hire starts this program once more as a client; enter, which may be empty, is
// the command that does so somewhere else.
func hire(id int, enter []string, j job, log *journal, registers map[string]*register) (*member, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	line := append(slices.Clone(enter), exe)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(os.Environ(), clientEnv+"="+string(text))
	return start(id, cmd, log, registers)
}

// start starts a process that speaks as a client does.
func start(id int, cmd *exec.Cmd, log *journal, registers map[string]*register) (m *member, err error) {
	m = &member{id: id, cmd: cmd, ended: make(chan struct{})}
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
		defer close(m.ended)
		m.hear(out, log, registers)
		_ = cmd.Wait() // how it ended is in what it said
	}()
	return m, <-started
}

// hear records what the client says, and answers for the registers, until it
// has ended.
func (m *member) hear(out io.Reader, log *journal, registers map[string]*register) {
	dec := json.NewDecoder(out)
	for {
		var e event
		if err := dec.Decode(&e); err != nil {
			return
		}
		log.add(record{m.id, e})
		if e.What == read || e.What == write {
			m.say(registers[e.Key].serve(e))
		}
	}
}

// say writes a line to the client, which may be gone.
func (m *member) say(a answer) {
	b, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	_, _ = m.in.Write(append(b, '\n'))
}

func (m *member) signal(s syscall.Signal) error {
	err := m.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("client %d ended by itself:\n%s", m.id, m.errs.String())
	}
	return err
}

// kill ends the process and returns once it is gone.
func (m *member) kill() {
	_ = m.cmd.Process.Kill() // fails only when it is gone
	<-m.ended
}
