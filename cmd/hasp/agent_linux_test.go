// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hasplock/hasp/pipe"
)

// agent starts hasp agent on a socket.
func (s *sandbox) agent(args ...string) (p *proc, path string) {
	path = filepath.Join(s.dir, "s")
	p = s.hasp(append([]string{"agent", "--listen", "unix:" + path}, args...)...)
	p.says("are at unix:")
	return p, path
}

// inheritor is a process that has descriptors and does nothing.
func (s *sandbox) inheritor(files ...*os.File) *exec.Cmd {
	c := &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", "read x <never"}, Dir: s.dir, ExtraFiles: files}
	must(s.t, c.Start())
	s.t.Cleanup(func() { kill(c) })
	return c
}

func kill(c *exec.Cmd) {
	if c.ProcessState == nil {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
}

// A client is killed: its key is free when the last process has ended that has its connection, and not by the TTL of an hour.
func TestKilledClientOfAnAgent(t *testing.T) {
	const lock = `{"jsonrpc":"2.0","id":1,"method":"hello"}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"lock","params":{"key":"k","ttl_ms":3600000}}` + "\n"
	for name, c := range map[string]struct {
		last  string // what the client writes at its end
		stdio bool
	}{
		"stdio":             {"", true},
		"stdio, in a line":  {`{"jsonrpc"`, true}, // the agent writes its answer to a pipe whose reader has ended
		"socket":            {"", false},
		"socket, in a line": {`{"jsonrpc"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onSQLite(t)
			var agent *proc
			var files []*os.File // of the client
			if c.stdio {
				in, toAgent, err := os.Pipe()
				must(t, err)
				fromAgent, out, err := os.Pipe()
				must(t, err)
				agent = s.haspWith(func(c *exec.Cmd) { c.Stdin, c.Stdout = in, out }, "agent", "--stdio")
				in.Close()
				out.Close()
				files = []*os.File{toAgent, fromAgent}
			} else {
				var path string
				agent, path = s.agent()
				conn, err := net.Dial("unix", path)
				must(t, err)
				f, err := conn.(*net.UnixConn).File()
				must(t, err)
				conn.Close()
				files = []*os.File{f, f}
			}
			_, err := io.WriteString(files[0], lock)
			must(t, err)
			answers := bufio.NewReader(files[1])
			for range 2 {
				line, err := answers.ReadString('\n')
				must(t, err)
				if strings.Contains(line, `"error"`) {
					t.Fatal(line)
				}
			}
			_, err = io.WriteString(files[0], c.last)
			must(t, err)
			client, fork := s.inheritor(files...), s.inheritor(files...)
			_ = files[0].Close()
			_ = files[1].Close()
			kill(client)
			s.exits(75, "run", "--wait", "0s", "k", "--", "true")
			next := s.hasp("run", "k", "--", "sh", "-c", `echo "abandoned: $HASP_ABANDONED" >next`)
			kill(fork)
			matches(t, s.read("next"), "abandoned: .")
			next.ends(0)
			if !c.stdio {
				agent.signal(syscall.SIGTERM)
			}
			if c.stdio && c.last != "" {
				agent.ends(64)
				return
			}
			agent.ends(0)
		})
	}
}

// The agent is stopped: the client knows that its lease is over before the store gives the key to another.
func TestStoppedAgent(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	agent, path := s.agent("--ttl", ttl)
	c, err := pipe.Dial(t.Context(), "unix:"+path, "test", 0)
	must(t, err)
	defer c.Kill()
	l, err := c.Lock(t.Context(), pipe.LockParams{Key: "k"})
	must(t, err)
	next := s.hasp("run", "k", "--", "sh", "-c", "echo >next; echo 1 >>next")
	next.says("waiting|wait")
	s.stop(agent)
	<-l.Done()
	s.read("next")
	info, err := os.Stat(filepath.Join(s.dir, "next"))
	must(t, err)
	if over := l.Deadline(); !over.Before(info.ModTime()) {
		t.Errorf("the next holder was there %v before the deadline", over.Sub(info.ModTime()))
	}
	agent.signal(syscall.SIGCONT)
	agent.signal(syscall.SIGTERM)
	agent.ends(0)
}

// Which users may connect to the socket, and which agent may have it.
func TestSocketOfAnAgent(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	mode := func(path string, want os.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		must(t, err)
		if info.Mode().Perm() != want {
			t.Errorf("the socket has mode %o, want %o", info.Mode().Perm(), want)
		}
	}
	first, path := s.agent()
	mode(path, 0o600)
	matches(t, s.exits(78, "agent", "--listen", "unix:"+path), "listens on .* already")
	c, err := pipe.Dial(t.Context(), "unix:"+path, "test", 0) // the other one took nothing away
	must(t, err)
	must(t, c.Close())
	first.signal(syscall.SIGKILL)
	first.ends(-1, 137)

	group, err := user.LookupGroupId(strconv.Itoa(os.Getegid()))
	must(t, err)
	second, _ := s.agent("--group", group.Name)
	mode(path, 0o660)
	second.signal(syscall.SIGHUP) // of its terminal
	second.ends(0)
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket of an agent that ended is there: %v", err)
	}
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	matches(t, s.exits(78, "agent", "--listen", "unix:"+path), "no socket")
}

// A command under an agent ends with its lock: when the agent is killed, or stands still, before the store gives the key to another; and with its
// hasp, whose key is free then, though the TTL is an hour and what the command started has all that hasp had.
func TestRunOverAnAgent(t *testing.T) {
	for name, fail := range map[string]func(s *sandbox, agent, run *proc){
		"agent killed":  func(_ *sandbox, agent, _ *proc) { agent.signal(syscall.SIGKILL) },
		"agent stopped": func(s *sandbox, agent, _ *proc) { s.stop(agent) },
		"run killed":    func(_ *sandbox, _, run *proc) { run.signal(syscall.SIGKILL) },
		"agent ended":   func(_ *sandbox, agent, _ *proc) { agent.signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := onSQLite(t)
			agent, path := s.agent("--grace", "20s")
			lasts, trap := ttl, "exit"
			switch name {
			case "run killed":
				lasts = "1h"
			case "agent ended":
				trap = "" // it is killed
			}
			run := s.hasp("run", "--agent", "unix:"+path, "--ttl", lasts, "k", "--", "sh", "-c",
				`setsid sh -c 'read x <never' >/dev/null 2>&1 & trap '`+trap+`' TERM; echo $$ $! >pids; while :; do echo >>beats; sleep 0.05; done`)
			var pid, started int
			_, err := fmt.Sscan(s.read("pids"), &pid, &started)
			must(t, err)
			t.Cleanup(func() { _ = syscall.Kill(started, syscall.SIGKILL) })
			next := s.hasp("run", "k", "--", "sh", "-c", `echo "abandoned: $HASP_ABANDONED" >next`)
			next.says("waiting")
			fail(s, agent, run)
			matches(t, s.read("next"), "abandoned: 1")
			if name == "run killed" {
				run.ends(-1, 137)
				if alive(pid) || !alive(started) {
					t.Errorf("the command is there: %v; what it started: %v", alive(pid), alive(started))
				}
			} else {
				run.ends(124)
				last, err := os.Stat(filepath.Join(s.dir, "beats"))
				must(t, err)
				begun, err := os.Stat(filepath.Join(s.dir, "next"))
				must(t, err)
				if !last.ModTime().Before(begun.ModTime()) {
					t.Errorf("the command worked %v after the next one had begun", last.ModTime().Sub(begun.ModTime()))
				}
				matches(t, run.err.String(), `LOST "k": .*TERM now, KILL in `)
			}
			next.ends(0)
		})
	}
}
