// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// screen is a program at its own terminal.
type screen struct {
	t    *testing.T
	tty  *os.File
	text buffer
	pid  int
	seen int // how much of text earlier expects have used up

	emulator *vt.Emulator // what hasp top draws on
	fed      int          // how much of text it has had
}

// atTerminal starts a program at a terminal, with hasp in its PATH.
func (s *sandbox) atTerminal(t *testing.T, args ...string) *screen {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	bin := t.TempDir()
	for _, name := range []string{"hasp", "counter"} {
		must(t, os.Symlink(self, filepath.Join(bin, name)))
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		t.Skipf("SKIPPED WITHOUT A SHELL: %v", err)
	}
	cmd := &exec.Cmd{Path: path, Args: args, Dir: s.dir,
		Env: append(s.env(), "PATH="+bin+":"+os.Getenv("PATH"), "PS1=PROMPT>", "TERM=dumb", "HISTFILE=")}
	tty, err := pty.Start(cmd)
	must(t, err)
	sc := &screen{t: t, tty: tty, pid: cmd.Process.Pid}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			_, _ = sc.text.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		endSession(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-done // the last who had the terminal is gone
		tty.Close()
	})
	return sc
}

// endSession kills what a test left at its terminal.
func endSession(leader int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, _ := os.ReadFile(name)
		f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if len(f) > 3 && f[3] == strconv.Itoa(leader) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// shell starts an interactive shell.
func (s *sandbox) shell(t *testing.T) *screen {
	t.Helper()
	sc := s.atTerminal(t, "bash", "--norc", "--noediting", "-i")
	sc.expect("PROMPT>")
	return sc
}

func (sc *screen) send(text string) {
	sc.t.Helper()
	if _, err := sc.tty.WriteString(text); err != nil {
		sc.t.Fatal(err)
	}
}

// run types a line into a shell.
func (sc *screen) run(line string) { sc.t.Helper(); sc.send(line + "\n") }

// expect waits for a pattern after what was expected before. A line that was typed before the shell
// showed its prompt has been echoed before that: what it prints then stands right behind the prompt.
func (sc *screen) expect(pattern string) {
	sc.t.Helper()
	if rest, first := strings.CutPrefix(pattern, "^"); first {
		pattern = "^(?:PROMPT>)*" + rest
	}
	re := regexp.MustCompile("(?m)" + pattern)
	err := eventually(func() bool {
		text := sc.text.String()[sc.seen:]
		at := re.FindStringIndex(text)
		if at != nil {
			sc.seen += at[1]
		}
		return at != nil
	})
	if err != nil {
		sc.t.Fatalf("waiting for %q: %v; the terminal shows:\n%s", pattern, err, sc.text.String())
	}
}

const (
	ctrlC = "\x03"
	ctrlQ = "\x11"
	ctrlS = "\x13"
	ctrlZ = "\x1a"
)

func onTerminal(t *testing.T, name string, test func(t *testing.T, s *sandbox)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t, onSQLite(t))
	})
}

func TestReadingTheTerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "alone", func(t *testing.T, s *sandbox) {
		sc := s.atTerminal(t, "sh", "-c", `exec hasp run k -- sh -c 'echo ready; read x; echo "got <$x>"'`)
		sc.expect("ready")
		sc.run("hello")
		sc.expect("got <hello>")
	})
	onTerminal(t, "from the start", func(t *testing.T, s *sandbox) {
		// Who ignores SIGTTIN is not stopped in the background, but gets an error.
		sc := s.atTerminal(t, "sh", "-c", `exec hasp run k -- sh -c 'trap "" TTIN; echo ready; read x; echo "got <$x>"'`)
		sc.expect("ready")
		sc.run("hello")
		sc.expect("got <hello>")
	})
	onTerminal(t, "and the shell has it back", func(t *testing.T, s *sandbox) {
		sc := s.atTerminal(t, "sh", "-c", `hasp run k -- sh -c 'read x; echo "got <$x>"'; echo between; read y; echo "script got <$y>"`)
		sc.run("one")
		sc.expect("got <one>")
		sc.expect("between")
		sc.run("two")
		sc.expect("script got <two>")
	})
	onTerminal(t, "also after an end that left it in a mess", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`sh -c 'hasp run --ttl 20s --grace 100ms k -- sh -c "stty raw -echo; trap : TERM; echo \$HASP_OWNER >owner; while :; do read x <>never; done"; stty -a; read x; echo "got <$x>"'`)
		s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
		sc.expect("was ended by signal 9")
		sc.expect(`[^-]icanon`)
		sc.expect(`[^-]echo `)
		sc.run("fine")
		sc.expect("got <fine>")
	})
	onTerminal(t, "in a pipe before one that reads it", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run k -- counter | sh -c 'read l; echo "page"$((40+2)); read x </dev/tty; echo "pager got <$x>"; touch stop; cat >rest'`)
		sc.expect("page42")
		sc.run("q")
		sc.expect("pager got <q>")
		sc.expect("PROMPT>")
	})
	onTerminal(t, "in a pipe, when the command asks for it", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run k -- sh -c 'echo ask; read x </dev/tty; echo "got <$x>"' | cat`)
		sc.expect("ask\r\n")
		sc.run("secret")
		sc.expect("got <secret>")
		sc.expect("PROMPT>")
		sc.run("echo $((40+2))")
		sc.expect("^42")
	})
}

