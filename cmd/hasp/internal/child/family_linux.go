// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stillLimit bounds the wait until what was stopped stands still.
const stillLimit = time.Second

// family is a shell and what it started, while they are ended. What looks at all processes takes milliseconds, in which they
// start others: so they are stopped before they are ended. The shell itself is not, since the sudo or su around it would stop with it, for good.
type family struct {
	shell   *Shell
	session int              // the shell's
	groups  map[int]bool     // of the family
	before  map[int]procStat // all processes that there were before the first signal
	known   map[int]uint64   // the family, by number and start, also what has ended
	alive   map[int]bool     // those of it that have not
	stopped map[int]bool     // by us
	asked   bool             // the shell was, to end
	bereft  bool             // that has become the family's: the shell has ended
	termed  map[int]bool     // asked to end
	spared  map[int]bool     // what the shell has started since then: to end well
	refused map[int]bool     // what may not be signalled
	told    map[int]bool     // what was said to be so
}

func newFamily(s *Shell) *family {
	f := &family{shell: s, groups: map[int]bool{}, known: map[int]uint64{s.PID: s.Start}, alive: map[int]bool{s.PID: true},
		stopped: map[int]bool{}, spared: map[int]bool{}, refused: map[int]bool{}, termed: map[int]bool{}, told: map[int]bool{}}
	f.session, _ = unix.Getsid(s.PID) // 0 where the shell has ended: no process has that session
	f.before = readProcs()
	f.groups[f.before[s.PID].group] = true
	f.sort(f.before)
	return f
}

// End ends the process, and what it started as far as that can be found, as an
// ended command is. It returns when nothing is left of them.
func (s *Shell) End(order Order) {
	f := newFamily(s)
	if order.Term {
		f.ask()
	} else {
		f.kill()
	}
	if order.Begun != nil {
		order.Begun()
	}
	f.tell(order.Refused)
	var killed time.Time
	for f.look(); len(f.alive) > 0; f.look() {
		pause := endTick
		if f.bereft && order.Term {
			f.ask()
		}
		if order.Term {
			pause = min(pause, order.Left())
		}
		if !order.Term || pause <= 0 {
			f.kill()
			f.tell(order.Refused)
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

// ask sends SIGTERM to all. The shell comes first: if its command ended first, it would go on to the next.
func (f *family) ask() {
	f.started()
	_ = f.shell.send(unix.SIGTERM) // it may have ended
	_ = f.shell.send(unix.SIGCONT) // a stopped process handles no signal but SIGKILL
	f.asked = true
	f.freeze()
	f.bereft = false
	all := f.members()
	for _, pid := range all {
		if !f.termed[pid] {
			f.termed[pid] = true
			f.send(pid, unix.SIGTERM)
		}
	}
	for _, pid := range slices.Backward(all) { // a sudo that sees its command stopped stops, too
		f.send(pid, unix.SIGCONT)
	}
	clear(f.stopped)
}

// kill kills all.
func (f *family) kill() {
	f.started()
	_ = f.shell.send(unix.SIGKILL) // it may have ended
	f.asked = false
	clear(f.spared)
	f.freeze()
	for _, pid := range f.members() {
		f.send(pid, unix.SIGKILL)
	}
}

// freeze stops all but the shell, until none of them is left that could start another. What it starts has its sessions and groups
// as it likes, but not its parent.
func (f *family) freeze() {
	for end := time.Now().Add(stillLimit); time.Now().Before(end); {
		still := true
		for _, pid := range f.members() {
			if !f.stopped[pid] {
				f.stopped[pid] = true
				f.send(pid, unix.SIGSTOP)
			}
			still = still && (f.refused[pid] || !runs(pid))
		}
		if grew := f.look(); still && !grew {
			return
		}
		if !still {
			time.Sleep(time.Millisecond)
		}
	}
}

// runs says whether a process may start another before it is stopped.
func runs(pid int) bool {
	p, ok := readProc(pid)
	return ok && (p.state == 'R' || p.state == 'S') // D: within a vfork
}

// members returns the processes of the family that are to end, except the shell: parents before their children.
func (f *family) members() []int {
	all := slices.DeleteFunc(slices.Collect(maps.Keys(f.alive)), func(pid int) bool { return pid == f.shell.PID || f.spared[pid] })
	slices.SortFunc(all, func(a, b int) int {
		if f.known[a] != f.known[b] {
			return int(int64(f.known[a]) - int64(f.known[b]))
		}
		return a - b
	})
	return all
}

// look finds what the family has started, and forgets what has ended.
func (f *family) look() (grew bool) { return f.sort(readProcs()) }

// sort takes the family out of all processes.
func (f *family) sort(procs map[int]procStat) (grew bool) {
	for pid := range f.alive {
		if p, ok := procs[pid]; !ok || p.start != f.known[pid] || p.dead {
			delete(f.alive, pid)
		}
	}
	for again := true; again; {
		again = false
		for pid, p := range procs {
			if start, ok := f.known[pid]; ok && start == p.start || p.dead || pid == os.Getpid() || !f.has(pid, p, procs) {
				continue
			}
			f.known[pid], f.alive[pid], f.groups[p.group] = p.start, true, true
			if f.asked && (p.parent == f.shell.PID || f.spared[p.parent]) {
				f.spared[pid] = true
			}
			again, grew = true, true
		}
	}
	if !f.alive[f.shell.PID] && len(f.spared) > 0 { // it did not handle the signal: that was work
		clear(f.spared)
		f.bereft, grew = true, true
	}
	return grew
}

// has says whether a process is of the family: by its parent, which may have ended since it was looked at; or, when another
// took it over, by its session and group, and because it is new.
func (f *family) has(pid int, p procStat, procs map[int]procStat) bool {
	parent, there := procs[p.parent]
	if start, ok := f.known[p.parent]; ok && (!there || parent.start == start) {
		return true
	}
	if was, old := f.before[pid]; old && was.start == p.start || !f.groups[p.group] {
		return false
	}
	own, err := unix.Getsid(pid)
	its, err2 := unix.Getsid(p.parent)
	return err == nil && err2 == nil && own == f.session && its != f.session // else it may be that parent's own
}

// started adds the children of the shell, in a hundredth of the time that look takes.
func (f *family) started() {
	text, _ := os.ReadFile(f.shell.file("task/" + strconv.Itoa(f.shell.PID) + "/children")) // a kernel may have none
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if p, ok := readProc(pid); err == nil && ok && !p.dead && pid != os.Getpid() {
			f.known[pid], f.alive[pid], f.groups[p.group] = p.start, true, true
		}
	}
}

// send sends a signal to one of the family, and to no later process with its number.
func (f *family) send(pid int, sig unix.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	if p, ok := readProc(pid); ok && p.start == f.known[pid] && errors.Is(unix.PidfdSendSignal(fd, sig, nil, 0), unix.EPERM) {
		f.refused[pid] = true
	}
}

// tell names what may not be signalled, once.
func (f *family) tell(refused func(names []string)) {
	var names []string
	for _, pid := range f.members() {
		if f.refused[pid] && !f.told[pid] {
			f.told[pid] = true
			names = append(names, fmt.Sprintf("%s (pid %d)", Process{PID: pid}.Name(), pid))
		}
	}
	if refused != nil && len(names) > 0 {
		refused(names)
	}
}
