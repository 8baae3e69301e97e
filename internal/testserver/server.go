// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package testserver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// startLimit bounds the wait for the first answer: generous, because a
	// machine under load must not fail a test here.
	startLimit = 3 * time.Minute
	// attempts bounds how often a port that another process took in between is
	// exchanged for another.
	attempts = 10
)

// errPortTaken: the port was free when it was chosen, and is not any more.
var errPortTaken = errors.New("the port is taken")

// spec is what differs between the kinds of server.
type spec struct {
	path  string                               // the program
	by    []string                             // what turns into it, with its arguments; empty: it is started itself
	args  func(s *Server) []string             // its arguments, once the port is chosen
	env   []string                             // added to this process's environment
	ready func(context.Context, *Server) error // nil once the server answers
	taken string                               // what its log says when the port is in use
	stale []string                             // files that keep a killed server's successor from starting
}

// Server is one server process, which may be killed, stopped and started again.
// Its methods fail the test when they cannot do what they say; call them from
// the test's goroutine.
type Server struct {
	t    testing.TB
	spec spec
	dir  string
	port int

	mu   sync.Mutex
	proc *process
}

// Addr returns host:port, the same over every Restart.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Port returns the port alone.
func (s *Server) Port() int { return s.port }

// Dir returns the server's own directory, where its data is.
func (s *Server) Dir() string { return s.dir }

// PID returns the id of the process that runs now, or ran last.
func (s *Server) PID() int { return s.current().pid }

// Kill ends the server with SIGKILL and returns once it is gone. What it did not
// write to disk is lost. Killing it twice is harmless.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.current().kill(); err != nil {
		s.t.Fatalf("testserver: kill %s: %v", s.name(), err)
	}
}

// Stop freezes the server with SIGSTOP and returns once it stands still: the
// kernel goes on accepting connections for it, and nothing is answered.
func (s *Server) Stop() {
	s.t.Helper()
	if err := stop(s.current().proc); err != nil {
		s.t.Fatalf("testserver: stop %s: %v", s.name(), err)
	}
}

// Cont resumes a stopped server.
func (s *Server) Cont() {
	s.t.Helper()
	if err := cont(s.current().proc); err != nil {
		s.t.Fatalf("testserver: continue %s: %v", s.name(), err)
	}
}

// Restart kills the server when it still runs, starts it again with the same
// port, arguments and directory, and returns once it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("testserver: restart %s: %v", s.name(), err)
	}
}

func (s *Server) name() string { return filepath.Base(s.spec.path) }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// launch starts a server on a port that choose gives, and ends it with the test.
func launch(t testing.TB, sp spec, choose func() (int, error)) *Server {
	t.Helper()
	s := newServer(t, sp)
	var err error
	for range attempts {
		if s.port, err = choose(); err != nil {
			break
		}
		if err = s.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		t.Fatalf("testserver: start %s: %v", s.name(), err)
	}
	return s
}

// newServer makes a server that does not run yet, and ends with the test.
func newServer(t testing.TB, sp spec) *Server {
	t.Helper()
	// Not t.TempDir: a unix socket's path has room for about 100 bytes, and
	// the names of tests are long.
	dir, err := os.MkdirTemp("", "hasp-")
	must(t, err)
	s := &Server{t: t, spec: sp, dir: dir}
	t.Cleanup(s.cleanup)
	return s
}

// startAll starts servers at once: none answers before it knows a majority. It is false when a port was taken.
func startAll(t testing.TB, all []*Server) bool {
	t.Helper()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = s.start() })
	}
	wg.Wait()
	for i, err := range errs {
		if errors.Is(err, errPortTaken) {
			return false
		}
		if err != nil {
			t.Fatalf("testserver: start %s %d: %v", all[i].name(), i, err)
		}
	}
	return true
}

func (s *Server) cleanup() {
	if p := s.current(); p != nil {
		if err := p.kill(); err != nil {
			s.t.Errorf("testserver: kill %s: %v", s.name(), err)
		}
	}
	if s.t.Failed() {
		s.t.Logf("testserver: the last lines of %s:\n%s", s.name(), s.logTail())
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Errorf("testserver: %v", err)
	}
}

// start runs the process and waits until it answers. A process that ended by
// itself has failed, whatever may answer at its address.
func (s *Server) start() error {
	for _, name := range s.spec.stale {
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	line := slices.Concat(s.spec.by, []string{s.spec.path}, s.spec.args(s))
	p, err := startProcess(line[0], line[1:], s.spec.env, s.dir, s.logPath())
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.proc = p
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	// A refused connection is no event that could be waited for: ask again.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := s.spec.ready(ctx, s)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			tail := s.logTail()
			if strings.Contains(tail, s.spec.taken) {
				return errPortTaken
			}
			return fmt.Errorf("it ended at once; its last lines:\n%s", tail)
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no answer within %v: %w", startLimit, err), p.kill())
		case <-tick.C:
		}
	}
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "server.log") }

func (s *Server) logTail() string {
	b, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4096):])
}

// givenPorts are the ports that this process has given to a server.
var givenPorts sync.Map

// freePort returns a port that is free now. It lies below those that systems
// give out by themselves (Linux from 32768 on, others from 49152): a connection
// of another test would take one of those while a server restarts.
func freePort() (port int, err error) {
	err = errPortTaken
	for range 100 {
		port = 20_000 + rand.N(12_000)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue // of a server that may be down, and come back
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}

// process is one run of the program.
type process struct {
	pid  int
	proc *os.Process
	done chan struct{} // closed once it has ended and was reaped
}

// startProcess starts the program with its output in the file log.
func startProcess(path string, args, env []string, dir, log string) (*process, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = diesWithParent()

	started := make(chan error)
	p := &process{done: make(chan struct{})}
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// run starts the command and waits for its end on one thread: the kernel ties
// the parent death signal to the thread that forked, so that thread must live as
// long as the child does. Tests that look for leaked goroutines while a server
// runs have to leave this one out.
func (p *process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		p.proc, p.pid = cmd.Process, cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	defer close(p.done)
	_ = cmd.Wait() // how it ended does not matter: tests kill it
	forgetClock(p.pid)
}

// kill ends the process and returns once it was reaped.
func (p *process) kill() error {
	if err := p.proc.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}
