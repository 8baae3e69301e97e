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

// A lost lock ends the script and what it started, although the shell has no
// say; what ignores TERM is killed. The script's standard error says why.
func TestAcquireLost(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := s.script("sh", `hasp acquire --ttl 20s --grace 1s k || exit; hasp held --print owner k >owner
sh -c 'trap "" TERM; echo $$ >stubborn; while :; do read x <>never; done' & echo $! >job; sleep 1000; echo >went-on`)
	stubborn := number(t, s.read("stubborn"))
	s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
	p.ends(-1) // by TERM
	p.says(`LOST "k": .*Ending the shell`)
	if err := eventually(func() bool { return !alive(stubborn) }); err != nil {
		t.Errorf("what the script started works on: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "went-on")); err == nil {
		t.Error("the script went on")
	}
	s.empty()
}

// With --on-lost=ignore the script can test it.
func TestAcquireLostAndIgnored(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	s.fifo("gate")
	p := s.script("sh", `hasp acquire --ttl 20s --on-lost ignore k || exit; hasp held --print owner k >owner; read x <gate
while hasp held k; do sleep 0.1; done; hasp held k; test $? = 124 || exit 1; hasp release k; test $? = 124 || exit 2; hasp held k; test $? = 1 || exit 3; exit 42`)
	s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
	s.open("gate")
	p.ends(42)
	s.empty()
}

// A keeper that is killed with -9 cannot end anybody: the script can ask, and
// the TTL ends the lock. The next keeper clears away what it left.
func TestKilledKeeper(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	s.fifo("gate")
	p := s.script("sh", `hasp acquire --ttl 1h k || exit; echo >ready; read x <gate; hasp held k; test $? = 1 || exit 1; echo >told; read x <gate
hasp release; test $? = 1 || exit 2; hasp acquire k || exit 3; test "$(hasp held --print abandoned k)" = true || exit 4; exit 42`)
	s.read("ready")
	keeper := s.keeper()
	must(t, syscall.Kill(keeper, syscall.SIGKILL))
	must(t, eventually(func() bool { return syscall.Kill(keeper, 0) != nil })) // its number, too, is nothing's any more
	s.open("gate")
	s.read("told")
	s.exits(75, "run", "-n", "k", "--", "true")
	s.expire("k")
	s.open("gate")
	p.ends(42)
	p.says("hasp held --print abandoned")
	s.empty()
}

// A keeper that was stopped for longer than the TTL ends the script as soon as it is
// continued. Until then the lock is not confirmed.
func TestStoppedKeeper(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := s.script("sh", "hasp acquire --ttl "+ttl+" k || exit; hasp held --print fence k >fence; sleep 1000; echo >went-on")
	s.read("fence")
	keeper := s.keeper()
	must(t, syscall.Kill(keeper, syscall.SIGSTOP))
	s.exits(0, "run", "k", "--", "true")
	matches(t, s.exits(124, "held", "--pid", strconv.Itoa(p.cmd.Process.Pid), "k"), "does not answer: is it stopped")
	must(t, syscall.Kill(keeper, syscall.SIGCONT))
	p.ends(-1) // by TERM
	s.empty()
}

// A store that is away at the release is said to be.
func TestReleaseWithoutTheStore(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	s.fifo("gate")
	p := s.script("sh", `hasp acquire k || exit; echo >held; read x <gate; hasp release k; test $? = 69 || exit 1; hasp held k; test $? = 1 || exit 2; exit 42`)
	s.read("held")
	server.Kill()
	s.open("gate")
	p.ends(42)
	p.says(`"k" could not be released: .*The store keeps it until its TTL is over`)
	s.empty()
}

// Keys are bytes, and are shown escaped.
func TestAcquireHostileKeys(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	p := s.script("sh", `for key; do hasp acquire -v "$key" && hasp held "$key" && hasp release "$key" || exit 1; hasp held "$key"; test $? = 1 || exit 2; done`,
		"\xff\xfe", "\x1b]0;title\a", "../../x", "$(touch evil)'\"\n", "\u202e", strings.Repeat("x", 512))
	p.ends(0)
	if text := p.err.String(); strings.ContainsAny(text, "\x1b\a\u202e") || !strings.Contains(text, `\xff\xfe`) {
		t.Errorf("a message is %q", text)
	}
	s.empty()
}

// A folder that others could have prepared is not used, and nobody holds a key for
// another user's process.
func TestAcquireAmongOtherUsers(t *testing.T) {
	t.Parallel()
	s, exe, path := onFile(t)
	must(t, os.Chmod(filepath.Dir(path), 0o777))
	held := []string{exe, "acquire", "--pid", strconv.Itoa(os.Getpid()), "k"}
	must(t, os.MkdirAll(filepath.Join(s.dir, "state"), 0o777))
	must(t, os.Chmod(filepath.Join(s.dir, "state"), 0o777))
	p := s.as(stranger, held...)
	p.ends(64)
	p.says("is another user's: a key can be held for a process of yours only")

	for name, spoil := range map[string]func() error{
		"can be written by others": func() error { return os.Chmod(s.sockets(), 0o777) },
		"belongs to":               func() error { return os.Chown(s.sockets(), stranger, stranger) },
	} {
		must(t, os.RemoveAll(filepath.Join(s.dir, "state", "hasp")))
		must(t, os.MkdirAll(s.sockets(), 0o700))
		must(t, spoil())
		matches(t, s.exits(78, "acquire", "--pid", strconv.Itoa(os.Getpid()), "k"), name)
		matches(t, s.exits(78, "held", "k"), name)
		s.exits(0, "run", "-n", "k", "--", "true") // nothing is held
	}
}

// What would release the key right away, or never, is refused.
func TestAcquireRefuses(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	for want, args := range map[string][]string{
		`which is no shell`:              {"acquire", "k"},
		`-E 0 would tell`:                {"acquire", "-n", "-E", "0", "k"},
		`KEY is missing`:                 {"acquire"},
		`there is no process 2147483646`: {"acquire", "--pid", "2147483646", "k"},
		`the key is empty`:               {"acquire", ""},
		`KEY is missing: hasp held KEY`:  {"held", "--print", "fence"},
		`hasp keeper is for hasp itself`: {"keeper"},
	} {
		matches(t, s.exits(64, args...), want)
	}
	s.haspWith(func(cmd *exec.Cmd) { cmd.Stdin = nil }, "release").ends(1)
}

// A sudo around the script, and one within it, end with it, and are not left stopped.
func TestAcquireLostUnderSudo(t *testing.T) {
	t.Parallel()
	testserver.Require(t, "sudo")
	for name, text := range map[string]string{
		"around": `sudo -n -E sh -c '%; sleep 1000; :'`,
		"within": `sh -c '%; sudo -n sleep 1000; :'`,
		"su":     `su -s /bin/sh -c '%; sleep 1000; :'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, exe, _ := onFile(t)
			p := s.haspWith(func(cmd *exec.Cmd) {
				cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", strings.ReplaceAll(text, "%", exe+" acquire --ttl "+brief+" --grace 1s k || exit; "+exe+" held --print owner k >owner") + "; echo $? >status; :"}
			})
			s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes")
			p.ends(0)
			if status := number(t, s.read("status")); status < 128 && status != 1 {
				t.Errorf("it ended with %d", status)
			}
			if err := eventually(func() bool { return len(s.processes()) == 0 }); err != nil {
				t.Errorf("%v is left", s.processes())
			}
		})
	}
}

// Where the keeper could start too few threads hasp acquire says so in a line, before anything is acquired.
func TestAcquireWithTooFewProcesses(t *testing.T) {
	t.Parallel()
	s, exe, _ := onFile(t)
	s.store = "redis://" + testserver.Redis(t).Addr()
	must(t, os.Mkdir(filepath.Join(s.dir, "state"), 0o777))
	must(t, os.Chmod(filepath.Join(s.dir, "state"), 0o777))
	for limit, code := range map[string]int{"14": 125, "24": 125, "200": 0} {
		p := s.as(anotherLonelyUser, "prlimit", "--nproc="+limit, "sh", "-c", exe+" acquire -n k; exit $?")
		p.ends(code)
		if said := p.err.String(); code != 0 && (strings.Count(said, "\n") != 1 || !strings.Contains(said, "ulimit -u")) {
			t.Errorf("at %s processes it said:\n%s", limit, said)
		}
		s.exits(0, "run", "k", "--", "true")
	}
}

const anotherLonelyUser = 54008
