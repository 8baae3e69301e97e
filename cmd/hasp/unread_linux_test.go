// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
	"golang.org/x/sys/unix"
)

// Nobody reads hasp's messages: every write of them blocks. Everything else
// continues.

// blocked waits until a thread of a process is blocked in a write to fd.
func blocked(t testing.TB, pid, fd int) {
	t.Helper()
	err := eventually(func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
		for _, name := range threads {
			text, _ := os.ReadFile(name)
			if strings.HasPrefix(string(text), fmt.Sprintf("%d 0x%x ", unix.SYS_WRITE, fd)) {
				return true
			}
		}
		return false
	})
	if err != nil {
		t.Fatalf("waiting until pid %d is held up in a write: %v", pid, err)
	}
}

// unread starts hasp with a standard error that is full.
func (s *sandbox) unread(args ...string) *proc {
	s.t.Helper()
	full := testserver.FullPipe(s.t)
	return s.haspWith(func(cmd *exec.Cmd) { cmd.Stderr = full }, args...)
}

func TestUnreadLoss(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"text", "json"} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			s := onRedis(t)
			p := s.unread("run", "-v", "--ttl", brief, "-o", output, "k", "--", "sh", "-c",
				`trap "" TERM; echo $$ >pid; echo $HASP_OWNER >owner; while :; do read x <>never; done`)
			pid := number(t, s.read("pid"))
			blocked(t, p.cmd.Process.Pid, 2)
			s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
			p.ends(124)
			if alive(pid) {
				t.Error("the command lives on")
			}
		})
	}
}

// The server is stopped until the command was ended: only hasp's own
// clock can have caused that.
func TestUnreadLossOfAStoppedServer(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	p := s.unread("run", "--ttl", ttl, "k", "--", "sh", "-c", `trap "" TERM; echo $$ >pid; while :; do read x <>never; done`)
	pid := number(t, s.read("pid"))
	server.Stop()
	p.ends(124)
	if alive(pid) {
		t.Error("the command lives on")
	}
	server.Cont()
	s.exits(0, "run", "k", "--", "true")
}

func TestUnreadSignals(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	p := s.unread("run", "-v", "k", "--", "sh", "-c", `exec 2>&-; trap "exit 7" TERM; echo >ready; while :; do sleep 0.01; done`)
	s.read("ready")
	blocked(t, p.cmd.Process.Pid, 2)
	p.signal(syscall.SIGTERM)
	p.ends(7)
}

// An unread line about the wait does not delay the command.
func TestUnreadWait(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	s.fifo("gate")
	holder := s.hasp("run", "k", "--", "sh", "-c", "echo >ready; read x <gate")
	s.read("ready")
	p := s.unread("run", "k", "--", "sh", "-c", "echo >mine; exit 3")
	blocked(t, p.cmd.Process.Pid, 2)
	s.open("gate")
	holder.ends(0)
	s.read("mine")
	p.ends(3)
}

// A candidate goes through its terms, each with an unread line.
func TestUnreadElection(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	p := s.unread("elect", "k", "--", "sh", "-c", `test -e term && echo >second && exec sleep 1000; echo >>term; exit 1`)
	s.read("second")
	p.signal(syscall.SIGTERM)
	p.ends(143)
}

// Who leads is written for somebody who does not read; a signal ends it.
func TestUnreadLeader(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	full := testserver.FullPipe(t)
	p := s.haspWith(func(cmd *exec.Cmd) { cmd.Stdout = full }, "elect", "--observe", "k")
	blocked(t, p.cmd.Process.Pid, 1)
	p.signal(syscall.SIGTERM)
	p.ends(143)
}

// Ctrl-S at the terminal holds up every write to it.
func TestUnreadAtTheTerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "Ctrl-S", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run -v --ttl 20s k -- sh -c 'trap "" TERM; echo $PPID >hasp; echo $HASP_OWNER >owner; echo $$ >pid; while :; do read x <>never; done'; echo $? >code`)
		pid := number(t, s.read("pid"))
		sc.expect("acquired")
		sc.send(ctrlS)
		sc.full()
		s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
		if code := s.read("code"); code != "124" {
			t.Errorf("it ended with %s", code)
		}
		if alive(pid) {
			t.Error("the command lives on")
		}
		sc.send(ctrlQ)
		sc.expect("PROMPT>")
	})
	onTerminal(t, "Ctrl-S, and a signal", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run -v k -- sh -c 'exec 2>&-; trap "exit 7" TERM; echo $PPID >hasp; while :; do sleep 0.01; done'; echo $? >code`)
		hasp := number(t, s.read("hasp"))
		sc.send(ctrlS)
		sc.full()
		must(t, syscall.Kill(hasp, syscall.SIGTERM))
		if code := s.read("code"); code != "7" {
			t.Errorf("it ended with %s", code)
		}
	})
}

// full waits until nothing more can be written to the terminal.
func (sc *screen) full() {
	sc.t.Helper()
	tty := sc.open()
	defer unix.Close(tty)
	if err := eventually(func() bool {
		_, err := unix.Write(tty, []byte("."))
		return errors.Is(err, unix.EAGAIN)
	}); err != nil {
		sc.t.Fatalf("waiting for Ctrl-S to be heard: %v", err)
	}
}

// open opens the terminal, as a program at it has it.
func (sc *screen) open() int {
	sc.t.Helper()
	n, err := unix.IoctlGetInt(int(sc.tty.Fd()), unix.TIOCGPTN)
	must(sc.t, err)
	tty, err := unix.Open(fmt.Sprintf("/dev/pts/%d", n), unix.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	must(sc.t, err)
	return tty
}

// A terminal that takes no text keeps hasp top from nothing: a signal ends it, and the terminal is as it was.
func TestUnreadTop(t *testing.T) {
	t.Parallel()
	onTerminal(t, "held up", func(t *testing.T, s *sandbox) {
		sc := s.top(t, `sh -c 'echo $$ >pid; exec hasp top --every 0.1'`)
		sc.shows(`sorted by waiters`)
		pid := number(t, s.read("pid"))
		tty := sc.open()
		defer unix.Close(tty)
		must(t, unix.IoctlSetInt(tty, unix.TCXONC, unix.TCOOFF))
		blocked(t, pid, 1)
		must(t, syscall.Kill(pid, syscall.SIGTERM))
		if err := eventually(func() bool { return !alive(pid) }); err != nil {
			t.Error(err)
		}
		must(t, unix.IoctlSetInt(tty, unix.TCXONC, unix.TCOON))
		sc.restored("143")
	})
}
