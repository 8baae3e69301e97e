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
	"time"

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

// End ends the process, and what it started as far as that can be found, as an
// ended command is. It returns when nothing is left of them.
func (s *Shell) End(order Order) {
	all := map[int]uint64{s.PID: s.Start}
	if order.Term {
		s.signal(all, unix.SIGTERM)
		s.signal(all, unix.SIGCONT) // a stopped process handles no signal but SIGKILL
	} else {
		s.signal(all, unix.SIGKILL)
	}
	if order.Begun != nil {
		order.Begun()
	}
	var killed time.Time
	for s.family(all); len(all) > 0; s.family(all) {
		pause := endTick
		if order.Term {
			pause = min(pause, order.Left())
		}
		if !order.Term || pause <= 0 {
			s.signal(all, unix.SIGKILL)
			if killed.IsZero() {
				killed = time.Now()
			}
			if time.Since(killed) > killLimit {
				return // stuck in the kernel, or not ours to kill
			}
			pause = endTick
		}
		time.Sleep(pause)
	}
}

// family adds to all what they started, and takes out what has ended. What was
// started by a process that ended between two looks is not found: see started.
func (s *Shell) family(all map[int]uint64) {
	procs := readProcs()
	for pid, start := range all {
		if p, ok := procs[pid]; !ok || p.start != start || p.dead {
			delete(all, pid)
		}
	}
	for grew := true; grew; {
		grew = false
		for pid, p := range procs {
			_, child := all[p.parent]
			if _, known := all[pid]; child && !known && !p.dead && pid != os.Getpid() {
				all[pid], grew = p.start, true
			}
		}
	}
}

// signal sends a signal to all, and to what they have started by now. The shell
// comes first: one whose command was ended would go on to the next.
func (s *Shell) signal(all map[int]uint64, sig unix.Signal) {
	s.family(all) // once the shell has ended, nobody knows what it started
	latest := s.started()
	_ = s.send(sig) // it may have ended
	for _, pid := range latest {
		if p, ok := readProc(pid); ok && !p.dead {
			all[pid] = p.start
		}
	}
	for pid, start := range all {
		if pid == s.PID {
			continue
		}
		if one, err := OpenShell(Process{pid, start}); err == nil {
			_ = one.send(sig) // as above
			_ = unix.Close(one.pidfd)
		}
	}
}

// started returns the children of the shell, in a hundredth of the time that family takes: what it starts between
// this look and a signal is not found. To stop the shell meanwhile would close the gap, but stops sudo or su with it, for good.
func (s *Shell) started() (pids []int) {
	text, _ := os.ReadFile(s.file("task/" + strconv.Itoa(s.PID) + "/children")) // a kernel may have none
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (s *Shell) send(sig unix.Signal) error { return unix.PidfdSendSignal(s.pidfd, sig, nil, 0) }

// LetGo closes the standard error inherited from the process that started this one,
// unless it is the shell's own: somebody may wait until it is closed.
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
