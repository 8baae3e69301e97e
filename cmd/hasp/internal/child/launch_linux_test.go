// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package child

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func forAnHour() time.Duration { return time.Hour }

// A command whose lease has ended when it would begin does not begin, also when
// that is so only after the last question.
func TestLateCommandDoesNotBegin(t *testing.T) {
	for _, left := range []time.Duration{0, 1} {
		dir := t.TempDir()
		s := shell(`echo >"$1/ran"`, dir)
		asked := 0
		s.Left = func() time.Duration { asked++; return left }
		if st, err := Run(s); !errors.Is(err, ErrLate) || asked != 1 {
			t.Errorf("%v left: %+v, %v after %d questions", left, st, err, asked)
		}
		if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
			t.Errorf("%v left: the command ran", left)
		}
	}
}

// What a command sees of itself is the same, whether it was made at once or by
// way of a look at the clock.
func TestCommandIsWhatItWasToBe(t *testing.T) {
	given, err := os.Open(os.DevNull)
	must(t, err)
	defer given.Close()
	if _, err := unix.FcntlInt(given.Fd(), unix.F_SETFD, 0); err != nil { // inherited
		t.Fatal(err)
	}
	see := func(left func() time.Duration) string {
		out := filepath.Join(t.TempDir(), "out")
		s := Spec{Path: "/bin/sh", Argv: []string{"its name", "-c", `exec >"$1"
			echo "$0"; tr '\0' '|' </proc/$$/cmdline; readlink /proc/$$/exe; env; ulimit -n
			grep -E '^(Name|PPid)' /proc/$$/status; grep -E '^Sig(Blk|Ign)' /proc/self/status; ls -l /proc/$$/fd`, "arg zero", out},
			Env: []string{"A=1", "PATH=" + os.Getenv("PATH"), "B=a=b"}, Left: left}
		if st, err := Run(s); err != nil || st.Exit() != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		text, err := os.ReadFile(out)
		must(t, err)
		text = regexp.MustCompile(`(?m)^[l-][rwx-]{9}.* (\d+ ->)`).ReplaceAll(text, []byte("$1")) // no times
		return strings.ReplaceAll(string(text), out, "OUT")
	}
	direct, looked := see(nil), see(forAnHour)
	if direct != looked || !strings.Contains(direct, strconv.Itoa(int(given.Fd()))+" -> /dev/null") {
		t.Errorf("at once:\n%s\nby way of a look at the clock:\n%s", direct, looked)
	}
}

// The reason why a command cannot be executed is reported as if it were started at once.
func TestCommandThatCannotBegin(t *testing.T) {
	dir := t.TempDir()
	text, noProgram := filepath.Join(dir, "text"), filepath.Join(dir, "no-program")
	for name, mode := range map[string]os.FileMode{text: 0o600, noProgram: 0o700} {
		must(t, os.WriteFile(name, []byte("text"), mode))
	}
	for path, want := range map[string]error{
		"/no/such/program": syscall.ENOENT, text: syscall.EACCES, dir: syscall.EACCES, noProgram: syscall.ENOEXEC,
	} {
		if st, err := Run(Spec{Path: path, Argv: []string{"x"}, Left: forAnHour}); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v, want %v", path, st, err, want)
		}
	}
	long := shell("true", strings.Repeat("x", 200_000)) // one argument may have 128 KiB
	long.Left = forAnHour
	if st, err := Run(long); !errors.Is(err, syscall.E2BIG) {
		t.Errorf("a long argument: %+v, %v", st, err)
	}
}

// A command that was not reaped is alive, whatever /proc shows.
func TestInvisibleCommandIsSignalled(t *testing.T) {
	p, err := start(shell("exec sleep 1000"), -1)
	must(t, err)
	procfs = t.TempDir() // in which it is not seen
	defer func() { procfs = "/proc" }()
	must(t, os.Symlink("/proc/self", filepath.Join(procfs, strconv.Itoa(os.Getpid()))))
	if p.visible() != nil {
		t.Fatalf("it is seen: %v", p.visible())
	}
	if m := p.members(); len(m) != 1 || m[0].pid != p.pid || !m[0].inGroup || p.dead() {
		t.Errorf("members %v, dead %v", m, p.dead())
	}
	if !p.signalAll(syscall.SIGKILL) {
		t.Error("nobody was there to be signalled")
	}
	if c := <-p.changes; c.Signal() != syscall.SIGKILL {
		t.Errorf("it ended as %+v", statusOf(c.WaitStatus))
	}
	if m := p.members(); len(m) != 0 || !p.dead() {
		t.Errorf("after its end: members %v, dead %v", m, p.dead())
	}
}

// The command's group does not wait until /proc has been read.
func TestGroupIsSignalledAtOnce(t *testing.T) {
	p, err := start(shell("exec sleep 1000"), -1)
	must(t, err)
	procfs = filepath.Join(t.TempDir(), "pipe") // it opens once this test opens it, too
	defer func() { procfs = "/proc" }()
	must(t, syscall.Mkfifo(procfs, 0o600))
	found := make(chan bool)
	go func() { found <- p.signalAll(syscall.SIGTERM) }()
	if c := <-p.changes; c.Signal() != syscall.SIGTERM {
		t.Errorf("it ended as %+v", statusOf(c.WaitStatus))
	}
	f, err := os.OpenFile(procfs, os.O_WRONLY, 0)
	must(t, err)
	must(t, f.Close())
	if !<-found {
		t.Error("no process was there to be signalled")
	}
}

// A stop that was followed by a CONT has no effect when it is received.
func TestStopOfThePast(t *testing.T) {
	p, err := start(shell("kill -STOP $$; exec sleep 1000"), -1)
	must(t, err)
	defer func() { p.signalAll(syscall.SIGKILL); <-p.changes }()
	c := <-p.changes
	if !c.Stopped() || p.since(c) {
		t.Errorf("the stop: %#x, followed by a word %v", c.WaitStatus, p.since(c))
	}
	p.goOn()
	if !p.since(c) {
		t.Error("the word to go on is not known")
	}
}

// A process that ends before it becomes the command is none that ran and failed.
func TestStarterThatEnds(t *testing.T) {
	defer func(was string) { self = was }(self)
	for program, how := range map[string]string{"/bin/false": "with status 1", "/bin/true": "with status 0"} {
		self = program
		s := shell("exit 3")
		s.Left = forAnHour
		if st, err := Run(s); !errors.Is(err, ErrNotBegun) || !strings.HasSuffix(err.Error(), how) {
			t.Errorf("%s: %+v, %v", program, st, err)
		}
	}
}

// A program that gets rights when it starts is known before.
func TestGains(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give a file to another user")
	}
	const other = 54001
	for mode, want := range map[os.FileMode]bool{0o755: false, 0o755 | os.ModeSetuid: true, 0o755 | os.ModeSetgid: true, 0o745 | os.ModeSetgid: false} {
		path := filepath.Join(t.TempDir(), "program")
		must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, other, other), os.Chmod(path, mode)))
		if got := Gains(path); got != want {
			t.Errorf("a program of another user with mode %v gains rights: %v", mode, got)
		}
	}
}
