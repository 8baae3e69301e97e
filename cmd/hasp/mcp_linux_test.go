// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hasplock/hasp/internal/jsonrpc"
)

func init() { commands["host"] = host }

// host is a coding agent: it starts hasp mcp, and hasp hook for each edit, and does as a script says, a line at a time: a tool and its
// arguments, "hook" with flags and a file, or "edit" with a file.
func host() {
	self, err := os.Executable()
	fatal(err)
	mcp := &exec.Cmd{Path: self, Args: []string{"hasp", "mcp"}, Stderr: os.Stderr}
	in, err := mcp.StdinPipe()
	fatal(err)
	out, err := mcp.StdoutPipe()
	fatal(errors.Join(err, mcp.Start()))
	conn := jsonrpc.New(both{out, in}, nil, nil)
	go func() { _ = conn.Serve(context.Background(), nil) }()
	_, err = conn.Call(context.Background(), "initialize", map[string]string{"protocolVersion": "2025-11-25"}, nil)
	fatal(err)
	tool := func(name string, arguments any) string {
		r, err := conn.Call(context.Background(), "tools/call", map[string]any{"name": name, "arguments": arguments}, nil)
		fatal(err)
		var result struct{ Content []struct{ Text string } }
		fatal(json.Unmarshal(r, &result))
		return result.Content[0].Text
	}
	hook := func(args ...string) (code int, said string) {
		event, _ := json.Marshal(map[string]any{"session_id": "s", "cwd": ".", "tool_name": "Edit", "tool_input": map[string]string{"file_path": args[len(args)-1]}})
		cmd := &exec.Cmd{Path: self, Args: append([]string{"hasp", "hook"}, args[:len(args)-1]...), Stdin: bytes.NewReader(event)}
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		paths := map[string]any{"paths": words[1:], "wait_seconds": 1, "reason": "of " + strconv.Itoa(os.Getpid())}
		switch words[0] {
		case "hook":
			code, said := hook(words[1:]...)
			fmt.Println(code, strings.ReplaceAll(said, "\n", " "))
		case "edit":
			calls := 1
			for ; !strings.HasPrefix(tool("lock", paths), "you hold"); calls++ {
			}
			code, said := hook("--require", words[1])
			for strings.Contains(said, "is not known") { // on a machine that is busy
				code, said = hook("--require", words[1])
			}
			verdict := fmt.Sprint("refused: ", said)
			if code == 0 {
				verdict = edit(words[1])
			}
			fmt.Println(verdict, calls, tool("unlock", paths))
		default:
			fmt.Println(strings.ReplaceAll(tool(words[0], paths), "\n", "; "))
		}
	}
	conn.Close()
	_ = mcp.Wait()
}

func fatal(err error) {
	if err != nil {
		fmt.Println("fatal:", err)
		os.Exit(1)
	}
}

type both struct {
	io.ReadCloser
	w io.WriteCloser
}

func (b both) Write(p []byte) (int, error) { return b.w.Write(p) }
func (b both) Close() error                { return errors.Join(b.w.Close(), b.ReadCloser.Close()) }

// edit adds a line to the file that stands for one in all worktrees, by reading and writing all of it. A marker that is there already is
// another's edit.
func edit(name string) string {
	name = filepath.Join("..", "shared", name)
	marker, err := os.OpenFile(name+".marker", os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "two at once: " + err.Error()
	}
	defer os.Remove(marker.Name())
	defer marker.Close()
	text, err := os.ReadFile(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		time.Sleep(time.Millisecond) // the edit of a model takes longer
		err = os.WriteFile(name, append(text, "line\n"...), 0o600)
	}
	if err != nil {
		return err.Error()
	}
	return "edited"
}

// agentHost is a host that runs.
type agentHost struct {
	*proc
	in  io.Writer
	out *bufio.Scanner
}