func TestCtrlC(t *testing.T) {
	t.Parallel()
	onTerminal(t, "the command hears it, once", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run k -- sh -c 'trap "echo told; n=1\$n" INT; echo ready; while test "$n" != 1; do sleep 0.05; done; sleep 0.2; echo "n=$n"; exit 5'; echo rc=$?`)
		sc.expect("^ready")
		sc.send(ctrlC)
		sc.expect("told")
		sc.expect("n=1\r")
		sc.expect("rc=5")
	})
	onTerminal(t, "ends a loop of the shell", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`for i in 1 2 3; do hasp run k -- sh -c 'echo "ready"$((40+2)); exec sleep 1000'; done`)
		sc.expect("ready42")
		sc.send(ctrlC)
		sc.expect("PROMPT>")
		sc.run(`echo "rc=$? i=$i"`)
		sc.expect("rc=130 i=1")
		sc.run("hasp run -n k -- echo free")
		sc.expect("^free")
	})
	for name, loop := range map[string]string{"": "for i in 1 2 3; do %s; done", " whose input is a file": "while read i; do %s; done <list"} {
		onTerminal(t, "ends a script"+name, func(t *testing.T, s *sandbox) {
			sc := s.shell(t)
			sc.run(`printf '1\n2\n3\n' >list; bash -c '` + fmt.Sprintf(loop, `hasp run k -- sh -c "echo ready\$((40+2)); exec sleep 1000"; echo survived$((40+2))`) + `'`)
			sc.expect("ready42")
			sc.send(ctrlC)
			sc.expect("PROMPT>")
			sc.run("echo rc=$?")
			sc.expect("rc=130")
			if strings.Contains(sc.text.String(), "survived42") {
				t.Errorf("the script went on:\n%s", sc.text.String())
			}
		})
	}
	onTerminal(t, "while it waits", func(t *testing.T, s *sandbox) {
		s.hasp("run", "k", "--", "sh", "-c", "echo >ready; exec sleep 1000")
		s.read("ready")
		sc := s.shell(t)
		sc.run(`for i in 1 2 3; do hasp run k -- true; done`)
		sc.expect("hasp: waiting for")
		sc.send(ctrlC)
		sc.expect("gave up waiting")
		sc.expect("PROMPT>")
		sc.run(`echo "rc=$? i=$i"`)
		sc.expect("rc=130 i=1")
		sc.run(`hasp show k | grep -c waiting`)
		sc.expect("^0")
	})
}

func TestCtrlZ(t *testing.T) {
	t.Parallel()
	onTerminal(t, "stops both, fg continues both", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("hasp run k -- counter")
		sc.expect("count 3\r")
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.expect("PROMPT>")
		sc.run("jobs; echo $((40+2))")
		sc.expect("Stopped .*hasp run")
		sc.expect("^42")
		sc.run("fg")
		sc.expect(`count \d+\r\ncount`)
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.expect("PROMPT>")
		sc.run("touch stop; fg")
		sc.expect("exited with status 6")
	})
	onTerminal(t, "bg, and the terminal after fg", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run k -- sh -c 'echo "ready"$((40+2)); read x; echo "got <$x>"'`)
		sc.expect("ready42")
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.run("bg")
		sc.expect("PROMPT>")
		sc.run("while jobs | grep -q Running; do sleep 0.05; done; jobs") // it reads in the background, so it stops again
		sc.expect("Stopped")
		sc.run("fg")
		sc.expect("hasp run")
		sc.run("line")
		sc.expect("got <line>")
		sc.expect("PROMPT>")
	})
	onTerminal(t, "a background job that wants to read", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp run k -- sh -c 'read x; echo "got <$x>"' &`)
		sc.expect("PROMPT>")
		sc.run("while jobs | grep -q Running; do sleep 0.05; done; jobs")
		sc.expect("Stopped")
		sc.expect("PROMPT>")
		sc.run("fg")
		sc.expect("hasp run")
		sc.run("line")
		sc.expect("got <line>")
	})
}

// ticks makes a fifo with a line every now and then, for a command that counts them: it
// starts no processes, like counter.
func (s *sandbox) ticks(name string) {
	s.t.Helper()
	s.fifo(name)
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_RDWR, 0)
	must(s.t, err)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if _, err := f.WriteString("\n"); err != nil { // it was closed
					return
				}
			case <-stop:
				return
			}
		}
	}()
	s.t.Cleanup(func() { close(stop); _ = f.Close(); <-stopped })
}

func TestStoppedAtTheTerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "too long", func(t *testing.T, s *sandbox) {
		// A shell ends by SIGTERM as soon as it goes on. A counter would not: while one
		// thread of a program in Go handles the signal, another may count.
		s.ticks("ticks")
		sc := s.shell(t)
		sc.run("hasp run --ttl " + ttl + ` k -- sh -c 'while read x; do echo "count $((i += 1))"; done <ticks'`)
		for stopped := false; !stopped; {
			sc.expect(`count \d+\r`)
			sc.send(ctrlZ)
			sc.expect("Stopped")
			sc.expect("PROMPT>")
			if stopped = !s.busy(); !stopped {
				sc.run("fg")
			}
		}
		s.exits(0, "run", "k", "--", "true")
		at := sc.seen
		sc.run("fg")
		sc.expect("LOST")
		if text := sc.text.String()[at:sc.seen]; regexp.MustCompile(`count \d`).MatchString(text) {
			t.Errorf("the command went on before it was told:\n%s", text)
		}
		sc.expect("PROMPT>")
		sc.run("echo rc=$?")
		sc.expect("rc=124")
	})
	onTerminal(t, "while it waits", func(t *testing.T, s *sandbox) {
		s.fifo("gate")
		s.hasp("run", "k", "--", "sh", "-c", "echo >ready; read x <gate")
		s.read("ready")
		sc := s.shell(t)
		sc.run(`hasp run k -- echo mine; echo "rc=$?"`)
		sc.expect("hasp: waiting for")
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.run("fg")
		s.open("gate")
		sc.expect("^mine")
	})
}

// A candidate runs commands one after another.
func TestElectAtTheTerminal(t *testing.T) {
	t.Parallel()
	onTerminal(t, "Ctrl-C ends the candidacy", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`for i in 1 2 3; do hasp elect k -- sh -c 'echo "ready"$((40+2)); exec sleep 1000'; done`)
		sc.expect("ready42")
		sc.send(ctrlC)
		sc.expect("PROMPT>")
		sc.run(`echo "rc=$? i=$i"`)
		sc.expect("rc=130 i=1")
	})
	onTerminal(t, "Ctrl-C, and a command that ends well", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp elect k -- sh -c 'trap "exit 5" INT; echo "ready"$((40+2)); while :; do sleep 0.05; done'; echo rc=$?`)
		sc.expect("ready42")
		sc.send(ctrlC)
		sc.expect("rc=5")
	})
	onTerminal(t, "each command can read it", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run(`hasp elect k -- sh -c '{ grep SigIgn /proc/self/status || echo; } >>ignored; echo "ask"$((40+2)); read x; echo "got <$x>"'`)
		for _, word := range []string{"one", "two"} {
			sc.expect("ask42")
			sc.run(word)
			sc.expect("got <" + word + ">")
			sc.expect("a candidate again in")
		}
		sc.expect("ask42")
		sc.send(ctrlC)
		sc.expect("PROMPT>")
		sc.run("echo rc=$?")
		sc.expect("rc=130")
		if masks := strings.Fields(s.read("ignored")); len(masks) > 3 && masks[1] != masks[3] {
			t.Errorf("the second command ignores other signals than the first: %v", masks)
		}
	})
	onTerminal(t, "Ctrl-Z while it runs nothing", func(t *testing.T, s *sandbox) {
		s.fifo("gate")
		sc := s.shell(t)
		sc.run(`hasp elect k -- sh -c 'echo "ready"$((40+2)); read x <gate'`)
		sc.expect("ready42")
		holder := s.hasp("run", "k", "--", "sh", "-c", "echo >ready; exec sleep 1000")
		holder.says("waiting for")
		s.open("gate") // the other one is next
		s.read("ready")
		sc.expect("waiting for")
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.expect("PROMPT>")
		sc.run("fg")
		sc.expect("hasp elect")
		sc.send(ctrlC)
		sc.expect("gave up waiting")
		sc.expect("PROMPT>")
	})
	onTerminal(t, "HUP while it runs nothing", func(t *testing.T, s *sandbox) {
		s.hasp("run", "k", "--", "sh", "-c", "echo >ready; exec sleep 1000")
		s.read("ready")
		sc := s.shell(t)
		sc.run(`hasp elect k -- true & sleep 0; echo`)
		sc.expect("waiting for")
		sc.run(`kill -HUP %1; wait %1; echo "rc=$?"`)
		sc.expect("rc=129")
	})
}

