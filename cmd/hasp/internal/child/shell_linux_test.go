// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"os/exec"
	"testing"
	"time"
)

// A later process with the number of a shell is never taken for it: a key is not
// held for it, and it gets no signal.
func TestShellWhoseNumberIsAnothers(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenShell(p)
	if err != nil {
		t.Fatal(err)
	}
	earlier := Process{p.PID, p.Start - 1}
	if _, err := OpenShell(earlier); err == nil {
		t.Error("it is taken for an earlier process with its number")
	}
	// Of a shell that has ended, the pidfd reaches nobody; its number must not either.
	gone := exec.Command("true")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := Find(gone.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	dead, err := OpenShell(id)
	if err := gone.Wait(); err != nil {
		t.Fatal(err)
	}
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
