// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/hasplock/hasp/internal/testserver"
)

const (
	entered = `\x1b\[\?1049h\x1b\[\?25l`
	left    = `\x1b\[\?7h\x1b\[\?25h\x1b\[\?1049l`
)

// watcher starts hasp ls --watch at a shell's terminal of that size.
func (s *sandbox) watcher(t *testing.T, rows, columns uint16) *screen {
	t.Helper()
	sc := s.atTerminal(t, "bash", "--norc", "--noediting", "-i")
	must(t, pty.Setsize(sc.tty, &pty.Winsize{Rows: rows, Cols: columns}))
	sc.expect("PROMPT>")
	sc.run("TERM=xterm hasp ls --watch=0.2")
	return sc
}

func TestWatchAtTheTerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "frames until Ctrl-C", func(t *testing.T, s *sandbox) {
		sc := s.watcher(t, 24, 100)
		sc.expect(entered + `\x1b\[\?7l\x1b\[H\x1b\[K\d.* 0 keys held or waited for in sqlite:`)
		p := s.hasp("run", "the key", "--", "sh", "-c", "echo >ready; exec sleep 1000")
		s.read("ready")
		sc.expect(`1 key held`)
		sc.expect(`^\x1b\[KKEY +MODE +HOLDER`)
		sc.expect(`^\x1b\[Kthe key +exclusive`)
		p.signal(syscall.SIGTERM)
		sc.expect(`0 keys held`)
		sc.send(ctrlC)
		sc.expect(left)
		sc.expect("PROMPT>")
		sc.run("echo rc=$?")
		sc.expect("rc=130")
		if n := strings.Count(sc.text.String(), "\x1b[?1049h"); n != 1 {
			t.Errorf("the terminal was taken %d times", n)
		}
	})
	onTerminal(t, "its size, and a change of it", func(t *testing.T, s *sandbox) {
		for _, key := range []string{"a", "b", "c"} {
			s.hasp("run", key, "--", "sh", "-c", "echo >ready."+key+"; exec sleep 1000")
			s.read("ready." + key)
		}
		sc := s.watcher(t, 3, 12)
		sc.expect(`\x1b\[H\x1b\[K\d[\d-]{9} …\r+\n\x1b\[KKEY  MODE  …\r+\n\x1b\[K… and 3 more\x1b\[\?7h`)
		must(t, pty.Setsize(sc.tty, &pty.Winsize{Rows: 1, Cols: 1}))
		sc.expect(`\x1b\[H\x1b\[K…\x1b\[\?7h`)
		must(t, pty.Setsize(sc.tty, &pty.Winsize{Rows: 5, Cols: 200}))
		sc.expect(`\r+\n\x1b\[Kc +exclusive[^…]*\x1b\[\?7h`)
		sc.send(ctrlC)
		sc.expect(left)
	})
	onTerminal(t, "Ctrl-Z, bg, fg", func(t *testing.T, s *sandbox) {
		sc := s.watcher(t, 24, 100)
		sc.expect(entered)
		sc.send(ctrlZ)
		sc.expect(left)
		sc.expect("Stopped")
		sc.expect("PROMPT>")
		sc.run("bg; sleep 0; while jobs | grep -q Running; do sleep 0.05; done; jobs")
		sc.expect("Stopped .*hasp ls")
		sc.expect("PROMPT>")
		sc.run("fg")
		sc.expect(entered)
		sc.send(ctrlC)
		sc.expect(left)
		sc.expect("PROMPT>")
	})
	onTerminal(t, "TERM, also after Ctrl-S", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`TERM=xterm sh -c 'echo $$ >pid; exec hasp ls --watch=0.2'; echo "rc=$?"`)
		sc.expect(entered)
		sc.send(ctrlS)
		pid := number(t, s.read("pid"))
		must(t, syscall.Kill(pid, syscall.SIGTERM))
		if err := eventually(func() bool { return !alive(pid) }); err != nil {
			t.Error(err)
		}
		sc.send(ctrlQ)
		sc.expect("rc=143")
	})
	onTerminal(t, "one that cannot be drawn on", func(t *testing.T, s *sandbox) {
		sc := s.shell(t) // TERM=dumb
		sc.run("hasp ls --watch=0.2")
		sc.expect(` 0 keys held or waited for in .*\r\n\r\n\d`)
		sc.send(ctrlC)
		sc.expect("PROMPT>")
		if strings.Contains(sc.text.String(), "\x1b[") {
			t.Errorf("it got: %q", sc.text.String())
		}
	})
}

