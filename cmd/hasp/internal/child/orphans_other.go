// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix && !linux

package child

import "syscall"

// adoptOrphans: only Linux lets a process adopt its descendants' orphans.
func adoptOrphans() error { return nil }

// endWithParent: only Linux has the kernel end a child with its parent.
func endWithParent(*syscall.SysProcAttr) {}

// alone: what left the group is not found.
func (p *process) alone() bool { return p.group() == nil }

// Crowded does not matter: this system does not adopt orphans.
func Crowded() bool { return false }

// Limits says nothing: what this system cannot do is documented.
func Limits() string { return "" }

// reap waits until a child has changed, and returns which command that is; nil
// when it is none.
func reap() (*process, change, error) {
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
	if err != nil {
		return nil, change{}, err
	}
	running.Lock()
	defer running.Unlock()
	p, c := reaped(pid, ws)
	return p, c, nil
}

// exited: only Linux tells it of a child that was not reaped.
func exited(int) bool { return false }

// visible: what left the group cannot be found.
func (p *process) visible() []member { return p.group() }

func (p *process) launch(s Spec, attr *syscall.ProcAttr) (pid int, err error) {
	return p.forkExec(s, attr)
}

// Room: these systems bound threads together with memory.
func Room() error { return nil }

// AtWork: only Linux shows the environment of processes.
func AtWork() map[string][]string { return nil }

// Gains: no other system ends a command with this process.
func Gains(string) bool { return false }
