// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/expect"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

var must = expect.Need

// sandbox is a directory and a store for hasp processes. From its fifo "never" a command that is to run on
// reads: a shell that starts one sleep after another instead keeps a busy machine busier. A command with a trap
// does that nevertheless: a shell does not hear a signal that comes right before it begins to read.
type sandbox struct {
	t     testing.TB
	dir   string
	store string
}

func newSandbox(t testing.TB, store string) *sandbox {
	s := &sandbox{t: t, dir: t.TempDir(), store: store}
	s.fifo("never")
	return s
}

// onSQLite is a sandbox with a file of its own.
func onSQLite(t testing.TB) *sandbox {
	return newSandbox(t, "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
}

// onRedis is a sandbox with a server of its own.
func onRedis(t testing.TB) *sandbox { return newSandbox(t, "redis://"+testserver.Redis(t).Addr()) }

// expire ends a lease in Redis at once, as the end of its TTL would.
func (s *sandbox) expire(key string) {
	s.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(s.store, "redis://")})
	defer rdb.Close()
	if held, err := rdb.PExpire(context.Background(), "lock:"+key, time.Millisecond).Result(); err != nil || !held {
		s.t.Fatalf("there is no lease of %q to end: %v", key, err)
	}
}

// released wants keys that their holders released: a lease that ended by its TTL leaves a mark.
func (s *sandbox) released(keys ...string) {
	s.t.Helper()
	s.exits(0, append(append([]string{"run"}, keys...), "--", "sh", "-c", `test -z "$HASP_ABANDONED"`)...)
}

// onEach runs a test on SQLite, and where all is tested on other engines, too: for what the store's waiters and transactions may change.
func onEach(t *testing.T, test func(t *testing.T, s *sandbox)) {
	for name, open := range map[string]func(t testing.TB) *sandbox{
		"sqlite": onSQLite, "redis": onRedis, "redlock": func(t testing.TB) *sandbox { return newSandbox(t, redlock(t, "?max-ttl=2h")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "sqlite" {
				testserver.Variant(t, name)
			}
			test(t, open(t))
		})
	}
}

// redlock starts three servers, and returns the URL of a store that grants locks.
func redlock(t testing.TB, parameters string) string {
	var addrs []string
	for range 3 {
		addrs = append(addrs, testserver.Redis(t).Addr())
	}
	url := "redlock://" + strings.Join(addrs, ",") + parameters
	newSandbox(t, url).exits(0, "doctor", "--admit")
	return url
}

func (s *sandbox) env() []string {
	env := []string{"HASP_STORE=" + s.store}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "HASP_") {
			env = append(env, v)
		}
	}
	return append(env, "XDG_STATE_HOME="+filepath.Join(s.dir, "state"))
}

// hasp starts hasp.
func (s *sandbox) hasp(args ...string) *proc {
	s.t.Helper()
	return s.haspWith(func(*exec.Cmd) {}, args...)
}

// haspWith starts hasp after a change of how it is started.
func (s *sandbox) haspWith(change func(*exec.Cmd), args ...string) *proc {
	s.t.Helper()
	self, err := os.Executable()
	must(s.t, err)
	p := &proc{t: s.t, cmd: &exec.Cmd{Path: self, Args: append([]string{"hasp"}, args...), Dir: s.dir, Env: s.env()}}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = limit // a grandchild may keep the pipes open
	change(p.cmd)
	must(s.t, p.cmd.Start())
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Wait()
		}
	})
	return p
}

// exits runs hasp to its end, which has to have that code, and returns its
// messages.
func (s *sandbox) exits(code int, args ...string) string {
	s.t.Helper()
	p := s.hasp(args...)
	p.ends(code)
	return p.err.String()
}

// read waits for a file with something in it, and returns that.
func (s *sandbox) read(name string) string {
	s.t.Helper()
	var text []byte
	if err := eventually(func() bool {
		text, _ = os.ReadFile(filepath.Join(s.dir, name))
		return len(text) > 0 && text[len(text)-1] == '\n'
	}); err != nil {
		s.t.Fatalf("waiting for the file %s: %v", name, err)
	}
	return strings.TrimSpace(string(text))
}

func (s *sandbox) fifo(name string) {
	must(s.t, syscall.Mkfifo(filepath.Join(s.dir, name), 0o600))
}

// open unblocks the reader of the fifo, once there is one.
func (s *sandbox) open(name string) {
	s.t.Helper()
	var f *os.File
	err := eventually(func() bool {
		var err error
		f, err = os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	})
	if err != nil {
		s.t.Fatalf("waiting for a reader of %s: %v", name, err)
	}
	defer f.Close()
	if _, err := f.WriteString("\n"); err != nil {
		s.t.Fatal(err)
	}
}

// stop stops a hasp, and returns once it is stopped. One that is stopped
// within a transaction blocks a SQLite file for everybody: it is continued, and
// stopped at another moment.
func (s *sandbox) stop(p *proc) {
	s.t.Helper()
	if err := eventually(func() bool {
		p.signal(syscall.SIGSTOP)
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(p.cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
			s.t.Fatalf("it was not stopped: %#x, %v; it said:\n%s", ws, err, p.err.String())
		}
		if s.busy() {
			p.signal(syscall.SIGCONT)
			return false
		}
		return true
	}); err != nil {
		s.t.Fatalf("stopping it outside of a transaction: %v", err)
	}
}

// busy says whether somebody reads or writes: whether one of the locks is held that
// SQLite's description of its format names PENDING, RESERVED and SHARED.
func (s *sandbox) busy() bool {
	s.t.Helper()
	path, ok := strings.CutPrefix(s.store, "sqlite:")
	if !ok {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) { // it was never used
		return false
	}
	must(s.t, err)
	defer f.Close()
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: 1 << 30, Len: 512}
	must(s.t, syscall.FcntlFlock(f.Fd(), syscall.F_GETLK, &lock))
	return lock.Type != syscall.F_UNLCK
}

// proc is a hasp that runs.
type proc struct {
	t        testing.TB
	cmd      *exec.Cmd
	out, err buffer
}

func (p *proc) signal(sig syscall.Signal) {
	p.t.Helper()
	must(p.t, p.cmd.Process.Signal(sig))
}

// says waits for a message.
func (p *proc) says(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	if err := eventually(func() bool { return re.MatchString(p.err.String()) }); err != nil {
		p.t.Fatalf("waiting for the message %q: %v; it said:\n%s", pattern, err, p.err.String())
	}
}

// ends waits for the end, which has to have one of these codes.
func (p *proc) ends(codes ...int) {
	p.t.Helper()
	if got, err := p.wait(); !slices.Contains(codes, got) {
		p.t.Fatalf("it ended with %d (%v), want %d; it said:\n%s", got, err, codes, p.err.String())
	}
}

// wait waits for the end, and returns the code.
func (p *proc) wait() (int, error) {
	timer := time.AfterFunc(limit, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	err := p.cmd.Wait()
	return exitOf(err), err
}

// buffer is a bytes.Buffer for many goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// matches fails the test when a text has not the pattern in it.
func matches(t testing.TB, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile("(?m)" + pattern).MatchString(text) {
		t.Errorf("no %q in:\n%s", pattern, text)
	}
}
