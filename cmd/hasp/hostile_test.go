// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/hasplock/hasp/internal/testserver"
)

// hostileText has what a terminal acts on, what turns text around, and the end of
// a line. RESP's blob errors carry all of it.
const hostileText = "ERR \x1b]0;title\a \u009b31m \x7f \u202eabc\u2066 \r\nhasp: forged"

// hostileServer answers every command with an error of that text, and returns its
// address.
func hostileServer(t *testing.T, class string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	text := class + hostileText
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					if !strings.HasPrefix(line, "*") { // a part of a command
						continue
					}
					if _, err := c.Write([]byte("!" + strconv.Itoa(len(text)) + "\r\n" + text + "\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// harmless fails the test when a text has something else than graphic characters
// and ends of lines, or a line that is not hasp's.
func harmless(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%s: %.20q in:\n%q", what, text[i:], text)
	}
	if strings.Contains(text, "\nhasp: forged") || strings.HasPrefix(text, "hasp: forged") {
		t.Errorf("%s: a forged line in:\n%q", what, text)
	}
}

// What a server says never reaches a terminal as it is.
func TestErrorsOfAHostileServer(t *testing.T) {
	t.Parallel()
	for _, class := range []string{"", "NOPERM "} {
		addr := hostileServer(t, class)
		s := newSandbox(t, "redis://"+addr)
		for _, args := range [][]string{
			{"ls"}, {"ls", "-o", "json"}, {"show", "k"}, {"show", "k", "-o", "json"}, {"doctor"}, {"doctor", "-o", "json"},
			{"leaks"}, {"leaks", "-o", "json"}, {"break", "k", "--owner", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "--yes"}, {"run", "-n", "k", "--", "true"}, {"run", "-v", "-w", "1", "k", "--", "true"},
			{"run", "-o", "json", "-w", "1", "k", "--", "true"}, {"elect", "--ttl", "5", "k", "--", "true"}, {"elect", "--observe", "k"},
			{"verify", "--for", "3"}, {"__complete", "show", ""},
			{"ls", "--store", "redlock://" + addr + ",127.0.0.1:1,127.0.0.1:2"},
			{"run", "-w", "1", "--store", "redis://" + addr + "?max-ttl=5s", "k", "--", "true"},
		} {
			t.Run(class+strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				p := s.hasp(args...)
				if slices.Contains(args, "--observe") { // it retries for ever
					p.says("^hasp: .*forged")
					_ = p.cmd.Process.Signal(syscall.SIGTERM)
				}
				if code, _ := p.wait(); code == 0 && args[0] != "__complete" {
					t.Errorf("it succeeded; it said:\n%s", p.err.String())
				}
				harmless(t, "standard error", p.err.String())
				harmless(t, "standard output", p.out.String())
			})
		}
	}
}

// Keys and reasons are others' text, too.
func TestHostileKeysAndReasons(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	const key = "k\x1b]0;t\a\u009b31m\x7f\u202e\u2066\U000e0041\n\xff"
	s.fifo("gate")
	s.hasp("run", "--reason", hostileText, key, "--", "sh", "-c", "echo $HASP_OWNER >owner; read x <gate")
	owner := s.read("owner")
	s.hasp("run", "--reason", hostileText, key, "--", "true")
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "json"}, {"show", key}, {"show", key, "-o", "json"}, {"run", "-n", key, "--", "true"}, {"run", "-w", "1", key, "--", "true"},
		{"run", "-o", "json", "-w", "1", key, "--", "true"}, {"run", "-n", key, "true"}, {"break", key, "--owner", "AAAAAAAAAAAAAAAAAAAAAAAAAA", "--yes"},
		{"break", key}, {"leaks", "--older", "1ns"}, {"leaks", "--older", "1ns", "-o", "json"}, {"leaks", key}, {"__complete", "show", ""}, {"break", key, "--owner", owner, "--yes"},
	} {
		p := s.hasp(args...)
		_, _ = p.wait() // busy, mostly
		harmless(t, strings.Join(args[:1], " "), p.err.String())
		harmless(t, strings.Join(args[:1], " "), p.out.String())
	}
	p := s.hasp("elect", "--observe", key)
	must(t, eventually(func() bool { return strings.Contains(p.out.String(), "\n") }))
	harmless(t, "elect", p.out.String())
}

