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
	"golang.org/x/sys/unix"
)

// jobs are what a script may have started, each in the background.
var jobs = map[string]struct {
	text     string
	found    bool // by a keeper that ends the script
	stranger bool // the script is not root's, as the job is
}{
	"plain":          {`sleep 1000 >/dev/null 2>&1 & echo $! >job`, true, false},
	"own group":      {`setsid sleep 1000 >/dev/null 2>&1 & echo $! >job`, true, false},
	"daemon":         {`setsid sh -c 'sleep 1000 >/dev/null 2>&1 & echo $! >job'`, false, false},
	"stopped":        {`sleep 1000 >/dev/null 2>&1 & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!; echo $! >job`, true, false},
	"another user's": {`setpriv --reuid=0 sleep 1000 >/dev/null 2>&1 & until grep -q "^Uid:.0.0" /proc/$!/status; do :; done; echo $! >job`, false, true},
}

// How a script with hasp acquire can end, with whatever it started: what is ended with it, and that the key is not another's before.
func TestHowAScriptEnds(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	for how, c := range map[string]struct {
		flag string
		do   func(s *sandbox, p *proc)
		end  int  // of the script; -2: it goes on
		ends bool // what it started
	}{
		"exits":     {flag: "--ttl 1h", do: func(s *sandbox, _ *proc) { s.open("gate") }},
		"gets TERM": {flag: "--ttl 1h", do: func(_ *sandbox, p *proc) { p.signal(syscall.SIGTERM) }, end: -1},
		"is killed": {flag: "--ttl 1h", do: func(_ *sandbox, p *proc) { p.signal(syscall.SIGKILL) }, end: -1},
		"lost its keeper": {flag: "--ttl 1h", do: func(s *sandbox, _ *proc) {
			must(s.t, syscall.Kill(s.keeper(), syscall.SIGKILL))
			s.expire("k")
		}, end: -2},
		"lost the key": {flag: "--ttl " + brief, do: func(s *sandbox, _ *proc) { s.exits(0, "break", "k", "--owner", s.read("owner"), "--yes") }, end: -1, ends: true},
	} {
		for what, job := range jobs {
			t.Run(how+"/"+what, func(t *testing.T) {
				t.Parallel()
				s, exe, _ := onFile(t)
				s.store = "redis://" + server.Addr() + "?prefix=" + filepath.Base(filepath.Dir(s.dir)) + strings.ReplaceAll(t.Name(), "/", "-") + ":"
				s.fifo("gate")
				must(t, os.Chmod(s.dir, 0o777))
				p := s.haspWith(func(cmd *exec.Cmd) {
					cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", exe + ` acquire --grace 1s ` + c.flag + ` k || exit; ` + exe + ` held --print owner k >owner; ` + job.text + `; read x <gate`} // the pipes of the test are the shell's alone
					cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}                                                                                                                                // the kernel sends HUP to what is stopped in a group that others' ends leave to itself
					if job.stranger {
						cmd.SysProcAttr.Credential, cmd.SysProcAttr.AmbientCaps = &syscall.Credential{Uid: stranger, Gid: stranger}, []uintptr{unix.CAP_SETUID}
						must(t, os.Chmod(filepath.Join(s.dir, "gate"), 0o666))
					}
				})
				pid := number(t, s.read("job"))
				t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
				c.do(s, p)
				if c.end != -2 {
					p.ends(c.end)
				}
				s.exits(0, "run", "k", "--", "true")
				gone := c.ends && job.found
				if gone { // the key was taken away
					if err := eventually(func() bool { return !alive(pid) }); err != nil {
						t.Error("it works on")
					}
				}
				if alive(pid) == gone {
					t.Errorf("it is alive: %v, and should be %v", alive(pid), !gone)
				}
				if c.ends && job.stranger {
					p.says(`hasp may not end these processes of the shell, which may work on while another has "k": sleep \(pid ` + strconv.Itoa(pid) + `\)`)
				}
			})
		}
	}
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
