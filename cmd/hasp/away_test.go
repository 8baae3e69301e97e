// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/faultproxy"
	"github.com/hasplock/hasp/internal/stall"
	"github.com/hasplock/hasp/internal/testserver"
)

const refused = `connect: connection refused`

// A store that is away is waited for, visibly, as long as -w says; not with -n, and
// not by commands that only ask.
func TestServerDown(t *testing.T) {
	t.Parallel()
	nobody := newSandbox(t, "redis://"+faultproxy.Nobody(t))
	refuses(t, nobody, askingCommands, 69,
		`^hasp: the store redis://127\.0\.0\.1:\d+/0 cannot be reached: .*`+refused+`\. Does it run, and is its address right\?$`)
	start, lost := time.Now(), stall.Watch(t)
	words, objects := nobody.hasp("run", "-w", "12", "k", "--", "touch", "ran"), nobody.hasp("run", "-o", "json", "-w", "12", "k", "--", "touch", "ran")
	words.ends(69)
	if took := time.Since(start); took > 15*time.Second+lost() {
		t.Errorf("a wait of 12 s takes %v", took)
	}
	text := words.err.String()
	matches(t, text, `^hasp: waiting for the store redis://127\.0\.0\.1:\d+/0: .*`+refused+`; giving up in [0-9.]+s$`)
	matches(t, text, `^hasp: gave up after (1[2-9]|[2-9]\d)s: the store .* cannot be reached: .*`+refused+`\. Does it run`)
	if strings.Contains(text, "context deadline") {
		t.Errorf("words of programmers:\n%s", text)
	}
	objects.ends(69)
	matches(t, objects.err.String(), `"event":"trouble","key":"k","message":"waiting for the store`)

	for _, args := range waitingCommands {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			server := testserver.Redis(t)
			server.Kill()
			s := newSandbox(t, "redis://"+server.Addr())
			if args[0] == "elect" && args[1] != "--observe" {
				args = []string{"elect", "k", "--", "sleep", "1000"} // a signal finds it at work
			}
			p := s.hasp(args...)
			if args[1] == "--observe" {
				p.says(`^hasp: the store .* cannot be reached: .*; asking again$`)
			} else {
				p.says(`^hasp: waiting for the store redis://127\.0\.0\.1:\d+/0: .*` + refused)
			}
			server.Restart()
			if args[0] == "run" {
				p.ends(0)
				return
			}
			if args[1] == "--observe" {
				if err := eventually(func() bool { return strings.Contains(p.out.String(), "nobody leads") }); err != nil {
					t.Error(err)
				}
			} else {
				p.says(`^hasp: leading "k" after `)
			}
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			p.ends(143)
		})
	}
}

func TestServerSilent(t *testing.T) {
	t.Parallel()
	proxy := faultproxy.New(t, testserver.Redis(t).Addr())
	proxy.Swallow(true, true)
	s := newSandbox(t, "redis://"+proxy.Addr())
	lost := stall.Watch(t)
	start := time.Now()
	matches(t, s.exits(69, askingCommands[0]...), `^hasp: the store .* takes connections, and does not answer: .*(did not answer within 5s|no answer in time)`)
	if took := time.Since(start); took > 12*time.Second+lost() {
		t.Errorf("%v takes %v", askingCommands[0], took)
	}
	// A wait that ended without one answer is no busy key.
	text := s.exits(69, "run", "-w", "12", "k", "--", "true")
	matches(t, text, `^hasp: waiting for the store .*: no answer yet; giving up in [0-9.]+s$`)
	matches(t, text, `^hasp: gave up after (1[2-9]|[2-9]\d)s: the store .* takes connections, and does not answer: .*(did not answer within [0-9.]+s|no answer in time)`)
	matches(t, s.exits(69, "show", "k"), `^hasp: the store .* takes connections, and does not answer: .*no answer in time`)
}

