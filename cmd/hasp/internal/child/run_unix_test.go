// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hasplock/hasp/internal/expect"
)

var must = expect.Need

func shell(script string, args ...string) Spec {
	return Spec{Path: "/bin/sh", Argv: append([]string{"sh", "-c", script, "sh"}, args...), Env: os.Environ()}
}

func TestRun(t *testing.T) {
	for script, want := range map[string]Status{
		"exit 0":          {},
		"exit 200":        {Code: 200},
		"kill -TERM $$":   {Signal: syscall.SIGTERM},
		"kill -9 $$":      {Signal: syscall.SIGKILL},
		"kill -INT $$":    {Signal: syscall.SIGINT},
		"sleep 0.2; true": {},
	} {
		got, err := Run(shell(script))
		if err != nil || got.Code != want.Code || got.Signal != want.Signal || got.Ordered || got.Killed || got.Keyboard {
			t.Errorf("%s: %+v, %v", script, got, err)
		}
	}
	if s := (Status{Signal: syscall.SIGTERM}); s.Exit() != 143 {
		t.Errorf("SIGTERM is exit status %d", s.Exit())
	}
	if _, err := Run(Spec{Path: "/no/such/program", Argv: []string{"x"}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// Signals are delivered before a stopped command is continued.
func TestResumedComesFirst(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only with /proc can be seen that a command is stopped")
	}
	dir := t.TempDir()
	s := shell(`echo $$ >"$1/pid"; kill -STOP $$; echo >"$1/went-on"`, dir)
	end := make(chan struct{})
	s.End = end
	s.Resumed = func() { close(end) }
	s.Ending = func(int) Order {
		return Order{Term: true, Left: func() time.Duration { return time.Minute }}
	}
	type result struct {
		Status
		error
	}
	done := make(chan result, 1)
	go func() {
		st, err := Run(s)
		done <- result{st, err}
	}()
	waitFor(t, func() bool {
		pid, _ := os.ReadFile(filepath.Join(dir, "pid"))
		n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
		if err != nil {
			return false
		}
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(n) + "/stat")
		return strings.Contains(string(stat), ") T ")
	})
	must(t, syscall.Kill(os.Getpid(), syscall.SIGCONT))
	r := <-done
	if r.error != nil || !r.Ordered || r.Signal != syscall.SIGTERM || r.Killed {
		t.Errorf("it ended as %+v, %v", r.Status, r.error)
	}
	if _, err := os.Stat(filepath.Join(dir, "went-on")); err == nil {
		t.Error("the command went on first")
	}
}

// The limit is checked again and again: a clock that jumps counts.
func TestLimitThatJumps(t *testing.T) {
	dir := t.TempDir()
	s := shell(`trap "echo >\"$1/told\"" TERM; echo >"$1/ready"; while :; do sleep 0.01; done`, dir)
	end := make(chan struct{})
	s.End = end
	told := func() bool { _, err := os.Stat(filepath.Join(dir, "told")); return err == nil }
	s.Ending = func(int) Order {
		return Order{Term: true, Left: func() time.Duration {
			if told() {
				return 0
			}
			return time.Hour
		}}
	}
	go func() {
		waitFor(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
		close(end)
	}()
	st, err := Run(s)
	if err != nil || !st.Ordered || !st.Killed || st.Signal != syscall.SIGKILL || len(st.Remaining) != 0 {
		t.Errorf("it ended as %+v, %v", st, err)
	}
	if !told() {
		t.Error("it was not told first")
	}
}

// What cannot be ended is named, and not waited for.
func TestWhatRemains(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	must(t, err)
	p, err := start(Spec{Path: sleep, Argv: []string{"sleep", "1000"}}, -1)
	must(t, err)
	r := &runner{p: p, order: &Order{}, killed: time.Now().Add(-killLimit)}
	if !r.over() || len(r.status.Remaining) != 1 || r.status.Remaining[0] != fmt.Sprintf("sleep (pid %d)", p.pid) {
		t.Errorf("remaining: %v, want sleep (%d)", r.status.Remaining, p.pid)
	}
	p.signalAll(syscall.SIGKILL)
	<-p.changes
	r = &runner{p: p, order: &Order{}, killed: time.Now().Add(-killLimit), ended: true}
	if !r.over() || len(r.status.Remaining) != 0 {
		t.Errorf("remaining of nothing: %v", r.status.Remaining)
	}
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Error("it did not happen within a minute")
			return
		}
	}
}

// A signal that arrives twice at once, as to a group and to each of it, is passed on once.
func TestEchoOfASignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{p: &process{pid: 1 << 30}} // no such process
		first := time.Now()
		r.pass(syscall.SIGTERM)
		time.Sleep(echo / 2)
		r.pass(syscall.SIGTERM)
		if !r.heard.Equal(first) {
			t.Error("the echo was passed on")
		}
		time.Sleep(echo)
		r.pass(syscall.SIGTERM)
		if r.heard.Equal(first) {
			t.Error("a second signal was not passed on")
		}
		r.pass(syscall.SIGHUP)
		time.Sleep(echo / 2)
		if r.pass(syscall.SIGHUP); !r.heard.Equal(time.Now()) {
			t.Error("a second request to read files again was not passed on")
		}
	})
}
