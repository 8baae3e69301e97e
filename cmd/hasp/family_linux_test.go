// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// onSQLite returns a sandbox with a store of its own.
// What left the command's group is asked to end after a signal, and has the key to itself
// until it did.
func TestSignalReachesWhatLeftTheGroup(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.fifo("gate")
	p := s.hasp("run", "--ttl", "30s", "--grace", "15s", "k", "--", "bash", "-c",
		`setsid -w sh -c 'trap "echo >asked; read x <gate; exit" TERM; echo $$ >pid; while :; do sleep 0.01; done'; echo >next`)
	pid := number(t, s.read("pid"))
	p.signal(syscall.SIGTERM)
	s.read("asked")
	s.exits(75, "run", "-n", "k", "--", "true")
	s.open("gate")
	p.ends(143)
	if alive(pid) || strings.Contains(p.err.String(), "left these processes") {
		t.Errorf("the job lives: %v; hasp said:\n%s", alive(pid), p.err.String())
	}
	s.exits(0, "run", "-n", "k", "--", "true")
}

// What does not end within the grace is named before the key is another's, and so is
// what a command leaves running on purpose.
func TestWhatIsLeftRunningIsNamed(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	const leave = `setsid sleep 1000 >/dev/null 2>&1 & until read x </proc/$!/comm && test "$x" = sleep; do sleep 0.01; done; echo >ready;`
	for _, c := range []struct{ work, says string }{
		{`trap "" TERM; ` + leave + ` read x <gate; trap - TERM; kill $$`, `^hasp: the command was ended by signal 15 \(terminated\), and left these processes running, 0.2s after they were asked to end: sleep \(pid (\d+)\)\. "k" is released`},
		{leave + ` read x <gate`, `^hasp: the command exited with status 0, and left these processes running: sleep \(pid (\d+)\)\. "k" is released`},
	} {
		s := onSQLite(t)
		s.fifo("gate")
		p := s.hasp("run", "-q", "--grace", "200ms", "k", "--", "sh", "-c", c.work)
		s.read("ready")
		s.open("gate")
		p.ends(0, 143)
		matches(t, p.err.String(), c.says)
		if _, pid, ok := strings.Cut(p.err.String(), "(pid "); ok {
			pid, _, _ = strings.Cut(pid, ")")
			_ = syscall.Kill(number(t, pid), syscall.SIGKILL)
		}
	}
}

// A sibling that becomes a daemon while the command runs is none of the command's.
func TestSiblingThatBecomesADaemon(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := onSQLite(t)
	s.link("hasp")
	s.fifo("gate")
	p := s.haspWith(func(cmd *exec.Cmd) {
		cmd.Path = "/bin/sh"
		cmd.Args = append([]string{"sh", "-c", `sh -c 'read x <gate; setsid sh -c "echo \$\$ >sibling; exec sleep 1000 >/dev/null 2>&1" & exit' & exec ./hasp "$@"`, "sh"}, cmd.Args[1:]...)
	}, "run", "--ttl", brief, "k", "--", "sh", "-c", `echo $HASP_OWNER >owner; exec sleep 1000`)
	owner := s.read("owner")
	s.open("gate")
	sibling := number(t, s.read("sibling"))
	defer func() { _ = syscall.Kill(sibling, syscall.SIGKILL) }()
	s.exits(0, "break", "k", "--owner", owner, "--yes")
	p.ends(124)
	if !alive(sibling) {
		t.Error("the sibling was ended")
	}
}

// Descriptors and a watchdog that systemd gave hasp are the command's.
func TestProcessThatSystemdNames(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := onSQLite(t)
	s.link("hasp")
	p := s.haspWith(func(cmd *exec.Cmd) {
		cmd.Path = "/bin/sh"
		cmd.Args = append([]string{"sh", "-c", `export LISTEN_PID=$$ WATCHDOG_PID=$$; exec ./hasp "$@"`, "sh"}, cmd.Args[1:]...)
	}, "run", "k", "--", "sh", "-c", `echo $(($$ - LISTEN_PID)) $(($$ - WATCHDOG_PID))`)
	p.ends(0)
	if got := strings.TrimSpace(p.out.String()); got != "0 0" {
		t.Errorf("the variables differ from its number by %s", got)
	}
}

// Where hasp could start too few threads it says so in a line, before it acquires
// anything: for want of one, Go ends a program in the middle of anything.
func TestTooFewProcesses(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user, for whom nothing else runs")
	}
	s, exe, path := onFile(t)
	must(t, os.Chmod(filepath.Dir(path), 0o777))
	for at, code := range map[string]int{
		"--nproc=14": 125, "--nproc=24": 0,
		"--nproc=14 unshare -U --map-root-user": 125, // which is no root to the kernel
		"--nproc=60 unshare -U":                 0,   // where all have one number
	} {
		limit := strings.Fields(at)
		if len(limit) > 1 {
			if code, _ := s.as(lonelyUser, append(slices.Clone(limit[1:]), "true")...).wait(); code != 0 {
				continue // users may make no namespaces here
			}
		}
		p := s.as(lonelyUser, append(append([]string{"prlimit"}, limit...), exe, "run", "-n", "k", "--", "true")...)
		p.ends(code)
		if said := p.err.String(); code != 0 && (strings.Count(said, "\n") != 1 || !strings.Contains(said, "ulimit -u")) {
			t.Errorf("with %s it said:\n%s", at, said)
		}
	}
}

const lonelyUser = 54007

// A shell's job in the background ignores Ctrl-C: it is asked to end once the shell has.
func TestInterruptIgnoredInTheBackground(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := onSQLite(t)
	p := s.hasp("run", "--ttl", "6m", "--grace", "30s", "k", "--", "sh", "-c", "sleep 1000 & echo $! >pid; wait")
	job := number(t, s.read("pid"))
	p.signal(syscall.SIGINT)
	p.ends(-1, 130)
	if alive(job) || strings.Contains(p.err.String(), "left these processes") {
		t.Errorf("it lives: %v; hasp said:\n%s", alive(job), p.err.String())
	}
}

// A unit whose hasp waits does not run into systemd's limit for its start.
func TestWaitInAUnit(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := onSQLite(t)
	socket := filepath.Join(s.dir, "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Net: "unixgram", Name: socket})
	must(t, err)
	defer systemd.Close()
	s.fifo("gate")
	holder := s.hasp("run", "k", "--", "sh", "-c", "echo >ready; read x <gate")
	s.read("ready")
	waiter := s.haspWith(func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket) }, "run", "k", "--", "true")
	text := make([]byte, 100)
	n, err := systemd.Read(text)
	if err != nil || string(text[:n]) != "EXTEND_TIMEOUT_USEC=60000000" {
		t.Errorf("systemd was told %q, %v", text[:n], err)
	}
	s.open("gate")
	holder.ends(0)
	waiter.ends(0)
}
