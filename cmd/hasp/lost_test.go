// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// onlyLinux skips what other systems cannot do; the manual says so.
func onlyLinux(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can do this")
	}
}

// ttl is of leases that a test waits out, and of no others: a hasp that gets no time to run for
// half of it loses its lease. brief is of leases that a test breaks: their holders hear of that at the next renewal, after a third of it.
const ttl, brief = "15s", "20s"

// works is a command that reports that it runs, prints its fence, traps TERM, and
// never ends by itself.
const works = `trap "echo >term; exit 0" TERM; echo $HASP_FENCE >fence; while :; do sleep 0.1; done`

func TestKilledHaspTakesItsCommandAlong(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := onSQLite(t)
	p := s.hasp("run", "k", "--", "sh", "-c", `trap "" TERM HUP INT; echo $$ >pid; while :; do read x <>never; done`)
	pid := number(t, s.read("pid"))
	p.signal(syscall.SIGKILL)
	if err := eventually(func() bool { return !alive(pid) }); err != nil {
		t.Fatalf("the command lives on: %v", err)
	}
}

// A hasp that is stopped for longer than its TTL finds that out before it does
// anything else: its command gets TERM and is ended, and its fence is smaller than
// the one that came after it.
func TestStoppedHasp(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	p := s.hasp("run", "--ttl", ttl, "k", "--", "sh", "-c", works)
	first := number(t, s.read("fence"))
	s.stop(p)
	s.exits(0, "run", "k", "--", "sh", "-c", "echo $HASP_FENCE >second")
	second := number(t, s.read("second"))
	if _, err := os.Stat(filepath.Join(s.dir, "term")); err == nil {
		t.Error("a stopped hasp signalled its command")
	}
	lost := stall.Watch(t)
	p.signal(syscall.SIGCONT)
	p.ends(124)
	matches(t, p.err.String(), `^hasp: LOST "k": .*TERM now, KILL in`)
	matches(t, p.err.String(), `^hasp: the lock on "k" was lost \(.*\), and the command was ended: it (exited with status 0, and hasp exits with 124 instead|was ended by signal 9 \(killed\))\n\z`)
	if killed := strings.Contains(p.err.String(), "signal 9"); !killed {
		s.read("term")
	} else if lost() == 0 {
		t.Error("it was killed, although it had half a second to hear TERM, and this machine kept up")
	}
	if first >= second {
		t.Errorf("the fence of the first holder is %d, of the second %d", first, second)
	}
}

// The command ended while hasp was stopped, and the lease, too: nobody knows
// which was first, so it is not called a success.
func TestCommandEndsWhileHaspIsStopped(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	s.fifo("gate")
	p := s.hasp("run", "--ttl", ttl, "k", "--", "sh", "-c", "echo $$ >pid; read x <gate")
	pid := number(t, s.read("pid"))
	s.stop(p)
	s.exits(0, "run", "k", "--", "true")
	s.open("gate")
	must(t, eventually(func() bool { return !alive(pid) }))
	p.signal(syscall.SIGCONT)
	p.ends(124)
	matches(t, p.err.String(), `another may have worked at the same time\n\z`)
}

