// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hasp, or its command, is stopped and continued, at every moment.

// state is the letter of a process in /proc: T when it is stopped; empty when it
// is gone.
func state(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:])); len(f) > 0 {
		return f[0]
	}
	return ""
}

// counts waits until a counter has counted so much further.
func (p *proc) counts(more int) {
	p.t.Helper()
	from := strings.Count(p.out.String(), "\n")
	if err := eventually(func() bool { return strings.Count(p.out.String(), "\n") >= from+more }); err != nil {
		p.t.Fatalf("the command counts no further: %v; hasp said:\n%s", err, p.err.String())
	}
}

// apart starts hasp in its own process group, which another process can stop.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// link puts this program into the sandbox under that name.
func (s *sandbox) link(name string) {
	s.t.Helper()
	self, err := os.Executable()
	must(s.t, err)
	must(s.t, os.Symlink(self, filepath.Join(s.dir, name)))
}

// After SIGTSTP and SIGCONT, however soon, hasp runs as its command does, and
// nobody else gets the key.
func TestStoppedForAMoment(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.link("counter")
	p := s.haspWith(apart, "run", "k", "--", "sh", "-c", "echo $$ >pid; exec ./counter")
	command := number(t, s.read("pid"))
	for _, pause := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond} {
		p.counts(1)
		p.signal(syscall.SIGTSTP)
		if err := eventually(func() bool { return state(command) == "T" }); err != nil {
			t.Fatal("the command was not stopped")
		}
		time.Sleep(pause) // the fault, and not a wait for something
		if err := eventually(func() bool {
			p.signal(syscall.SIGCONT) // a SIGCONT right before hasp stops itself is lost
			return state(command) != "T"
		}); err != nil {
			t.Fatal("the command does not go on")
		}
		p.counts(50) // a second, and more than the half after which hasp used to stop
		if is := state(p.cmd.Process.Pid); is == "T" {
			t.Fatalf("stopped for %v: the command runs on, and hasp is stopped", pause)
		}
	}
	s.exits(75, "run", "-n", "k", "--", "true")
	s.touch("stop")
	p.ends(6)
}

// A command that ignores SIGTSTP runs on, and hasp renews its lease.
func TestStopIsIgnored(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.link("counter")
	p := s.haspWith(apart, "run", "k", "--", "sh", "-c", `trap "" TSTP; exec ./counter`)
	p.counts(1)
	p.signal(syscall.SIGTSTP)
	p.counts(50)
	if is := state(p.cmd.Process.Pid); is == "T" {
		t.Error("the command runs on, and hasp is stopped")
	}
	s.touch("stop")
	p.ends(6)
}

func (s *sandbox) touch(name string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.dir, name), nil, 0o600))
}

// begins records that it began, and ends when the test tells it to.
const begins = `echo "$0 $HASP_FENCE" >>begun; while ! test -e "enough-$0"; do sleep 0.1; done`

// hasp is stopped at some moment from its start on, until another has had the
// key. Whatever it was doing, no command begins under a lease that has ended, and
// one that had begun is ended when hasp is continued, though perhaps nobody reads why.
func TestStoppedAtEveryMoment(t *testing.T) {
	t.Parallel()
	const seed, rounds = 20261122, 6
	onEach(t, func(t *testing.T, s *sandbox) {
		random := rand.New(rand.NewPCG(seed, uint64(len(s.store))))
		s.touch("enough-first")
		begun := time.Now()
		s.exits(0, "run", "k", "--", "sh", "-c", begins, "first")
		span := time.Since(begun)
		for i := range rounds {
			victim, next := fmt.Sprint("victim-", i), fmt.Sprint("next-", i)
			s.touch("enough-" + next)
			run := []string{"run", "-v", "--ttl", "4s", "--grace", "2s", "k", "--", "sh", "-c", begins, victim}
			var p *proc
			if i%2 == 0 { // right after the key was granted
				p = s.stoppedAt(`acquired "k"`, run...)
			} else {
				p = s.unread(run...)
				time.Sleep(time.Duration(random.Int64N(int64(span)))) // the fault, and not a wait for something
				s.stop(p)
			}
			s.exits(0, "run", "k", "--", "sh", "-c", begins, next)
			s.touch("enough-" + victim) // of a command that begins only now
			p.signal(syscall.SIGCONT)
			p.ends(0, 124)
		}
		text, largest := s.read("begun"), 0
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			fence, err := strconv.Atoi(f[len(f)-1])
			if err != nil || fence <= largest {
				t.Fatalf("%q began after one with the fence %d, seed %d:\n%s", strings.TrimSpace(line), largest, seed, text)
			}
			largest = fence
		}
	})
}

