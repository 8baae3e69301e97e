// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestUnitArgs(t *testing.T) {
	for cgroup, want := range map[string]string{
		"0::/system.slice/job.service\n":                                     "show -- job.service",
		"1:name=systemd:/system.slice/job.service\n0::/\n":                   "show -- job.service",
		"8:pids:/system.slice/other.service\n0::/system.slice/job.service\n": "show -- job.service",
		"0::/system.slice/job@-1.service/payload\n":                          "show -- job@-1.service",
		"0::/system.slice/system-job.slice/-x.service\n":                     "show -- -x.service",
		"0::/user.slice/user-7.slice/user@7.service/app.slice/job.service\n": "--user show -- job.service",
		"0::/user.slice/user-7.slice/session-3.scope\n":                      "",
		"0::/\n":                         "",
		"":                               "",
		"8:pids:/system.slice/x.service": "",
	} {
		got := slices.DeleteFunc(unitArgs([]byte(cgroup)), func(s string) bool { return strings.HasPrefix(s, "--property") })
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", cgroup, got, want)
		}
	}
}

// While systemd does not answer, a lost lease ends the command all the same; what it says later is too late.
func TestSystemdHangs(t *testing.T) {
	asked, hangs, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	before := unitQuestion
	defer func() { unitQuestion = before }()
	unitQuestion = func(int) func() bool {
		return func() bool { close(asked); <-hangs; return false }
	}
	dir := t.TempDir()
	s := shell(`trap "" TERM; echo >"$1/ready"; while :; do sleep 0.01; done`, dir)
	signals := make(chan os.Signal, 1)
	s.Signals, s.End = signals, end
	s.Ending = func(pid int) Order {
		go func() {
			waitFor(t, func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) })
			close(hangs)
		}()
		return Order{Left: func() time.Duration { return 0 }}
	}
	go func() {
		waitFor(t, func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
		signals <- syscall.SIGTERM
		<-asked
		close(end)
	}()
	if st, err := Run(s); err != nil || !st.Killed || st.Signal != syscall.SIGKILL {
		t.Errorf("it ended as %+v, %v", st, err)
	}
}

func zombie(pid int) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Contains(string(text), ") Z ")
}