// The server is gone for ever: the command gets TERM grace before the lease ends,
// and is gone before anybody else could have the key. The server goes some time
// after a renewal, which the command is killed earlier by.
func TestServerGoneInTheMiddle(t *testing.T) {
	t.Parallel()
	lost := stall.Watch(t)
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	const ttl = 30 * time.Second
	p := s.hasp("run", "--ttl", ttl.String(), "--grace", "15s", "k", "--", "bash", "-c",
		`trap "" TERM; LC_ALL=C; while :; do echo "${EPOCHREALTIME/./}" >>last; read -rt 0.005 x <>never; done`)
	s.read("last")
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	if err := eventually(func() bool {
		left := rdb.PTTL(t.Context(), "lock:k").Val()
		return left > 0 && left < ttl*9/10
	}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	killed := time.Now()
	p.ends(124)
	times := strings.Fields(s.read("last"))
	last := time.UnixMicro(int64(number(t, times[len(times)-1])))
	if over := killed.Add(ttl + lost()); last.After(over) {
		t.Errorf("the command worked %v after its lease was over", last.Sub(over))
	}
	matches(t, p.err.String(), `^hasp: cannot renew "k", asking again: .*connection refused`)
	matches(t, p.err.String(), `^hasp: LOST "k": not renewed in time, last error: .*connection refused\. Ending the command \(pid \d+\): TERM now, KILL in [0-9.]+s$`)
	_, left, _ := strings.Cut(p.err.String(), "TERM now, KILL in ")
	left, _, _ = strings.Cut(left, "\n")
	if d, err := time.ParseDuration(left); err != nil || d > ttl/2 || d < ttl/2-2*time.Second-lost() {
		t.Errorf("of its grace it has %v, %v", d, err)
	}
	matches(t, p.err.String(), `was ended: it was ended by signal 9 \(killed\)\n\z`)
}

// A link that drops everything, for less than the TTL: nothing is lost, and
// a person is informed once.
func TestShortOutage(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	proxy := faultproxy.New(t, server.Addr())
	s := newSandbox(t, "redis://"+proxy.Addr())
	s.fifo("gate")
	p := s.hasp("run", "--grace", "100ms", "k", "--", "sh", "-c", "echo >ready; read x <gate")
	s.read("ready")
	proxy.Refuse()
	proxy.CloseAll()
	p.says(`^hasp: cannot renew "k", asking again: .*[^.]\. Unless it is renewed, the command is ended in`)
	proxy.Clear()
	p.says(`^hasp: renewed "k", good for`)
	s.open("gate")
	p.ends(0)
	if n := strings.Count(p.err.String(), "cannot renew"); n != 1 {
		t.Errorf("said %d times:\n%s", n, p.err.String())
	}
}

// Nobody renews the lease of a killed process, and hasp show on the
// same host says so at once, not only after the TTL.
func TestHolderThatHasEnded(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	s := onSQLite(t)
	s.fifo("gate")
	p := s.hasp("run", "--ttl", "1h", "k", "--", "sh", "-c", "echo >ready; read x <gate")
	s.read("ready")
	look := func(args ...string) string {
		l := s.hasp(args...)
		l.ends(0)
		return l.out.String()
	}
	if text := look("show", "k") + look("show", "k", "-o", "json") + look("ls", "-o", "json"); strings.Contains(text, "ended") {
		t.Errorf("it runs, and show says:\n%s", text)
	}
	must(t, p.cmd.Process.Kill())
	_ = p.cmd.Wait()
	matches(t, look("show", "k"), `^holder    .*\n +a process of this host that has ended$`)
	for _, args := range [][]string{{"show", "k", "-o", "json"}, {"ls", "-o", "json"}} {
		matches(t, look(args...), `"ended":true`)
	}
	matches(t, s.exits(75, "run", "-n", "k", "--", "true"), `busy: "k" has been held for .*\(pid \d+, user .*\), a process of this host that has ended, reason "sh"; its lease ends in (1h|\d+m)`)
}

// addsLine is a job: it copies a file, adds a line to the copy, and renames that. Two of them at once lose a line, or
// number two the same. The rename is done by the direct child of hasp, which dies with it.
const addsLine = `n=$(tail -n 1 lines | cut -d " " -f 1); cp lines lines.$HASP_FENCE
echo "$((n + 1)) $HASP_FENCE $0" >>lines.$HASP_FENCE; exec mv lines.$HASP_FENCE lines`

// Processes add a line each to one file. The first holder, a waiter, and another one at some moment are killed
// with -9: no line is missing but theirs, and the fences rise in the order of the file.
func TestKilledAmongMany(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	onEach(t, func(t *testing.T, s *sandbox) {
		adds := func(name, before string) *proc {
			return s.hasp("run", "-v", "--ttl", ttl, "k", "--", "sh", "-c", before+addsLine, name)
		}
		file := filepath.Join(s.dir, "lines")
		holder := adds("holder", "echo 0 0 start >lines; read x <never; ")
		s.read("lines")
		var all []*proc
		for i := range 8 {
			all = append(all, adds(strconv.Itoa(i), ""))
		}
		for _, p := range all {
			p.says(`waiting for "k"`)
		}
		waiter, other := rand.IntN(4), 4+rand.IntN(4)
		all[waiter].signal(syscall.SIGKILL)
		holder.signal(syscall.SIGKILL)
		if err := eventually(func() bool { text, _ := os.ReadFile(file); return bytes.Count(text, []byte("\n")) > 3 }); err != nil {
			t.Error(err)
		}
		all[other].signal(syscall.SIGKILL)
		missing := map[string]bool{}
		for i, p := range all {
			missing[strconv.Itoa(i)] = true
			if code, err := p.wait(); code != 0 && i != waiter && i != other {
				t.Errorf("line %d: %v; it said:\n%s", i, err, p.err.String())
			}
		}
		last, text := 0, s.read("lines")
		for n, line := range strings.Split(text, "\n")[1:] {
			f := strings.Fields(line)
			if fence := number(t, f[1]); number(t, f[0]) != n+1 || fence <= last || !missing[f[2]] {
				t.Errorf("line %d is %q, after fence %d:\n%s", n+1, line, last, text)
			} else {
				last = fence
			}
			delete(missing, f[2])
		}
		delete(missing, strconv.Itoa(other))
		if len(missing) != 1 || !missing[strconv.Itoa(waiter)] {
			t.Errorf("lines %v are missing, want that of %d and at most of %d:\n%s", slices.Sorted(maps.Keys(missing)), waiter, other, text)
		}
	})
}

func number(t testing.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

// The command must not be killed by the kernel when only a thread of hasp ends:
// what started it lives as long as hasp does.
func TestCommandOutlivesThreads(t *testing.T) {
	t.Parallel()
	onlyLinux(t)
	if testing.Short() {
		t.Skip("takes a while")
	}
	s := onSQLite(t)
	// Renewals, timers and signals make Go start and park threads. The lease is renewed twice meanwhile.
	p := s.hasp("run", "--ttl", ttl, "--on-lost", "ignore", "-v", "k", "--", "sh", "-c", "sleep 11; exit 9")
	p.ends(9)
}