// stoppedAt starts hasp, and stops it as soon as it says that.
func (s *sandbox) stoppedAt(word string, args ...string) *proc {
	s.t.Helper()
	r, w, err := os.Pipe()
	must(s.t, err)
	defer w.Close()
	p := s.haspWith(func(cmd *exec.Cmd) { cmd.Stderr = w }, args...)
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			s.t.Fatalf("waiting for %q: %v", word, err)
		}
		if strings.Contains(line, word) {
			break
		}
	}
	s.stop(p)
	go func() { // the rest
		defer r.Close()
		_, _ = io.Copy(&p.err, lines)
	}()
	return p
}

// inside starts hasp in its own mount namespace, after a command line there.
func (s *sandbox) inside(setup string, args ...string) *proc {
	s.t.Helper()
	if os.Getuid() != 0 {
		s.t.Skip("only root can hide /proc")
	}
	s.link("hasp")
	unshare, err := exec.LookPath("unshare")
	must(s.t, err)
	return s.haspWith(func(cmd *exec.Cmd) {
		cmd.Path = unshare
		cmd.Args = append([]string{"unshare", "-m", "sh", "-c", setup + ` && exec ./hasp "$@"`}, cmd.Args...)
	}, args...)
}

// Without /proc the command's group is all that can be ended, and that is said. hasp starts itself once more nevertheless, beside a sibling.
func TestWithoutProc(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := s.inside("mount -t tmpfs none /proc && { sleep 1000 >/dev/null 2>&1 & echo $! >sibling; }", "run", "--ttl", brief, "k", "--", "sh", "-c",
		`trap "" TERM; echo $$ >pid; echo $HASP_OWNER >owner; while :; do read x <>never; done`)
	pid := number(t, s.read("pid"))
	s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
	p.ends(124)
	if alive(pid) {
		t.Error("the command lives on")
	}
	if err := syscall.Kill(number(t, s.read("sibling")), syscall.SIGKILL); err != nil {
		t.Errorf("the sibling: %v", err)
	}
	matches(t, p.err.String(), `^hasp: /proc cannot be read: when the lock is lost, of the command only its process group is ended`)
}

// What was ignored when hasp started is ignored by the command, as far as a program
// in Go can know it.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.link("hasp")
	for name, keeps := range map[string]bool{"HUP": true, "INT": true, "TSTP": true, "TTIN": true, "TTOU": true, "QUIT": false, "TERM": false, "USR1": false, "PIPE": false} {
		sig := unix.SignalNum("SIG" + name)
		p := s.haspWith(func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", `trap "" $0; exec ./hasp "$@"`, name}, cmd.Args[1:]...)
		}, "run", "k"+name, "--", "sed", "-n", "s/^SigIgn:.//p", "/proc/self/status")
		p.ends(0)
		mask, err := strconv.ParseUint(strings.TrimSpace(p.out.String()), 16, 64)
		must(t, err)
		if ignored := mask&(1<<(sig-1)) != 0; ignored != keeps {
			t.Errorf("%s is ignored by the command: %v, want %v", name, ignored, keeps)
		}
	}
}

// Under the /proc of another pid namespace hasp says that it finds only the group, and
// takes no process for its own by a number of outside.
func TestProcOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	if os.Getuid() != 0 {
		t.Skip("only root can make a namespace of process ids")
	}
	s.link("hasp")
	p := s.haspWith(func(cmd *exec.Cmd) { // the shell is process 1: hasp has another number
		cmd.Path, cmd.Args = "/usr/bin/unshare", append([]string{"unshare", "-pf", "--kill-child", "sh", "-c", `./hasp "$@"; echo $? >status`}, cmd.Args...)
	}, "run", "--ttl", brief, "k", "--", "sh", "-c", `setsid sleep 1000 & trap "" TERM; echo $HASP_OWNER >owner; while :; do read x <>never; done`)
	s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
	if status := s.read("status"); status != "124" {
		t.Errorf("it ended with %s", status)
	}
	p.ends(0)
	matches(t, p.err.String(), `^hasp: /proc is that of another pid namespace .*: when the lock is lost, of the command only its process group is ended`)
}
