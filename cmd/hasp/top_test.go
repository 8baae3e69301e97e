// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/hasplock/hasp/internal/testserver"
)

const (
	topEntered = `\x1b\[\?1049h`
	topLeft    = `\x1b\[\?1049l`
)

// top starts hasp top at a shell's terminal, and waits for its first list.
func (s *sandbox) top(t *testing.T, command string) *screen {
	t.Helper()
	sc := s.atTerminal(t, "bash", "--norc", "--noediting", "-i")
	sc.resize(24, 80)
	sc.expect("PROMPT>")
	sc.run("TERM=xterm " + command)
	sc.expect(topEntered)
	return sc
}

// resize changes the size of the terminal.
func (sc *screen) resize(rows, columns uint16) {
	sc.t.Helper()
	if sc.emulator == nil {
		e := vt.NewEmulator(int(columns), int(rows))
		go func() { _, _ = io.Copy(io.Discard, e) }() // what it answers
		sc.t.Cleanup(func() {
			// Close races with what reads the answers.
			if answers, ok := e.InputPipe().(io.Closer); ok {
				_ = answers.Close()
			}
		})
		sc.emulator = e
	}
	sc.shown() // of before
	sc.emulator.Resize(int(columns), int(rows))
	must(sc.t, pty.Setsize(sc.tty, &pty.Winsize{Rows: rows, Cols: columns}))
}

// shown is what the terminal shows, each style as its sequence.
func (sc *screen) shown() string {
	text := sc.text.String()
	_, _ = sc.emulator.WriteString(text[sc.fed:])
	sc.fed = len(text)
	return sc.emulator.Render()
}

// shows waits until the terminal shows a pattern, and returns what it shows.
func (sc *screen) shows(pattern string) (text string) {
	sc.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	if err := eventually(func() bool { text = sc.shown(); return re.MatchString(text) }); err != nil {
		sc.t.Fatalf("waiting for %q: %v; the terminal shows:\n%s\n%q", pattern, err, text, sc.text.String())
	}
	sc.seen = len(sc.text.String())
	return text
}

// restored expects the shell's prompt on a terminal as it was: bash, without its own editing,
// leaves it as hasp did.
func (sc *screen) restored(rc string) {
	sc.t.Helper()
	sc.expect("PROMPT>")
	sc.run(`echo "rc=$?"; stty -a`)
	sc.expect("^rc=" + rc)
	sc.expect(`[^-]icanon`)
	sc.expect(`[^-]echo `)
	sc.expect("PROMPT>")
}

// hold starts a hasp that holds a key, and returns it and its owner.
func (s *sandbox) hold(file, key string, flags ...string) (*proc, string) {
	s.t.Helper()
	p := s.hasp(append(append([]string{"run"}, flags...), key, "--", "sh", "-c", "echo $HASP_OWNER >"+file+"; exec sleep 1000")...)
	return p, s.read(file)
}

