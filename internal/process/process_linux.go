// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/hasplock/hasp/internal/clock"
	"golang.org/x/sys/unix"
)

// self is WORLD-START. In one world a process id and a start time name one process:
// it is a boot of the machine, a namespace of process ids, and one of time, by
// which start times are shown. A number of a namespace is given again when nothing
// runs in it any more.
var self = sync.OnceValue(func() string {
	boot := clock.BootID()
	pids, err := os.Readlink("/proc/self/ns/pid")
	if boot == "" || err != nil || !ownProc() {
		return ""
	}
	times, _ := os.Readlink("/proc/self/ns/time") // older systems have none
	start, _, ok := look(os.Getpid())
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(boot + " " + pids + " " + times)) // a name, not a safeguard
	return hex.EncodeToString(sum[:8]) + "-" + start
})

// ownProc compares this process's number with the one in /proc. By chance they may be
// the same: a /proc from outside lists a number for each namespace from its own on.
var ownProc = sync.OnceValue(func() bool {
	pid := strconv.Itoa(os.Getpid())
	link, err := os.Readlink("/proc/self")
	status, _ := os.ReadFile("/proc/self/status")
	_, inner, nested := strings.Cut(string(status), "\nNSpid:") // older systems have none
	inner, _, _ = strings.Cut(inner, "\n")
	return err == nil && link == pid && (!nested || strings.TrimSpace(inner) == pid)
})

// of names a process of this world.
func of(pid int) string {
	world, _, ok := strings.Cut(self(), "-")
	start, _, seen := look(pid)
	if !ok || !seen {
		return ""
	}
	return world + "-" + start
}

// ended looks for a process of this world.
func ended(pid int, start string) bool {
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	begun, zombie, ok := look(pid)
	return ok && (zombie || begun != start) // with another start, its id was given again
}

// look returns when a process began, and whether it only waits to be reaped. It
// is not ok when it cannot be seen.
func look(pid int) (start string, zombie, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", false, false
	}
	// After the name, which may hold anything: state is the 3rd field of proc(5),
	// num_threads the 20th, starttime the 22nd.
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 20 {
		return "", false, false
	}
	return f[19], f[0] == "Z" && f[17] == "1", true
}
