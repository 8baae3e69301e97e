// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
	"github.com/redis/go-redis/v9"
)

// everyCommand are commands that ask the store: those that wait for it when it is
// away, and those that do not.
var (
	waitingCommands = [][]string{
		{"run", "k", "--", "touch", "ran"},
		{"run", "-w", "30", "k", "--", "touch", "ran"},
		{"run", "-s", "k", "other", "--", "touch", "ran"},
		{"elect", "k", "--", "touch", "ran"},
		{"elect", "--observe", "k"},
	}
	askingCommands = [][]string{
		{"run", "-n", "k", "--", "touch", "ran"},
		{"run", "-w", "0", "k", "--", "touch", "ran"},
		{"ls"},
		{"show", "k"},
		{"break", "k", "--owner", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "--yes"},
	}
	everyCommand = slices.Concat(waitingCommands, askingCommands)
)

// refuses wants the commands to end with the code and the message, and none to
// run anything or to show the password.
func refuses(t *testing.T, s *sandbox, commands [][]string, code int, pattern string) {
	t.Helper()
	lost := stall.Watch(t)
	for _, args := range commands {
		start := time.Now()
		text := s.exits(code, args...)
		if took := time.Since(start); took > 8*time.Second+lost() {
			t.Errorf("%v takes %v to say so", args, took)
		}
		matches(t, text, pattern)
		if strings.Contains(text, "hunter2") {
			t.Errorf("%v shows the password:\n%s", args, text)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "ran")); err == nil {
		t.Error("the command ran without the key")
	}
}

func admin(t testing.TB, server *testserver.Server, o redis.Options, commands ...[]any) {
	t.Helper()
	o.Addr = server.Addr()
	rdb := redis.NewClient(&o)
	defer rdb.Close()
	for _, c := range commands {
		if err := rdb.Do(context.Background(), c...).Err(); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
	}
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t, "--requirepass", "right")
	refuses(t, newSandbox(t, "redis://:hunter2@"+server.Addr()), askingCommands, 77,
		`^hasp: the store redis://127\.0\.0\.1:\d+/0 refused the login: .*(WRONGPASS|NOAUTH).*Check user, password and certificate\.$`)
	refuses(t, newSandbox(t, "redis://"+server.Addr()), askingCommands, 77, `refused the login: (NOAUTH .*|the server wants a password)\. Check `)
	refuses(t, newSandbox(t, "redis://nobody:hunter2@"+server.Addr()), askingCommands, 77, `refused the login`)
	text := newSandbox(t, "redis://nobody:hunter2@"+server.Addr()).exits(77, "run", "-w", "12", "k", "--", "touch", "ran")
	if strings.Contains(text, "hunter2") {
		t.Errorf("it shows the password:\n%s", text)
	}
	matches(t, text, `(?s)^hasp: waiting for the store [^\n]*WRONGPASS[^;\n]*; giving up in \d+s\n.*gave up after [0-9.]+s: .*refused the login`)

	s := newSandbox(t, "redis://:right@"+server.Addr())
	s.exits(0, "run", "k", "--", "true")
	s.store = "unix://:right@" + server.Socket() + "?db=3"
	s.exits(0, "run", "k", "--", "true")
	p := s.hasp("show", "k")
	p.ends(0)
	matches(t, p.out.String(), `redis-cli -s .*/sock -n 3 GET lock:k`)
	matches(t, p.out.String(), `set REDISCLI_AUTH to the password first`)
	if strings.Contains(p.out.String(), "right") {
		t.Errorf("it shows the password:\n%s", p.out.String())
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	admin(t, server, redis.Options{}, []any{"ACL", "SETUSER", "poor", "on", ">hunter2", "~other:*", "&*", "+@all"})
	refuses(t, newSandbox(t, "redis://poor:hunter2@"+server.Addr()), waitingCommands[:3], 77, `does not allow this: .*(NOPERM|permission)`)
}

// Keys that hasp did not make: another kind of value, another client's lock.
func TestForeign(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	admin(t, server, redis.Options{},
		[]any{"HSET", "lock:hash", "a", "b"}, []any{"SET", "lock:k", "\x1b[31mtheirs", "PX", "100000"})
	s := newSandbox(t, "redis://"+server.Addr())
	matches(t, s.exits(78, "run", "hash", "--", "true"), `^hasp: the store .* cannot do this: .*hash`)
	matches(t, s.exits(75, "run", "-n", "k", "--", "true"), `busy: "k" is held by a foreign client \(value "\\x1b\[31mtheirs"\)`)
	p := s.hasp("show", "k")
	p.ends(0)
	matches(t, p.out.String(), `^holder    a foreign client`)
	if strings.Contains(p.out.String(), "\x1b") || strings.Contains(p.out.String(), "to break") {
		t.Errorf("show says:\n%s", p.out.String())
	}
	matches(t, s.exits(75, "break", "k", "--owner", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "--yes"), `hasp never breaks the lease of another program`)
	admin(t, server, redis.Options{}, []any{"DEL", "lock:k"})
	s.exits(0, "run", "k", "--", "true")
}

