// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/internal/testserver"
)

// onPath makes a directory where hasp is known by its name.
func onPath(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	bin := t.TempDir()
	must(t, os.Symlink(self, filepath.Join(bin, "hasp")))
	return bin
}

// script runs a script with a shell, to which hasp is known.
func (s *sandbox) script(shell, text string, args ...string) *proc {
	s.t.Helper()
	words := strings.Fields(shell)
	path, err := exec.LookPath(words[0])
	if err != nil {
		s.t.Skipf("SKIPPED WITHOUT A SHELL: %v", err)
	}
	bin := onPath(s.t)
	name := filepath.Join(bin, "script")
	must(s.t, os.WriteFile(name, []byte(text), 0o600))
	return s.haspWith(func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args = path, append(append(words, name), args...)
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
	})
}

// sockets is where keepers are asked.
func (s *sandbox) sockets() string { return filepath.Join(s.dir, "state", "hasp", "shells") }

// empty waits until no keeper has anything left to be found.
func (s *sandbox) empty() {
	s.t.Helper()
	if err := eventually(func() bool {
		left, err := os.ReadDir(s.sockets())
		return err == nil && len(left) == 0
	}); err != nil {
		s.t.Error("something of a keeper is left behind")
	}
}

// keeper returns the process that holds a key for a shell.
func (s *sandbox) keeper() int {
	s.t.Helper()
	names, err := os.ReadDir(s.sockets())
	if err != nil || len(names) != 1 {
		s.t.Fatalf("the keepers are %v, %v", names, err)
	}
	return number(s.t, names[0].Name()[strings.LastIndexByte(names[0].Name(), '-')+1:])
}

// A script holds a key from hasp acquire to its end, and tells what it holds. The
// process in the background keeps none of its pipes open, nor what it locked.
func TestAcquireInScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "dash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, "sqlite:locks.db")
			text := `
exec 9>lock; flock 9
hasp acquire -w 20 k || exit 1
hasp held k || exit 2
hasp run -n k -- true; test $? = 75 || exit 3
test -z "$(hasp acquire --pid $$ -w 20 other 2>&1)" || exit 4
hasp held other || exit 5
hasp acquire -w 20 third 2>&1 | cat
hasp held third || exit 6
(hasp acquire -w 20 sub && hasp held sub) || exit 7
hasp release k || exit 8
hasp held k; test $? = 1 || exit 9
hasp run -n k -- true || exit 10
test "$(hasp held --print fence other)" -gt 0 || exit 11
hasp acquire other; test $? = 75 || exit 12
hasp run other -- true; test $? = 75 || exit 13
hasp acquire -w 20 a b || exit 14
hasp release a; test $? = 64 || exit 15
hasp held a b && hasp release b a || exit 16
$SHELL -c 'hasp held other && ! hasp release other && hasp held other' || exit 17
hasp acquire --slots 2 many || exit 18
test "$(hasp held --print slot many)" = 0 || exit 19
hasp acquire -s twice && hasp acquire --store sqlite:elsewhere.db twice || exit 20
test "$(hasp held --print fence twice | wc -l)" -eq 2 || exit 21
hasp release twice && hasp run -n twice -- true && hasp run -n --store sqlite:elsewhere.db twice -- true || exit 22
hasp release || exit 23
hasp held third; test $? = 1 || exit 24
hasp acquire last || exit 25
exec 9>&-
flock -n lock true || exit 26
`
			if shell == "fish" {
				text = `
hasp acquire -w 20 k; or exit 1
hasp held k; or exit 2
set fence (hasp held --print fence k); or exit 3
test $fence -gt 0; or exit 4
hasp acquire -w 20 other | cat
hasp held other; or exit 5
hasp release k; or exit 6
hasp held k; test $status = 1; or exit 7
hasp acquire -w 20 last; or exit 8
`
			}
			text = strings.ReplaceAll(text, "$SHELL", shell)
			s.script(shell, text).ends(0)
			s.released("sub", "k", "other", "third", "last")
			s.empty()
		})
	}
}