// The server goes away while hasp waits, and comes back. It keeps its port meanwhile, which another test's server would take.
func TestServerGoneWhileWaiting(t *testing.T) {
	t.Parallel()
	holder := onRedis(t)
	holder.fifo("gate")
	holder.hasp("run", "k", "--", "sh", "-c", "echo >ready; read x <gate")
	holder.read("ready")
	link := faultproxy.New(t, strings.TrimPrefix(holder.store, "redis://"))
	s := newSandbox(t, "redis://"+link.Addr())
	last := s.hasp("run", "-w", "20", "k", "--", "true")
	p, several := s.hasp("run", "k", "--", "true"), s.hasp("run", "--ttl", "2s", "a", "k", "--", "true")
	for _, p := range []*proc{last, p, several} {
		p.says(`waiting for "k"`)
	}
	link.Refuse()
	link.CloseAll()
	for _, p := range []*proc{last, p, several} {
		p.says(`^hasp: waiting for the store redis://127\.0\.0\.1:\d+/0: `)
	}
	last.ends(69) // not 75: it was not the holder that kept it
	matches(t, last.err.String(), `^hasp: gave up after [2-9]\ds: the store .* closed the connection`)
	link.Clear()
	holder.open("gate")
	p.ends(0)
	several.ends(0)
	matches(t, p.err.String(), `^hasp: acquired "k" after `)
}

// Servers that are held back are waited for, which takes longer than hasp bears
// anything else.
func TestServersHeldBack(t *testing.T) {
	t.Parallel()
	for scheme, n := range map[string]int{"redis://": 1, "redlock://": 3} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			url := func(maxTTL string) string {
				addrs := make([]string, n)
				for i := range addrs {
					addrs[i] = testserver.Redis(t).Addr()
				}
				return scheme + strings.Join(addrs, ",") + "?max-ttl=" + maxTTL
			}
			s, p := newSandbox(t, url("1m")), newSandbox(t, url("1s")).hasp("run", "k", "--", "true")
			matches(t, s.exits(69, "run", "-n", "k", "--", "true"), `^hasp: the store .* grants nothing now: .*held back \(new, restarted or flushed\).*Look: hasp doctor$`)
			matches(t, s.exits(69, "run", "-w", "12", "k", "--", "true"), `^hasp: gave up after (1[2-9]|[2-9]\d)s: the store .* grants nothing now: .*held back`)
			p.says(`^hasp: waiting for the store .*held back \(new, restarted or flushed\), \d+s left`)
			p.ends(0)
		})
	}
}

// A process that cannot note how long a server was held back begins the wait anew: commands that end before never let the server
// vote. Each command says that once, also where the other servers grant all locks; so does the doctor.
func TestWaitIsNotRemembered(t *testing.T) {
	t.Parallel()
	back := testserver.Redis(t)
	most := "redlock://" + strings.Join([]string{testserver.Redis(t).Addr(), testserver.Redis(t).Addr(), back.Addr()}, ",")
	newSandbox(t, most).exits(0, "doctor", "--admit")
	back.Kill()
	back.Restart()
	for name, url := range map[string]string{"one of three": most, "alone": "redis://" + testserver.Redis(t).Addr() + "?max-ttl=30s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSandbox(t, url)
			must(t, os.WriteFile(filepath.Join(s.dir, "state"), nil, 0o600))
			const why = `cannot be noted in the state directory: .*/state.*: not a directory`
			p := s.hasp("run", "-q", "k", "--", "sleep", "1000") // which cron says
			p.says(`^hasp: warning: a server is held back, .*` + why)
			p.signal(syscall.SIGTERM)
			p.ends(143, 69)
			if n := strings.Count(p.err.String(), "warning:"); n != 1 {
				t.Errorf("it was said %d times:\n%s", n, p.err.String())
			}
			p = s.hasp("doctor")
			p.ends(0, 69)
			matches(t, p.out.String(), `^warn +how long a server is held back `+why)
		})
	}
	p := newSandbox(t, most)
	if text := p.exits(0, "run", "k", "--", "true"); strings.Contains(text, "warning:") {
		t.Errorf("with a directory it says:\n%s", text)
	}
}