// A shell within hasp, with its own jobs, and a hasp within that.
func TestShellWithin(t *testing.T) {
	t.Parallel()
	onTerminal(t, "has job control", func(t *testing.T, s *sandbox) {
		sc := s.shell(t)
		sc.run("hasp run k -- env PS1=INNER bash --norc --noediting -i")
		sc.expect("^INNER")
		sc.run("counter")
		sc.expect(`count \d+\r\ncount`)
		sc.send(ctrlZ)
		sc.expect("Stopped")
		sc.expect("INNER")
		sc.run("hasp run other -- counter")
		sc.expect(`count \d+\r\ncount`)
		sc.send(ctrlC)
		sc.expect("INNER")
		sc.run("fg")
		sc.expect(`count \d+\r\ncount`)
		sc.send(ctrlC)
		sc.expect("INNER")
		sc.run("exit 3")
		sc.expect("exited with status 3")
		sc.expect("PROMPT>")
		sc.run("read x")
		sc.run("line")
		sc.expect("PROMPT>")
		sc.run(`echo "got <$x>"`)
		sc.expect("got <line>")
	})
}

func TestBreakAsks(t *testing.T) {
	t.Parallel()
	onTerminal(t, "for the key", func(t *testing.T, s *sandbox) {
		p := s.hasp("run", "the key", "--", "sh", "-c", "echo $HASP_OWNER >owner; exec sleep 1000")
		owner := s.read("owner")
		sc := s.shell(t)
		sc.run("hasp break 'the key' --owner " + owner + `; echo "rc=$?"`)
		sc.expect(`this takes "the key" from .*`)
		sc.expect(`To do it, type the key \(the key\): `)
		sc.run("yes")
		sc.expect("that is not the key: nothing was done")
		sc.expect("rc=64")
		sc.run("hasp break 'the key' --owner " + owner + `; echo "rc=$?"`)
		sc.expect(`type the key`)
		sc.run("the key")
		sc.expect(`broke "the key"`)
		sc.expect("rc=0")
		p.ends(124)
	})
}

func TestLeaksAsks(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	grant := "hasp.grant:{lock:x}"
	must(t, rdb.Set(t.Context(), grant, "x", 0).Err())
	sc := s.atTerminal(t, "sh", "-i")
	sc.expect("PROMPT>")
	sc.run("hasp leaks --fix; echo $?.")
	sc.expect(`sidecar +"x" .*to be removed`)
	sc.expect("To remove 1 leak, type yes: ")
	sc.send("y\n")
	sc.expect(`nothing was done`)
	sc.expect(`64\.`)
	if left := rdb.PTTL(t.Context(), grant).Val(); left != -1 {
		t.Errorf("without a yes its expiry is %v", left)
	}
	sc.run("hasp leaks --fix -o json; echo $?.")
	sc.expect("To remove 1 leak, type yes: ")
	sc.send("yes\n")
	sc.expect(`"result":"expires"`)
	sc.expect(`\n0\.`)
}