// Where standard output is no terminal there is a block for each list, and the
// store may go away and come back.
func TestWatchInBlocks(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	holder := s.hasp("run", "orders/1", "--", "sh", "-c", "echo >ready; exec sleep 1000")
	s.read("ready")
	p := s.hasp("ls", "--watch=0.1", "orders/")
	shows := func(pattern string) {
		t.Helper()
		seen, re := len(p.out.String()), regexp.MustCompile("(?m)"+pattern)
		if err := eventually(func() bool { return re.MatchString(p.out.String()[seen:]) }); err != nil {
			t.Fatalf("waiting for %q: %v; it wrote:\n%s", pattern, err, p.out.String())
		}
	}
	shows(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*  1 key held or waited for in redis:.*, starting with "orders/"\nKEY .*\norders/1 .*\n\n\d`)
	server.Kill()
	shows(`  no answer for \d.*: the store redis:.* cannot be reached: .*refused.*; asking again\n\n`)
	_ = holder.cmd.Process.Kill()
	server.Restart()
	shows(` 0 keys held`)
	p.signal(syscall.SIGINT)
	p.ends(130)
	if p.err.String() != "" {
		t.Errorf("it said: %s", p.err.String())
	}
}

func TestWatchEnds(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, "sqlite:locks.db")
	matches(t, s.exits(64, "ls", "--watch=0"), `--watch=0s is too often: at least 100ms`)
	matches(t, s.exits(64, "ls", "--watch", "-o", "json"), `--watch is for people`)
	t.Run("the reader is gone", func(t *testing.T) {
		r, w, err := os.Pipe()
		must(t, err)
		p := s.haspWith(func(cmd *exec.Cmd) { cmd.Stdout = w }, "ls", "--watch=0.1")
		w.Close()
		r.Close()
		var end *exec.ExitError
		if _, err := p.wait(); !errors.As(err, &end) || end.Sys().(syscall.WaitStatus).Signal() != syscall.SIGPIPE {
			t.Errorf("it ended with %v", err)
		}
	})
	t.Run("a full disk", func(t *testing.T) {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("SKIPPED WITHOUT /dev/full: %v", err)
		}
		defer full.Close()
		s.haspWith(func(cmd *exec.Cmd) { cmd.Stdout = full }, "ls", "--watch=0.1").ends(125)
	})
	t.Run("the store does not allow it", func(t *testing.T) {
		s := newSandbox(t, "redis://nobody:secret@"+testserver.Redis(t).Addr())
		s.exits(77, "ls", "--watch")
	})
}

// At a terminal that does not know UTF-8 the second byte of a character may begin
// what it acts on.
func TestTerminalWithoutUTF8(t *testing.T) {
	t.Parallel()
	onTerminal(t, "C", func(t *testing.T, s *sandbox) {
		s.hasp("run", "--reason", "\u4e1b31m", "\u4e1b]0;x", "--", "sh", "-c", "echo >ready; exec sleep 1000")
		s.read("ready")
		sc := s.shell(t)
		for _, command := range []string{"ls", "ls -o json", "show \"$(printf '\\344\\270\\233]0;x')\"", "ls --watch"} {
			at := sc.seen
			sc.run(`LC_ALL=C hasp ` + command)
			sc.expect(`\\u4e1b\]0;x`)
			if command == "ls --watch" {
				sc.send(ctrlC)
			}
			sc.expect("PROMPT>")
			if text := sc.text.String()[at:sc.seen]; strings.Contains(text, "\x9b") {
				t.Errorf("%s says %q", command, text)
			}
			sc.run(`LC_ALL=C.UTF-8 hasp ls`)
			sc.expect("\u4e1b\\]0;x")
			sc.expect("PROMPT>")
		}
	})
}