func TestTop(t *testing.T) {
	t.Parallel()
	onTerminal(t, "sort, filter, look, break, quit", func(t *testing.T, s *sandbox) {
		p, owner := s.hold("owner", "orders/1", "--reason", "why not")
		s.hold("other", "the key")
		waiter := s.hasp("run", "orders/1", "--", "sh", "-c", "echo >mine; exec sleep 1000")
		waiter.says("waiting for")
		sc := s.top(t, "hasp top --every 0.2 --audit audit")
		sc.shows(`\x1b\[7m> orders/1 +\S+ \(pid .* +\S+ +\S+ +1 +\d\S+ +why not *\x1b\[m`)
		sc.send("/the")
		sc.shows(`1 of 2 like the`)
		sc.shows(`> the key +\S+ \(pid`)
		sc.send("\r\x1b")
		sc.shows(`sorted by waiters`)
		sc.send("s")
		sc.shows(`sorted by key`)
		sc.send("/ord*\r\r")
		sc.shows(`owner ` + owner)
		sc.shows(`reason "why not"`)
		sc.shows(`1 waiter, first come, first served`)
		sc.send("\x1b[B") // the waiter
		sc.shows(`\x1b\[7m>\x20 1\. waits|\x1b\[7m> 1\. waits`)
		sc.send("\x1b[A")
		sc.send("b")
		sc.shows(`this takes "orders/1" from .*`)
		sc.shows(`reason \(may be empty\): `)
		sc.send("stuck\rn")
		sc.shows(`nothing was broken`)
		sc.send("b")
		sc.shows(`reason \(may be empty\): `)
		sc.send("stuck since noon\r")
		sc.shows(`Break it\? y/N`)
		sc.send("y")
		sc.shows(`broke "orders/1": taken from`)
		p.ends(124)
		s.read("mine")
		sc.send("q")
		sc.expect(topLeft)
		sc.restored("0")
		rs := s.records("audit")
		if len(rs) != 2 || rs[0]["outcome"] != "begun" || rs[1]["outcome"] != "done" || rs[0]["id"] != rs[1]["id"] || rs[1]["owner"] != owner ||
			rs[1]["reason"] != "stuck since noon" || rs[1]["via"] != "hasp top" || rs[1]["key"] != "orders/1" || rs[1]["fence"] == nil {
			t.Errorf("the records are %v", rs)
		}
	})
	onTerminal(t, "what cannot be recorded is not broken", func(t *testing.T, s *sandbox) {
		_, owner := s.hold("owner", "k")
		sc := s.top(t, "hasp top --audit audit")
		sc.shows(`> k +\S+ \(pid`)
		must(t, os.Remove(filepath.Join(s.dir, "audit")))
		must(t, os.Mkdir(filepath.Join(s.dir, "audit"), 0o700))
		sc.send("b")
		sc.shows(`reason`)
		sc.send("\r")
		sc.shows(`Break it`)
		sc.send("y")
		sc.shows(`nothing was done: the audit record cannot be written`)
		sc.send(" q")
		sc.restored("0")
		s.exits(0, "break", "k", "--owner", owner, "--yes") // it still has the key
	})
	onTerminal(t, "read-only, without colours", func(t *testing.T, s *sandbox) {
		s.hold("owner", "k")
		sc := s.top(t, "NO_COLOR=1 hasp top --read-only")
		sc.shows(`^> k +\S+ \(pid`)
		sc.send("b")
		sc.shows("nothing can be broken: --read-only")
		sc.send("q")
		sc.restored("0")
		if m := regexp.MustCompile(`\x1b\[\d*m`).FindString(sc.text.String()); m != "" {
			t.Errorf("there is %q", m)
		}
	})
	onTerminal(t, "its size, and a change of it", func(t *testing.T, s *sandbox) {
		for _, key := range []string{"a", "b", "c"} {
			s.hold("owner."+key, key)
		}
		sc := s.top(t, "hasp top")
		sc.shows(`^  c +\S+ \(pid`)
		sc.resize(4, 30)
		sc.shows(`> a [^\n]*\n  b [^\n]*\n\? help`)
		sc.send("G")
		sc.shows(`  b [^\n]*\n\x1b\[7m> c `)
		sc.resize(1, 1)
		sc.shows(`\A\x1b\[7m(…|~)\x1b\[m\z`)
		sc.resize(24, 80) // stty's lines depend on it
		sc.send("q")
		sc.restored("0")
	})
	onTerminal(t, "hostile text", func(t *testing.T, s *sandbox) {
		s.hold("owner", "k\x1b]0;t\a\u009b31m\x7f\u202e\u2066\U000e0041丛e\u0301\n\xff", "--reason", hostileText)
		sc := s.top(t, "hasp top")
		sc.shows(`> k\\x1b\]0;t`)
		sc.send("\r")
		sc.shows(`reason "ERR`)
		sc.send("b")
		sc.shows(`this takes`)
		sc.send("\x1b[200~by\rq\x1b[201~") // is text for the reason
		sc.shows(`: byq_`)
		sc.send("\x1b")
		sc.shows(`nothing was broken`)
		sc.send("q")
		sc.expect(topLeft)
		text := regexp.MustCompile(`\x1b\[[\d;?><=$]*[A-Za-z]|[\r\x08\t]|\x1bM`).ReplaceAllString(sc.text.String(), "")
		harmless(t, "hasp top", text)
	})
}

// records are those of an audit file.
func (s *sandbox) records(name string) (rs []map[string]any) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	must(s.t, err)
	for line := range strings.Lines(string(text)) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		rs = append(rs, r)
	}
	return rs
}