// An answer that cannot be written is 125, whatever the command.
func TestAnswersThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("SKIPPED WITHOUT /dev/full: %v", err)
	}
	t.Cleanup(func() { full.Close() })
	s := onSQLite(t)
	s.fifo("gate")
	s.hasp("run", "k", "--", "sh", "-c", "echo held >held; read x <gate")
	s.read("held")
	self, err := os.Executable()
	must(t, err)
	for _, args := range [][]string{
		{"ls"}, {"ls", "-o", "json"}, {"show", "k"}, {"show", "k", "-o", "json"}, {"doctor"}, {"doctor", "-o", "json"}, {"leaks", "--older", "1ns"}, {"leaks", "--older", "1ns", "-o", "json"}, {"version"}, {"version", "-o", "json"},
		{"--version"}, {"verify", "--for", "3"}, {"verify", "--for", "3", "-o", "json"}, {"help"}, {"--help"}, {"run", "--help"}, {"help", "store"},
		{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}, {"completion", "powershell"}, {"__complete", "run", "--on-lost", ""},
		{"elect", "--observe", "k"}, {"man", "/dev/null"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			cmd := &exec.Cmd{Path: self, Args: append([]string{"hasp"}, args...), Dir: s.dir, Env: s.env(), Stdout: full}
			var said buffer
			cmd.Stderr = &said
			if got := exitOf(cmd.Run()); got != 125 {
				t.Errorf("it ended with %d, want 125; it said:\n%s", got, said.String())
			}
		})
	}
}

// badly passes on to a server what it is sent, and what that answers as the mode says.
func badly(t *testing.T, mode, addr string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	answer := func(c net.Conn, text []byte) error {
		const push = ">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\ny\r\n"
		switch mode {
		case "byte by byte":
			for i := range text {
				if _, err := c.Write(text[i : i+1]); err != nil {
					return err
				}
			}
			return nil
		case "twice":
			text = append(text, text...)
		case "with messages that nobody asked for":
			text = append([]byte(push+push), append(text, push...)...)
		}
		_, err := c.Write(text)
		if mode == "once" {
			return io.EOF
		}
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				c.Close()
				return
			}
			go func() { _, _ = io.Copy(server, c); server.Close() }()
			go func() {
				defer c.Close()
				for buf := make([]byte, 1<<16); ; {
					n, err := server.Read(buf)
					if err != nil || answer(c, append([]byte(nil), buf[:n]...)) != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A server with malformed answers grants nothing that it did not grant, and delays nobody.
func TestServersThatAnswerBadly(t *testing.T) {
	t.Parallel()
	server := testserver.Redis(t)
	for mode, want := range map[string]int{"byte by byte": 0, "once": 69, "twice": 69, "with messages that nobody asked for": 69} {
		s := newSandbox(t, "redis://"+badly(t, mode, server.Addr()))
		got, _ := s.hasp("run", "-n", mode, "--", "touch", "ran").wait()
		_, err := os.Stat(filepath.Join(s.dir, "ran"))
		if got != want || (err == nil) != (want == 0) {
			t.Errorf("%s: it ended with %d, want %d; the command: %v", mode, got, want, err)
		}
		for _, args := range [][]string{{"ls"}, {"show", mode}, {"doctor"}, {"leaks"}} {
			p := s.hasp(args...)
			if code, _ := p.wait(); code != 0 && code != 69 && code != 78 {
				t.Errorf("%s, %s: it ended with %d:\n%s", mode, args[0], code, p.err.String())
			}
		}
	}
}
