// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"syscall"

	pids "github.com/hasplock/hasp/internal/process"
	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant that
// outlives its own, so that a daemon that the command started can be found.
func adoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("cannot become the reaper of the command's children: %w", err)
	}
	return nil
}

// endWithParent has the kernel kill the command when this process is gone,
// however it went. SIGKILL, because then no process is left to follow a SIGTERM up.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// alone says whether nothing is left of the commands of this process: what they started
// is its child, or has an ancestor that is. Only the kernel knows that for certain.
func (*process) alone() bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil)
	return errors.Is(err, unix.ECHILD)
}

// Crowded says whether this process was started with children: a shell that did
// "daemon & exec hasp run …" leaves them. Their orphans, which it would adopt as well,
// cannot be told from those of a command.
func Crowded() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|syscall.WALL, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			return err == nil
		}
	}
}

// Gains says whether a program gets more rights than this process has when it starts:
// then the kernel does not end it with this process, and what it starts as another user
// is not ours to end.
func Gains(path string) bool {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(path, &st) != nil || unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOSUID != 0 {
		return false
	}
	if denied, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err == nil && denied == 1 {
		return false
	}
	_, err := unix.Getxattr(path, "security.capability", nil)
	return st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Geteuid() ||
		st.Mode&(unix.S_ISGID|unix.S_IXGRP) == unix.S_ISGID|unix.S_IXGRP && int(st.Gid) != os.Getegid() ||
		err == nil && os.Geteuid() != 0
}

// Limits says what cannot be done here for a command that is ended; empty when
// all can.
func Limits() string {
	what := "/proc cannot be read"
	switch _, err := os.Stat("/proc/self/stat"); {
	case pids.OwnProc():
		return ""
	case err == nil:
		what = "/proc is that of another pid namespace (mount one here: unshare --mount-proc, bwrap --proc /proc)"
	}
	return what + ": when the lock is lost, of the command only its process group is ended, and not what left that"
}

// reap waits until a child has changed, and returns which command that is; nil
// when it is none. A child is reaped under the lock, so that no other
// process has its number while it is looked up there.
func reap() (*process, change, error) {
	if err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		return nil, change{}, err
	}
	running.Lock()
	defer running.Unlock()
	var ws syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED|syscall.WNOHANG, nil)
	if err != nil || pid == 0 { // another thread was faster, or what was stopped goes on
		return nil, change{}, nil
	}
	p, c := reaped(pid, ws)
	return p, c, nil
}

// exited says whether a child has ended and was not reaped.
func exited(pid int) bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}

// visible returns the live processes that come from the command as far as they
// can be seen: all descendants of this process, but no zombies.
func (p *process) visible() []member {
	procs := readProcs()
	if _, ok := procs[os.Getpid()]; !ok { // there is no /proc to read
		return p.group()
	}
	known := map[int]bool{os.Getpid(): true}
	var alive []member
	for grew := true; grew; {
		grew = false
		for pid, s := range procs {
			if known[s.parent] && !known[pid] {
				known[pid], grew = true, true
				if !s.dead {
					alive = append(alive, member{pid, s.group == p.pid, s.name})
				}
			}
		}
	}
	return alive
}

const (
	mostEnviron = 8 << 20 // what the kernel gives a program at most is less
	mostNamed   = 10      // processes of a lease
)

// AtWork names, by the owner of each lease, what still runs under it: the processes that have the owner in the variables that hasp
// gave its command. It misses processes that this user may not look into, and processes that took the variables out.
func AtWork() map[string][]string {
	procs, work := readProcs(), map[string][]string{}
	delete(procs, os.Getpid())
	for _, pid := range slices.Sorted(maps.Keys(procs)) {
		f, err := os.Open(Process{PID: pid}.file("environ"))
		if err != nil {
			continue
		}
		text, _ := io.ReadAll(io.LimitReader(f, mostEnviron)) // of a process that ends meanwhile there is less
		_ = f.Close()
		for owner := range ownersIn(text) {
			switch n := len(work[owner]); {
			case n < mostNamed:
				work[owner] = append(work[owner], fmt.Sprintf("%s (pid %d)", procs[pid].name, pid))
			case n == mostNamed:
				work[owner] = append(work[owner], "others")
			}
		}
	}
	return work
}

// ownersIn are the owners of the leases that an environment names.
func ownersIn(environ []byte) map[string]bool {
	owners := map[string]bool{}
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		name, value, _ := bytes.Cut(v, []byte("="))
		if string(name) == "HASP_HELD" || bytes.HasPrefix(name, []byte("HASP_OWNER")) {
			for owner := range bytes.FieldsSeq(value) {
				owners[string(owner)] = true
			}
		}
	}
	return owners
}

type procStat struct {
	name          string
	parent, group int
	start         uint64 // in clock ticks since boot
	state         byte
	dead          bool
}

var procfs = "/proc" // another one in a test

// readProcs reads every process that can be seen. They come and go meanwhile:
// a caller that needs to be sure reads again.
func readProcs() map[int]procStat {
	dir, err := os.Open(procfs)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // what was read so far is good enough
	procs := make(map[int]procStat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, ok := readProc(pid); ok {
			procs[pid] = s
		}
	}
	return procs
}

// parseStat reads "pid (name) state ppid pgrp …", see proc(5). The name may
// hold anything, also parentheses: it ends with the last one.
func parseStat(text []byte) (s procStat, ok bool) {
	end := bytes.LastIndexByte(text, ')')
	f := bytes.Fields(text[end+1:])
	if len(f) < 20 {
		return s, false
	}
	_, name, _ := bytes.Cut(text[:max(end, 0)], []byte("("))
	s.name, s.state = string(name), f[0][0]
	var err1, err2, err3 error
	// A process whose first thread has ended is a zombie with threads.
	s.dead = s.state == 'X' || s.state == 'Z' && (string(f[17]) == "0" || string(f[17]) == "1")
	s.parent, err1 = strconv.Atoi(string(f[1]))
	s.group, err2 = strconv.Atoi(string(f[2]))
	s.start, err3 = strconv.ParseUint(string(f[19]), 10, 64)
	return s, err1 == nil && err2 == nil && err3 == nil
}
