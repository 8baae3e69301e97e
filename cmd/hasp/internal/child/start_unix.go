// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package child

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"syscall"
)

// process is the running command, the leader of its group.
type process struct {
	pid     int
	changes chan change // one for each stop, one for the end
	began   chan error  // one: nil once the command itself runs, or has ended
	goneOn  int         // how often it was continued; guarded by running
}

// change is what became of the command.
type change struct {
	syscall.WaitStatus
	goneOn int // of the process, at that time
}

// member is a live process of the command.
type member struct {
	pid     int
	inGroup bool // of the command
	name    string
}

// refuses says whether a process may not be signalled: it is another user's.
func (m member) refuses() bool { return errors.Is(syscall.Kill(m.pid, 0), syscall.EPERM) }

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
	p := &process{changes: make(chan change, 4), began: make(chan error, 1)}
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
		whose, c, err := reap()
		if err != nil && !errors.Is(err, syscall.EINTR) { // ECHILD: nothing is left
			return
		}
		if whose != nil { // not an orphan that was adopted
			whose.changes <- c
		}
	}
}

// running are the commands that were not reaped yet, so that no other process
// has their numbers. A goroutine that reaps passes on what belongs to another.
var running = struct {
	sync.Mutex
	byPID map[int]*process
}{byPID: map[int]*process{}}

func (p *process) fork(s Spec, attr *syscall.ProcAttr) (err error) {
	running.Lock() // no goroutine looks for the command before it stands there
	defer running.Unlock()
	pid, err := p.launch(s, attr)
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

// reaped notes a change of a child, and returns which command that is. running is locked.
func reaped(pid int, ws syscall.WaitStatus) (*process, change) {
	p := running.byPID[pid]
	if p == nil {
		return nil, change{}
	}
	if !ws.Stopped() {
		delete(running.byPID, pid)
	}
	return p, change{ws, p.goneOn}
}

// dead says whether the command itself has ended, whatever else of it has not.
// Then its status is on the way. Until it is reaped it counts as alive where
// exited cannot tell.
func (p *process) dead() bool {
	running.Lock()
	defer running.Unlock()
	return running.byPID[p.pid] != p || exited(p.pid)
}

// signal sends a signal to the command's group, until the command was reaped.
// After that it is no error: a sender of signals races with the end.
func (p *process) signal(sig syscall.Signal) {
	running.Lock()
	defer running.Unlock()
	if running.byPID[p.pid] == p {
		_ = syscall.Kill(-p.pid, sig)
	}
}

// goOn lets a stopped command go on.
func (p *process) goOn() {
	running.Lock()
	p.goneOn++
	running.Unlock()
	p.signal(syscall.SIGCONT)
}

// since reports whether the command was continued after that stop.
func (p *process) since(c change) bool {
	running.Lock()
	defer running.Unlock()
	return c.goneOn != p.goneOn
}

// signalAll sends signals to the group at once, and one by one to what left it. The group of a command that lives
// does not wait for the look at /proc, which may take long on a busy machine. It says whether any process was there.
func (p *process) signalAll(sigs ...syscall.Signal) (found bool) {
	now := !p.dead()
	for _, sig := range sigs {
		if now {
			p.signal(sig)
		}
	}
	inGroup, members := false, p.members()
	for _, m := range members {
		inGroup = inGroup || m.inGroup
		for _, sig := range sigs {
			if !m.inGroup {
				_ = syscall.Kill(m.pid, sig)
			}
		}
	}
	for _, sig := range sigs {
		if inGroup && !now { // the number of an empty group may be another's by now
			_ = syscall.Kill(-p.pid, sig)
		}
	}
	return now || len(members) > 0
}

// askToEnd sends SIGTERM to what outlived the command, except for those of its group that got one of these signals. A shell's
// job in the background did not: it ignores what is typed at a terminal.
func (p *process) askToEnd(had []syscall.Signal) {
	for _, m := range p.members() {
		if !m.inGroup || !slices.ContainsFunc(had, func(sig syscall.Signal) bool { return sig == syscall.SIGHUP || !ignores(m.pid, sig) }) {
			_ = syscall.Kill(m.pid, syscall.SIGTERM)
		}
		_ = syscall.Kill(m.pid, syscall.SIGCONT) // a stopped process handles no signal but SIGKILL
	}
}

// names returns the names of the members for people: of all, or only of the members that
// this process may not signal.
func (p *process) names(all bool) (names []string) {
	members := p.members()
	for _, m := range members {
		if m.refuses() {
			names = append(names, fmt.Sprintf("%s (pid %d, another user's)", m.name, m.pid))
		} else if all {
			names = append(names, fmt.Sprintf("%s (pid %d)", m.name, m.pid))
		}
	}
	if all && len(members) == 0 && !p.alone() {
		return []string{"some that cannot be seen here"}
	}
	return names
}

// members returns the live processes that come from the command. The command
// itself is one until it has ended, also when it cannot be seen.
func (p *process) members() []member {
	alive := p.visible()
	leads := slices.ContainsFunc(alive, func(m member) bool { return m.pid == p.pid })
	if !leads && !p.dead() {
		alive = append(alive, member{p.pid, true, "the command"})
	}
	return alive
}

// group returns the group's leader for the whole group, while that has a live
// process. What left the group is not found so.
func (p *process) group() []member {
	if err := syscall.Kill(-p.pid, 0); err == syscall.ESRCH {
		return nil
	}
	return []member{{p.pid, true, "the command's group"}}
}

// forkExec makes the command at once, unless it is too late.
func (p *process) forkExec(s Spec, attr *syscall.ProcAttr) (pid int, err error) {
	if s.Left != nil && s.Left() <= 0 {
		return 0, ErrLate
	}
	p.began <- nil
	return syscall.ForkExec(s.Path, s.Argv, attr)
}

func statusOf(ws syscall.WaitStatus) Status {
	if ws.Signaled() {
		return Status{Signal: ws.Signal()}
	}
	return Status{Code: ws.ExitStatus()}
}