func (s *sandbox) host(dir string) *agentHost {
	s.t.Helper()
	self, err := os.Executable()
	must(s.t, err)
	h := &agentHost{proc: &proc{t: s.t, cmd: &exec.Cmd{Path: self, Args: []string{"host"}, Dir: dir, Env: s.env(), Stderr: os.Stderr}}}
	in, err := h.cmd.StdinPipe()
	must(s.t, err)
	out, err := h.cmd.StdoutPipe()
	must(s.t, err)
	must(s.t, h.cmd.Start())
	h.in, h.out = in, bufio.NewScanner(out)
	s.t.Cleanup(func() { _ = in.Close(); _, _ = io.Copy(io.Discard, out); _ = h.cmd.Wait() })
	return h
}

func (h *agentHost) do(line string) string {
	h.t.Helper()
	fmt.Fprintln(h.in, line)
	if !h.out.Scan() {
		return "it ended"
	}
	return h.out.Text()
}

func (h *agentHost) says(line, pattern string) {
	h.t.Helper()
	if said := h.do(line); !regexp.MustCompile("^" + pattern).MatchString(said) {
		h.t.Errorf("%s: %q, want %s", line, said, pattern)
	}
}

// tree is a repository with two worktrees.
func (s *sandbox) tree() (one, two string) {
	one, two = filepath.Join(s.dir, "one"), filepath.Join(s.dir, "two")
	w := filepath.Join(one, ".git/worktrees/two")
	must(s.t, errors.Join(os.MkdirAll(w, 0o755), os.Mkdir(two, 0o755), os.WriteFile(filepath.Join(w, "commondir"), []byte("../..\n"), 0o600),
		os.WriteFile(filepath.Join(two, ".git"), []byte("gitdir: "+w+"\n"), 0o600)))
	return one, two
}

// The hook knows its own session, and refuses an edit of what another holds in another worktree. A session that is killed keeps nothing.
func TestHook(t *testing.T) {
	t.Parallel()
	s := onSQLite(t)
	one, two := s.tree()
	a, b := s.host(one), s.host(two)
	b.says("hook f", "0 $")
	b.says("hook --require f", "2 hasp: the file \"f\" has no holder: call the tool lock")
	a.says("lock f", "you hold")
	a.says("hook --require f", "0 $")
	b.says("hook f", `2 hasp: "f" is another's: "`+filepath.Join(one, "f")+`" has been held`)
	b.says("hook f", `2 .* reason "of `+strconv.Itoa(a.cmd.Process.Pid))
	b.says("lock f", "still waiting, 0 ahead")
	a.signal(syscall.SIGKILL)
	for !strings.Contains(b.do("lock f"), "did not finish") { // in the place it had
	}
	b.says("hook --require f", "0 $")
	s.store = "redis://127.0.0.1:1"
	c := s.host(one)
	c.says("hook f", "1 hasp: whether the file may be edited is not known: the store")
	c.says("hook --require f", "2 hasp: whether the file may be edited is not known: the store")
	c.says("status", "nothing is held")
}

// Eight sessions in two worktrees edit twenty files: HASP_TEST_SESSIONS is how often each; 200 is the campaign.
func TestSessions(t *testing.T) {
	t.Parallel()
	const sessions, files = 8, 20
	edits, err := strconv.Atoi(os.Getenv("HASP_TEST_SESSIONS"))
	if err != nil {
		edits = 2
	}
	s := onSQLite(t)
	one, two := s.tree()
	shared := filepath.Join(s.dir, "shared")
	must(t, os.Mkdir(shared, 0o755))
	var calls, done int
	results := make(chan string)
	for i := range sessions {
		h := s.host([]string{one, two}[i%2])
		go func() {
			for range edits {
				results <- h.do(fmt.Sprint("edit file", rand.IntN(files)))
			}
		}()
	}
	began := time.Now()
	for range sessions * edits {
		r := <-results
		var n int
		if _, err := fmt.Sscanf(r, "edited %d released", &n); err != nil {
			t.Errorf("an edit: %s", r)
			continue
		}
		calls, done = calls+n, done+1
	}
	lines := 0
	for i := range files {
		text, _ := os.ReadFile(filepath.Join(shared, fmt.Sprint("file", i))) // some have no edit
		lines += strings.Count(string(text), "\n")
	}
	if lines != sessions*edits {
		t.Errorf("%d lines were written, in %d edits", lines, sessions*edits)
	}
	t.Logf("%d edits in %v, %d calls of lock", done, time.Since(began).Round(time.Millisecond), calls)
}