// Within $( … ), wherever its output goes, the key is held for the shell that reads what that says; in ( … ), also where
// standard input is /dev/null as in a unit of systemd, until the end of that.
func TestAcquireSubstituted(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "dash", "zsh", "busybox sh", "mksh", "ksh93"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			testserver.Require(t, strings.Fields(shell)[0])
			s := onSQLite(t)
			text := `
freed() { hasp run k -- sh -c 'test -z "$HASP_ABANDONED"' || exit $1; }
kept() { test "$1" = yes && hasp held k && hasp release k || exit $2; }
lock() { hasp acquire -n k >/dev/null 2>&1; }
said=$(hasp acquire -n k >/dev/null 2>&1 && echo yes); kept "$said" 1
said=$(hasp acquire -n k 2>&1 && echo yes); kept "$said" 2
said=$({ hasp acquire -n k && echo yes >&3; } 3>&1 >/dev/null 2>&1); kept "$said" 3
said=$(lock; echo $?); test "$said" = 0 || exit 4; kept yes 5
said=$(lock) || exit 6; kept yes 7
said=$({ hasp acquire -n k || exit; } >/dev/null 2>&1) || exit 8; kept yes 9
said=$(trap 'echo yes' EXIT; hasp acquire -n k >/dev/null 2>&1); kept "$said" 22
said=$( (hasp acquire -n k && echo yes) 2>&1); kept "$said" 10
said=$(hasp acquire -n k && hasp release k && echo yes); test "$said" = yes || exit 11; hasp held k; test $? = 1 || exit 12
( said=$(hasp acquire -n k && echo yes); test "$said" = yes && hasp held k ) || exit 13
freed 14
( hasp acquire -w 30 k >/dev/null || exit; hasp held k ) </dev/null || exit 15
freed 16
( hasp acquire -w 30 k >/dev/null || exit; hasp held k ) </dev/null >/dev/null & wait $! || exit 17
freed 18
said=$(SHELL -c 'hasp acquire -w 30 k || exit; hasp held k && echo "an own script"'); test "$said" = "an own script" || exit 19
(hasp acquire -w 30 k || exit; hasp held k; echo $? >piped) | cat; test "$(cat piped)" = 0 || exit 20
said=$(hasp acquire --pid $$ -w 30 k && echo held); test "$said" = held && hasp held k || exit 21
`
			if shell == "ksh93" { // its ( … ) is no process, but for a job in the background
				text = strings.ReplaceAll(text, "freed 1", "hasp release k; freed 1")
			}
			s.script(shell, strings.ReplaceAll(text, "SHELL", shell)).ends(0)
			s.released("k")
			s.empty()
		})
	}
}

// A key is free at once, however its shell ends, and what that started works on.
func TestAcquireEndsWithTheShell(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *sandbox, p *proc){
		"exits":     func(s *sandbox, _ *proc) { s.open("gate") },
		"gets TERM": func(_ *sandbox, p *proc) { p.signal(syscall.SIGTERM) },
		"is killed": func(_ *sandbox, p *proc) { p.signal(syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onRedis(t)
			s.fifo("gate")
			p := s.script("sh", `hasp acquire --ttl 1h k || exit; sleep 1000 >/dev/null 2>&1 & echo $! >job; read x <gate`)
			job := number(t, s.read("job"))
			defer func() { _ = syscall.Kill(job, syscall.SIGKILL) }()
			end(s, p)
			s.released("k")
			if !alive(job) {
				t.Error("what the script started was ended")
			}
			s.empty()
		})
	}
}

// Two scripts take turns, first come first served.
func TestTwoScripts(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	s.fifo("gate")
	text := "hasp acquire k || exit; echo $1 >>order; echo >held-$1; read x <gate; echo $1 >>order"
	first := s.script("sh", text, "1")
	s.read("held-1")
	second := s.script("sh", text, "2")
	second.says(`waiting for "k", which has been held .*reason "sh"`)
	s.open("gate")
	first.ends(0)
	s.read("held-2")
	s.open("gate")
	second.ends(0)
	if order := strings.Fields(s.read("order")); strings.Join(order, "") != "1122" {
		t.Errorf("the order is %v", order)
	}
	s.empty()
}

