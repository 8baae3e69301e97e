// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	pids "github.com/hasplock/hasp/internal/process"
	"golang.org/x/sys/unix"
)

// Process names a process, and never a later one with its number.
type Process struct {
	PID   int
	Start uint64 // in clock ticks since boot
}

// Around returns this process and those that it comes from, the nearest first.
func Around() (all []Process) {
	for pid := os.Getpid(); pid > 0; {
		p, ok := readProc(pid)
		if !ok {
			break
		}
		all = append(all, Process{pid, p.start})
		pid = p.parent
	}
	return all
}

// Find returns a process that runs.
func Find(pid int) (Process, error) {
	p, ok := readProc(pid)
	if !ok {
		return Process{}, fmt.Errorf("there is no process %d", pid)
	}
	return Process{pid, p.start}, nil
}

// Program returns the name of the program that the process runs, such as bash.
func (p Process) Program() string {
	path, _ := os.Readlink(p.file("exe"))
	return filepath.Base(strings.TrimSuffix(path, " (deleted)"))
}

// Name returns what the process is called: a script has its own name.
func (p Process) Name() string {
	name, _ := os.ReadFile(p.file("comm"))
	return strings.TrimSuffix(string(name), "\n")
}

func (p Process) file(name string) string { return "/proc/" + strconv.Itoa(p.PID) + "/" + name }

func same(name string, f *os.File) bool {
	a, err1 := os.Stat(name)
	b, err2 := f.Stat()
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// Shell is a process that a lock is held for.
type Shell struct {
	Process
	pidfd int
}

// OpenShell opens a process of this user.
func OpenShell(p Process) (*Shell, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return nil, fmt.Errorf("the process %d cannot be watched, which needs Linux 5.3: %w", p.PID, err)
	}
	s := &Shell{p, fd}
	now, ok := readProc(p.PID)
	there := s.send(0) // after the look, which may have been at a later process
	switch {
	case errors.Is(there, unix.EPERM):
		err = fmt.Errorf("the process %d is another user's", p.PID)
	case there != nil || !ok || now.start != p.Start:
		err = fmt.Errorf("the process %d has ended", p.PID)
	}
	if err != nil {
		_ = unix.Close(fd) // it may be none
		return nil, err
	}
	return s, nil
}

// Ended returns a channel that is closed when the process has ended.
func (s *Shell) Ended() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended) // what cannot be watched is not held for
		fds := []unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}
		for n, err := 0, error(nil); n == 0 && (err == nil || errors.Is(err, unix.EINTR)); {
			n, err = unix.Poll(fds, -1)
			n = max(n, 0)
		}
	}()
	return ended
}

func (s *Shell) send(sig unix.Signal) error { return unix.PidfdSendSignal(s.pidfd, sig, nil, 0) }

// LetGo closes the standard error inherited from the process that started this one,
// unless it is the shell's own: a process may wait until it is closed.
func (s *Shell) LetGo() error {
	if same(s.file("fd/2"), os.Stderr) {
		return nil
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	return unix.Dup3(int(null.Fd()), 2, 0)
}

// Daemon makes a process that is started so independent of the terminal, and of
// the descriptors that we were given beyond the standard ones.
func Daemon() *syscall.SysProcAttr {
	names, _ := os.ReadDir("/proc/self/fd")
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return &syscall.SysProcAttr{Setsid: true}
}

// readProc reads a process. In the /proc of another namespace its number is another's.
func readProc(pid int) (procStat, bool) {
	if !pids.OwnProc() {
		return procStat{}, false
	}
	text, err := os.ReadFile(procfs + "/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	return parseStat(text)
}
