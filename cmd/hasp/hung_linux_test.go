// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// hangs returns once somebody reads the named pipe, which gets nothing to read until the test is over.
func (s *sandbox) hangs(name string) {
	s.t.Helper()
	var f *os.File
	if err := eventually(func() (is bool) {
		var err error
		f, err = os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|syscall.O_NONBLOCK, 0)
		return err == nil
	}); err != nil {
		s.t.Fatalf("nobody reads %s: %v", name, err)
	}
	s.t.Cleanup(func() { f.Close() })
}

// processes returns the processes whose working directory is the sandbox.
func (s *sandbox) processes() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range all {
		if dir, err := os.Readlink(cwd); err == nil && dir == s.dir {
			pid, _ := strconv.Atoi(strings.Split(cwd, "/")[2])
			pids = append(pids, pid)
		}
	}
	return pids
}

// A signal ends every command while it reads the file of its store, which hangs.
func TestSignalWhileAFileHangs(t *testing.T) {
	t.Parallel()
	for _, words := range []string{
		"run k -- touch ran", "acquire --pid SELF k", "elect k -- touch ran", "elect -l k", "ls", "show k", "break k --owner FA5Q3Y4UREFHTLEGFA5Q3Y4URE --yes",
		"leaks", "doctor", "init", "verify", "serve --listen 127.0.0.1:0",
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
				s := newSandbox(t, "")
				s.fifo("url")
				p := s.haspWith(s.storeFile("HASP_STORE_FILE", "url"), strings.Fields(strings.ReplaceAll(words, "SELF", strconv.Itoa(os.Getpid())))...)
				s.hangs("url")
				p.signal(sig)
				p.ends(128+int(sig), -1) // by its own exit, or by the signal
				if err := eventually(func() bool { return len(s.processes()) == 0 }); err != nil {
					t.Errorf("%v is left after %v", s.processes(), sig)
				}
			}
		})
	}
}

// A keeper whose file hangs ends with the shell, and with the hasp acquire that started it.
func TestKeeperOfAHungFile(t *testing.T) {
	t.Parallel()
	for _, whom := range []string{"shell", "hasp"} {
		t.Run(whom, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, "")
			s.fifo("url")
			s.fifo("gate")
			shell := s.haspWith(func(cmd *exec.Cmd) {
				s.storeFile("HASP_STORE_FILE", "url")(cmd)
				self := cmd.Path
				cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `bash -c 'exec -a hasp "$0" "$@"' "$0" acquire --pid $$ k & echo $! >pid; wait; read x <gate`, self}
			})
			s.hangs("url")
			victim := shell.cmd.Process.Pid
			if whom == "hasp" {
				victim = number(t, s.read("pid"))
			}
			must(t, syscall.Kill(victim, syscall.SIGKILL))
			left := map[string]int{"shell": 0, "hasp": 1}[whom]
			if err := eventually(func() bool { return len(s.processes()) == left }); err != nil {
				t.Errorf("%v are left of it", s.processes())
			}
			s.exits(0, "run", "-n", "--store", "sqlite:locks.db", "k", "--", "true")
		})
	}
}

// A file without an end is refused, by whatever names it.
func TestEndlessFiles(t *testing.T) {
	t.Parallel()
	const endless = "/dev/zero"
	for name, c := range map[string]struct {
		variable, value string
		args            []string
	}{
		"url":        {"HASP_STORE_FILE", endless, []string{"ls"}},
		"to run":     {"HASP_STORE_FILE", endless, []string{"run", "k", "--", "true"}},
		"authority":  {"HASP_STORE", "rediss://127.0.0.1:1?tls-ca=" + endless, []string{"ls"}},
		"key":        {"HASP_STORE", "etcds://127.0.0.1:1?tls-cert=" + endless + "&tls-key=" + endless, []string{"ls"}},
		"postgres":   {"HASP_STORE", "postgres://127.0.0.1:1/x?sslmode=verify-full&sslrootcert=" + endless, []string{"ls"}},
		"tokens":     {"HASP_STORE", "sqlite:locks.db", []string{"serve", "--listen", "127.0.0.1:0", "--tokens", endless}},
		"page's key": {"HASP_STORE", "sqlite:locks.db", []string{"serve", "--listen", "127.0.0.1:0", "--tls-cert", endless, "--tls-key", endless}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, "")
			p := s.haspWith(s.storeFile(c.variable, c.value), c.args...)
			p.ends(78)
			matches(t, p.err.String(), "too large|is a device")
		})
	}
}