// Whoever is interrupted while it waits, or whose shell is killed, leaves nothing:
// neither a place in the queue nor a process.
func TestAcquireInterrupted(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"end": syscall.SIGTERM, "kill": syscall.SIGKILL} {
		for _, whom := range []string{"shell", "hasp"} {
			t.Run(name+" "+whom, func(t *testing.T) {
				t.Parallel()
				s := onSQLite(t)
				s.fifo("gate")
				s.fifo("other")
				holder := s.hasp("run", "k", "--", "sh", "-c", "echo >held; read x <gate")
				s.read("held")
				p := s.script("sh", `sh -c 'echo $$ >pid; exec hasp acquire --pid '$$' k' & wait $!; echo $? >status; read x <other`)
				pid := number(t, s.read("pid"))
				p.says(`waiting for "k"`)
				if whom == "shell" {
					pid = p.cmd.Process.Pid
				}
				must(t, syscall.Kill(pid, sig))
				if whom == "hasp" {
					want := 128 + int(sig)
					if got := number(t, s.read("status")); got != want {
						t.Errorf("its status is %d, want %d", got, want)
					}
				}
				if err := eventually(func() bool {
					q := s.hasp("ls")
					q.ends(0)
					return strings.Contains(q.out.String(), "  0        sh\n")
				}); err != nil {
					t.Error("it still waits")
				}
				s.open("gate")
				holder.ends(0)
			})
		}
	}
}

func TestAcquireAtATerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "Ctrl-C does not reach whoever renews", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("hasp acquire k && echo got-it")
		sc.expect("^got-it")
		sc.run("counter") // not a shell that forks: within that, a Ctrl-C may be lost
		sc.expect("^count 3")
		sc.send(ctrlC)
		sc.expect("PROMPT>")
		sc.run(`hasp held k; echo "status=$?"`)
		sc.expect("^status=0")
		sc.run("exit")
		s.released("k")
		s.empty()
	})
	onTerminal(t, "a loss does not end a shell at its prompt", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("hasp acquire --ttl " + brief + " k && hasp held --print owner k >owner")
		s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
		sc.expect("LOST .* The shell goes on without the lock")
		sc.run(`hasp held k; echo "status=$?"`)
		sc.expect("^status=124")
	})
	onTerminal(t, "nor one within whose $( … ) the key was acquired", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("got=$(hasp acquire --ttl " + brief + " k && hasp held --print owner k); echo $got >owner")
		s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
		if err := eventually(func() bool {
			p := s.hasp("held", "--pid", strconv.Itoa(sc.pid), "k")
			code, _ := p.wait()
			return code == 124
		}); err != nil {
			t.Fatal(err)
		}
		sc.run(`hasp held k; echo "status=$?"`)
		sc.expect("^status=124")
	})
	onTerminal(t, "Ctrl-C ends the wait, and a loop of the shell", func(t *testing.T, s *sandbox) {
		s.hasp("run", "k", "--", "sh", "-c", "echo >ready; exec sleep 1000")
		s.read("ready")
		sc := s.shell(t)
		sc.run("for i in 1 2 3; do hasp acquire k; done")
		sc.expect("hasp: waiting for")
		sc.send(ctrlC)
		sc.expect("gave up waiting")
		sc.expect("PROMPT>")
		sc.run(`echo "rc=$? i=$i"`)
		sc.expect("rc=130 i=1")
	})
	onTerminal(t, "Ctrl-Z while it waits, and another thought", func(t *testing.T, s *sandbox) {
		s.fifo("gate")
		s.hasp("run", "k", "--", "sh", "-c", "echo >ready; read x <gate")
		s.read("ready")
		sc := s.shell(t)
		sc.run("hasp acquire k")
		sc.expect("waiting for")
		sc.send(ctrlZ)
		sc.expect("Stopped")
		s.open("gate")
		if err := eventually(func() bool { // its turn comes
			names, _ := os.ReadDir(s.sockets())
			return len(names) == 1
		}); err != nil {
			t.Fatal(err)
		}
		sc.run(`kill %1; while jobs | grep -Eq "Stopped|Running"; do sleep 0.05; done; jobs`)
		sc.expect("Exit 143")
		s.released("k")
		sc.run("hasp acquire k && hasp held k && echo mine")
		sc.expect("^mine")
	})
}

// A password is on no command line but the one that had it before.
func TestAcquireKeepsThePassword(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--requirepass", "hunter2")
	s := newSandbox(t, "sqlite:elsewhere.db")
	s.fifo("gate")
	p := s.script("sh", `hasp acquire --store redis://:hunter2@`+server.Addr()+` k || exit; echo >held; read x <gate`)
	s.read("held")
	line, err := os.ReadFile("/proc/" + strconv.Itoa(s.keeper()) + "/cmdline")
	must(t, err)
	if got := strings.ReplaceAll(string(line), "\x00", " "); got != "hasp keeper " {
		t.Errorf("the process in the background is %q", got)
	}
	s.open("gate")
	p.ends(0)
}
