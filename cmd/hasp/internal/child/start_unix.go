// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"runtime"
	"slices"
	"sync"
	"syscall"
)

// process is the running command, the leader of its group.
type process struct {
	pid     int
	others  strangers
	changes chan syscall.WaitStatus // one for each stop, one for the end
}

// member is a live process of the command.
type member struct {
	pid     int
	inGroup bool // of the command
}

// start starts the command in a group of its own, in the foreground of the
// terminal tty unless tty is negative.
func start(s Spec, tty int) (*process, error) {
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	attr := &syscall.ProcAttr{Env: s.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if tty >= 0 {
		attr.Sys.Foreground, attr.Sys.Ctty = true, tty
	}
	endWithParent(attr.Sys)
	p := &process{others: findStrangers(), changes: make(chan syscall.WaitStatus, 4)}
	started := make(chan error)
	go p.run(s, attr, started)
	return p, <-started
}

// run forks and then reaps for as long as there is anything to reap, the
// orphans that this process adopted among them. It stays on one thread, since
// Linux counts the end of the thread that forked as the end of the parent.
func (p *process) run(s Spec, attr *syscall.ProcAttr, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if started <- p.fork(s, attr); p.pid == 0 {
		return
	}
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil: // ECHILD: nothing is left
			return
		default:
			deliver(pid, ws)
		}
	}
}

// running are the commands whose end was not seen yet. Whoever reaps passes on
// what belongs to another.
var running = struct {
	sync.Mutex
	byPID map[int]*process
}{byPID: map[int]*process{}}

func (p *process) fork(s Spec, attr *syscall.ProcAttr) (err error) {
	running.Lock() // nobody looks for the command before it stands there
	defer running.Unlock()
	pid, err := syscall.ForkExec(s.Path, s.Argv, attr)
	if err == nil {
		p.pid = pid
		running.byPID[pid] = p
	}
	return err
}

// idle says whether no command runs.
func idle() bool {
	running.Lock()
	defer running.Unlock()
	return len(running.byPID) == 0
}

func deliver(pid int, ws syscall.WaitStatus) {
	running.Lock()
	p := running.byPID[pid]
	if !ws.Stopped() {
		delete(running.byPID, pid)
	}
	running.Unlock()
	if p != nil { // not an orphan that was adopted
		p.changes <- ws
	}
}

// signal sends a signal to the command's group. A group that is gone is no
// error: whoever sends signals races with the end.
func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.pid, sig) }

// signalAll sends a signal to the group at once, and one by one to what left
// it. It says whether anybody was there.
func (p *process) signalAll(sig syscall.Signal) (found bool) {
	inGroup, members := false, p.members()
	for _, m := range members {
		if m.inGroup {
			inGroup = true
			continue
		}
		_ = syscall.Kill(m.pid, sig)
	}
	if inGroup { // the number of an empty group may be another's by now
		p.signal(sig)
	}
	return len(members) > 0
}

// leads says whether the command itself is still alive, whatever else of it is.
func (p *process) leads() bool {
	return slices.ContainsFunc(p.members(), func(m member) bool { return m.pid == p.pid })
}

func statusOf(ws syscall.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Signal: ws.Signal()}
	}
	return Status{Code: ws.ExitStatus()}
}