// A foreign key without an expiry is freed by the line that show prints, and by
// nothing that hasp does.
func TestForeignForEver(t *testing.T) {
	t.Parallel()
	onNodes(t, func(t *testing.T, s *sandbox, servers []*testserver.Server) {
		const key, value = "it's a $(touch hurt) key", "\x1b[31m'`touch hurt`\" $(touch hurt)"
		for _, server := range servers {
			admin(t, server, redis.Options{}, []any{"SET", "lock:" + key, value}, []any{"SET", "lock:plain", "peer"}, []any{"SET", "lock:expires", "peer", "PX", "100000"})
		}
		for _, k := range []string{key, "plain"} {
			p := s.hasp("show", k)
			p.ends(0)
			_, line, _ := strings.Cut(p.out.String(), "\nto free   ")
			line, _, _ = strings.Cut(line, "\n")
			if line == "" || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("show says:\n%s", p.out.String())
			}
			for i, server := range servers {
				at := strings.Replace(line, fmt.Sprintf("-p %d", servers[0].Port()), fmt.Sprintf("-p %d", server.Port()), 1)
				cmd := exec.Command("bash", "-c", at)
				cmd.Dir = s.dir
				out, err := cmd.CombinedOutput()
				if err != nil || strings.TrimSpace(string(out)) != "1" {
					t.Fatalf("server %d: %s says %q, %v", i, at, out, err)
				}
			}
			if _, err := os.Stat(filepath.Join(s.dir, "hurt")); err == nil {
				t.Fatalf("a part of the value was run: %s", line)
			}
			s.exits(0, "run", k, "--", "true")
		}
		p := s.hasp("show", "expires")
		p.ends(0)
		if strings.Contains(p.out.String(), "to free") {
			t.Errorf("show says:\n%s", p.out.String())
		}
	})
}

// onNodes runs a test on one server and on three.
func onNodes(t *testing.T, test func(t *testing.T, s *sandbox, servers []*testserver.Server)) {
	t.Run("redis", func(t *testing.T) {
		server := testserver.Redis(t)
		test(t, newSandbox(t, "redis://"+server.Addr()), []*testserver.Server{server})
	})
	t.Run("redlock", func(t *testing.T) {
		servers := []*testserver.Server{testserver.Redis(t), testserver.Redis(t), testserver.Redis(t)}
		s := newSandbox(t, "redlock://"+servers[0].Addr()+","+servers[1].Addr()+","+servers[2].Addr())
		s.exits(0, "doctor", "--admit")
		test(t, s, servers)
	})
}

func TestSQLiteTrouble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "text"), []byte(strings.Repeat("no database ", 1000)), 0o600))
	for path, pattern := range map[string]string{
		"text":      "file is not a database",
		"no/dir/db": "unable to open database file: .*does not exist: make the folder",
		".":         "is a directory",
	} {
		refuses(t, newSandbox(t, "sqlite:"+filepath.Join(dir, path)), everyCommand, 78, `^hasp: the store sqlite:.* cannot do this: .*`+pattern)
	}
	locked := filepath.Join(dir, "locked")
	on(t, "sqlite3", "file:"+locked)("BEGIN EXCLUSIVE")
	refuses(t, newSandbox(t, "sqlite:"+locked), askingCommands[1:4], 69, `^hasp: the store \S+ cannot be used now: .*(is|stayed) locked.* fuser -v `+locked+"$")
}

// A failover: a server that was the master refuses what is written for some seconds. Nothing that waits ends, it says so once, and
// what was released meanwhile is free soon after.
func TestReadOnlyForAWhile(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	s := newSandbox(t, "redis://"+server.Addr())
	holder := s.hasp("run", "--ttl", "1h", "k", "--", "sh", "-c", "echo held >&2; exec sleep 1000")
	holder.says("held")
	waiter := s.hasp("run", "k", "--", "echo", "mine")
	waiter.says(`waiting for "k"`)
	leader := s.hasp("elect", "--ttl", "3", "e", "--", "sh", "-c", "echo leads >&2; exec sleep 1000")
	leader.says("leads")
	standby := s.hasp("elect", "--ttl", "3", "e", "--", "sh", "-c", "echo leads >&2; exec sleep 1000")
	standby.says(`waiting for "e"|leads`) // a machine that stood still for the TTL lets it lead
	admin(t, server, redis.Options{}, []any{"REPLICAOF", "127.0.0.1", 1})
	told := time.Now()
	holder.signal(syscall.SIGTERM) // its command ends, and it releases
	for _, p := range []*proc{waiter, leader, standby} {
		p.says(`waiting for the store .*READONLY`)
	}
	admin(t, server, redis.Options{}, []any{"REPLICAOF", "NO", "ONE"})
	took := time.Since(told)
	holder.ends(143)
	if strings.Contains(holder.err.String(), "could not be released") { // after 5 s
		if took < 4*time.Second {
			t.Errorf("it gave up before the %v were over:\n%s", took, holder.err.String())
		}
		s.expire("k")
	}
	waiter.ends(0)
	if said := waiter.err.String(); !strings.Contains(waiter.out.String(), "mine") || strings.Count(said, "READONLY") != 1 {
		t.Errorf("it says %s, and:\n%s", waiter.out.String(), said)
	}
	for _, p := range []*proc{leader, standby} {
		p.signal(syscall.SIGTERM)
	}
	leader.ends(143)
	standby.ends(143)
}
