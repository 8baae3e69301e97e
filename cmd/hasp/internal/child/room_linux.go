// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	needed   = 12   // processes and threads from here on, those of the starter among them
	reserved = 8    // threads of this process
	crowded  = 4096 // limits above this are not compared with what runs: to count it takes milliseconds
)

// Room says why this process could not run a command: it may start too few processes and
// threads, for want of which Go ends a program in the middle of anything. Where there are
// just enough, it makes its threads now.
func Room() error {
	room, limit := cgroupRoom()
	if r, l := userRoom(); r < room {
		room, limit = r, l
	}
	switch {
	case room < needed:
		return fmt.Errorf("hasp and its command need %d processes and threads, and %s leaves %d: raise it", needed, limit, max(room, 0))
	case room < crowded:
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), 2))
		reserve()
	}
	return nil
}

// reserve makes threads, which Go keeps.
func reserve() {
	var made, done sync.WaitGroup
	made.Add(reserved)
	for range reserved {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			made.Done()
			made.Wait()
		})
	}
	done.Wait()
}

// cgroupRoom returns what the limits of the control groups leave.
func cgroupRoom() (room int, limit string) {
	room = math.MaxInt
	groups, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		root := "/sys/fs/cgroup"
		switch {
		case len(f) < 3:
			continue
		case f[1] == "pids":
			root += "/pids"
		case f[1] != "":
			continue
		}
		for path := filepath.Clean("/" + f[2]); ; path = filepath.Dir(path) {
			most, ok1 := numberIn(filepath.Join(root, path, "pids.max"))
			now, ok2 := numberIn(filepath.Join(root, path, "pids.current"))
			if ok1 && ok2 && most-now < room {
				room, limit = most-now, "pids.max of the control group "+path
			}
			if path == "/" {
				break
			}
		}
	}
	return room, limit
}

func numberIn(file string) (int, bool) {
	text, err := os.ReadFile(file)
	n, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	return n, err == nil && err2 == nil // "max"
}

// userRoom returns what the user's limit leaves. It counts threads, and is none for root, except for that of a user namespace.
// In one without a map all users have one number, and which processes are this one's cannot be known.
func userRoom() (room int, limit string) {
	var most unix.Rlimit
	ids, _ := os.ReadFile("/proc/self/uid_map")
	users := strings.Fields(string(ids))
	if unix.Getrlimit(unix.RLIMIT_NPROC, &most) != nil || most.Cur > crowded || len(users) == 0 ||
		os.Getuid() == 0 && slices.Equal(users, []string{"0", "0", strconv.Itoa(math.MaxUint32)}) {
		return math.MaxInt, ""
	}
	room = int(most.Cur)
	for pid := range readProcs() {
		info, err := os.Stat(procfs + "/" + strconv.Itoa(pid))
		if err != nil || int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
			continue
		}
		tasks, _ := os.ReadDir(procfs + "/" + strconv.Itoa(pid) + "/task")
		room -= len(tasks)
	}
	return room, "the limit of the user's processes (ulimit -u)"
}