// However it ends, the terminal is as it was.
func TestTopLeavesTheTerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "by Ctrl-C", func(t *testing.T, s *sandbox) {
		sc := s.top(t, "hasp top")
		sc.send(ctrlC)
		sc.expect(topLeft)
		sc.restored("130")
	})
	onTerminal(t, "by TERM", func(t *testing.T, s *sandbox) {
		sc := s.top(t, `sh -c 'echo $$ >pid; exec hasp top --every 0.2'`)
		must(t, syscall.Kill(number(t, s.read("pid")), syscall.SIGTERM))
		sc.expect(topLeft)
		sc.restored("143")
	})
	onTerminal(t, "by TERM after Ctrl-S", func(t *testing.T, s *sandbox) {
		sc := s.top(t, `sh -c 'echo $$ >pid; exec hasp top --every 0.2'`)
		sc.send(ctrlS + "?")
		sc.shows(`any key: back`) // top has read both: Ctrl-S is a key like any, and nothing is left to the shell
		must(t, syscall.Kill(number(t, s.read("pid")), syscall.SIGTERM))
		sc.expect(topLeft)
		sc.restored("143")
	})
	onTerminal(t, "by Ctrl-Z, until fg", func(t *testing.T, s *sandbox) {
		s.hold("owner", "k")
		sc := s.top(t, "hasp top")
		sc.shows(`> k `)
		sc.send(ctrlZ)
		sc.expect(topLeft)
		sc.expect("Stopped")
		sc.restored(`\d+`)
		sc.run("bg; sleep 0; while jobs | grep -q Running; do sleep 0.05; done; jobs")
		sc.expect("Stopped .*hasp top")
		sc.expect("PROMPT>")
		sc.run("fg")
		sc.expect(topEntered)
		sc.send("\r")
		sc.shows(`owner`)
		sc.send("q")
		sc.expect(topLeft)
		sc.restored("0")
	})
	onTerminal(t, "by kill while it is stopped", func(t *testing.T, s *sandbox) {
		sc := s.top(t, "hasp top")
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.run("kill %1; while jobs | grep -q Stopped; do sleep 0.05; done")
		sc.expect("Terminated")
		sc.restored(`\d+`)
	})
	onTerminal(t, "when that is gone, and HUP is ignored", func(t *testing.T, s *sandbox) {
		sc := s.top(t, `sh -c 'trap "" HUP; echo $$ >pid; exec hasp top'`)
		sc.shows(`sorted by waiters`)
		pid := number(t, s.read("pid"))
		must(t, syscall.Kill(sc.pid, syscall.SIGKILL)) // the shell would end it
		_ = sc.tty.Close()
		if err := eventually(func() bool { return !alive(pid) }); err != nil {
			t.Error(err)
		}
	})
	onTerminal(t, "in the background until fg", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("TERM=xterm hasp top &")
		sc.run("while jobs | grep -q Running; do sleep 0.05; done; jobs")
		sc.expect("Stopped .*hasp top")
		sc.expect("PROMPT>")
		sc.run("fg")
		sc.expect(topEntered)
		sc.send("q")
		sc.restored("0")
	})
}

// A store that goes away leaves the latest list on the screen, and is asked again.
func TestTopWithoutItsStore(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	s.hold("owner", "k")
	sc := s.top(t, "hasp top --every 0.2")
	sc.shows(`> k +\S+ \(pid`)
	server.Kill()
	sc.shows(`no answer for \d.*: the store redis:.* cannot be reached`)
	sc.shows(`(?s)\(\d+s old\).*> k +\S+ \(pid`)
	sc.send("b")
	sc.shows(`^the store redis:.* cannot be reached`)
	sc.shows(`any key: back`) // until then no key is read for it
	sc.send(" ")
	server.Restart()
	sc.shows(`sorted by waiters`)
	sc.send("q")
	sc.restored("0")
}

func TestTopNeedsATerminal(t *testing.T) {
	t.Parallel()
	s := newSandbox(t, "sqlite:locks.db")
	matches(t, s.exits(64, "top"), `needs a terminal .*: use hasp ls`)
	matches(t, s.exits(64, "ls", "--watch=10s"), `unknown flag: --watch: hasp top shows the keys live`)
	matches(t, s.exits(64, "watch"), `hasp top shows the keys live`)
	matches(t, s.exits(64, "top", "--every", "0"), `--every 0s is too often: at least 100ms`)
	onTerminal(t, "that can be drawn on", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("hasp top") // TERM=dumb
		sc.expect("hasp top needs a terminal that it can draw on.*hasp ls")
		sc.restored("64")
		sc.run("TERM=xterm hasp top <&-")
		sc.expect("needs a terminal")
		sc.run("TERM=xterm hasp top --audit no/such/file")
		sc.expect("the audit record cannot be written to .*no such file or directory")
		sc.restored("78")
		sc.run("TERM=xterm hasp top --store redis://nobody:x@" + testserver.Redis(t).Addr())
		sc.expect("refused the login")
		sc.restored("77")
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
		for _, command := range []string{"ls", "ls -o json", "show \"$(printf '\\344\\270\\233]0;x')\"", "top"} {
			at := sc.seen
			sc.run(`LC_ALL=C TERM=xterm hasp ` + command)
			sc.expect(`\\u4e1b\]0;x`)
			if command == "top" {
				sc.send("q")
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
