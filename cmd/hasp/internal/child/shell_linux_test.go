// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A later process with the number of a shell is never taken for it: a key is not
// held for it, and it gets no signal.
func TestShellWhoseNumberIsAnothers(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	must(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := Find(cmd.Process.Pid)
	must(t, err)
	s, err := OpenShell(p)
	must(t, err)
	earlier := Process{p.PID, p.Start - 1}
	if _, err := OpenShell(earlier); err == nil {
		t.Error("it is taken for an earlier process with its number")
	}
	// Of a shell that has ended, the pidfd reaches nobody; its number must not either.
	gone := exec.Command("true")
	must(t, gone.Start())
	id, err := Find(gone.Process.Pid)
	must(t, err)
	dead, err := OpenShell(id)
	must(t, gone.Wait())
	if err == nil {
		dead.Process = earlier
		dead.End(Order{})
	}
	select {
	case <-s.Ended():
		t.Error("a signal reached a later process with the number of the shell")
	default:
	}
	s.End(Order{Term: true, Left: func() time.Duration { return time.Minute }})
	<-s.Ended()
}

// What a shell starts just as it is ended is ended, too (of 700 shells none left anything when this was written); where
// only all processes are looked at, half of them leave it behind.
func TestShellStartsNothingWhileItIsEnded(t *testing.T) {
	left := 0
	for i := range 50 {
		cmd := exec.Command("sh", "-c", "echo begun; read line; sleep 1000; :")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		group := cmd.Process.Pid
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		p, err := Find(group)
		must(t, err)
		s, err := OpenShell(p)
		must(t, err)
		go func() {
			time.Sleep(time.Duration(i) * 40 * time.Microsecond) // to meet each moment of it
			_, _ = in.Write([]byte("go\n"))
		}()
		go func() { _ = cmd.Wait() }()
		s.End(Order{Term: true, Left: func() time.Duration { return time.Minute }})
		for pid, p := range readProcs() {
			if p.group == group && !p.dead {
				t.Logf("round %d: the process %d is left of it", i, pid)
				left++
			}
		}
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	if left > 2 {
		t.Errorf("of %d shells something is left", left)
	}
}

// A worker of the shell that starts jobs again and again leaves none behind, whether it is asked to end or killed, and though
// each job has a session of its own.
func TestWorkerStartsNothingWhileItIsEnded(t *testing.T) {
	for _, c := range []struct {
		name, job string
		term      bool
	}{{"asked", "", true}, {"killed", "", false}, {"asked, with sessions", "setsid ", true}, {"killed, with sessions", "setsid ", false}} {
		t.Run(c.name, func(t *testing.T) {
			for range 5 {
				dir := t.TempDir()
				cmd := exec.Command("sh", "-c", "yes | xargs -P 30 -I{} "+c.job+`sh -c 'echo >>begun; test -e ending && exec sleep 1000; exec sleep 0.06' & sleep 1000; :`)
				cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Setsid: true}
				must(t, cmd.Start())
				go func() { _ = cmd.Wait() }()
				for begun := 0; begun < 60; { // it has started jobs anew
					text, _ := os.ReadFile(filepath.Join(dir, "begun"))
					begun = len(text)
					time.Sleep(time.Millisecond)
				}
				p, err := Find(cmd.Process.Pid)
				must(t, err)
				s, err := OpenShell(p)
				must(t, err)
				must(t, os.WriteFile(filepath.Join(dir, "ending"), nil, 0o600))
				s.End(Order{Term: c.term, Left: func() time.Duration { return time.Minute }})
				for pid, p := range readProcs() {
					if cwd, err := os.Readlink(Process{PID: pid}.file("cwd")); err == nil && cwd == dir && !p.dead {
						t.Errorf("%s (pid %d) is left", Process{PID: pid}.Name(), pid)
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
				}
			}
		})
	}
}
